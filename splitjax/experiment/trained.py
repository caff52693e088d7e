"""Trained methods, loaded to predict."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax import Array

from splitjax import files, target
from splitjax.config import loading
from splitjax.config.config import Config
from splitjax.data import feed
from splitjax.data.dataset import fitting, require
from splitjax.data.feed import Samples
from splitjax.evaluation import exits, gate
from splitjax.experiment import network as networks
from splitjax.experiment import storage, workdirs
from splitjax.experiment.network import Network
from splitjax.experiment.programs import Programs
from splitjax.experiment.task import Task, build, make_subject
from splitjax.fields import shown
from splitjax.files import Json
from splitjax.fleet.cohorts import group_of
from splitjax.fleet.fleets import Fleet, client_of, own_fleet, without_padding
from splitjax.methods import nets
from splitjax.methods.method import Method
from splitjax.models.network import init, prefix
from splitjax.types import Client, Net, Shard, State, UserError


class NewClient(NamedTuple):
  """The networks that answer for a client, also for a new one."""

  net: Net
  server: Net  #: its part for the client


AnyClient = int | str | NewClient
"""A client's number, its name where the data name clients, or a new one."""


class Trained(NamedTuple):
  """A trained method, returned by `load`.

  An unknown client is a UserError. Inputs are [B, ...], images uint8
  [B, H, W, c]; other widths and byte orders of numbers are cast as those of
  training samples were, and what does not fit is a UserError.

  Example:
    >>> import splitjax
    >>> trained = splitjax.load("runs/first", "splitgp")
    >>> trained.config.rounds
    2
  """

  config: Config
  network: Network
  method: Method
  state: State
  #: each cohort's personalised networks [N, ...]; () of a checkpoint, and of a
  #: method that does not personalise
  personal: tuple[Net, ...]
  #: test set (a rho as text) -> each client's threshold by the config's rule,
  #: nats; None of a checkpoint, and of a method with one exit
  thresholds: dict[str, list[float]] | None

  def __repr__(self) -> str:
    """Says what was trained; the parameters would fill the screen."""
    count = self.network.fleet.num_clients
    done = f"after round {int(self.state.round)}, {count} clients"
    return f"Trained({type(self.method).__name__}, {done})"

  def client(self, n: AnyClient) -> Net:
    """Returns the network that answers for client n, personalised if it was."""
    return self._pair(n).net

  def server(self, n: AnyClient) -> Net:
    """Returns the server's part for client n."""
    return self._pair(n).server

  def predict(
    self, n: AnyClient, image: np.ndarray, threshold: float | None
  ) -> tuple[Array, Array]:
    """Classifies inputs [B, ...] as client n does.

    With two exits, the client's exit answers if its entropy is below the
    `threshold` e_n, nats; otherwise the server answers. With one exit the
    threshold is ignored. If the method has `Method.pick`, the paths of all
    clients classify each input, and the most confident path answers.

    Returns class [B] int32 and offloaded [B] bool.
    """
    image = self._fitting(image)
    two_exits = len(self.method.answers) > 1
    limit = np.asarray(threshold if two_exits else 0.0)  # of None an object
    if limit.dtype.kind not in "iuf" or np.isnan(limit).any():
      raise UserError(
        f"threshold={threshold!r}: give a number, nats, as in"
        f" thresholds[{next(iter(self.thresholds or ['']))!r}]; clients without"
        " test samples have None there"
      )
    return self._predictor(n)(jnp.asarray(image), jnp.asarray(limit))

  def export(self, n: AnyClient, path: str | Path) -> Path:
    """Writes `predict` of client n as a program that needs jax alone.

    The file, which is replaced if it exists, is an artifact of jax.export with
    the parameters inside. Its program maps inputs and a threshold, float32 [],
    to what `predict` returns, for any B, on CPU, CUDA and TPU.

    Example:
      >>> import jax.export
      >>> import numpy as np
      >>> import splitjax
      >>> trained = splitjax.load("runs/first", "splitgp")
      >>> path = trained.export(0, "runs/client0.bin")
      >>> program = jax.export.deserialize(path.read_bytes())
      >>> image = splitjax.build(trained.config).data.test_image[:3]
      >>> label, offloaded = program.call(image, np.float32(0.4))
      >>> label.shape
      (3,)
    """
    shape = ", ".join(map(str, self.network.backbone.shape))
    # Each batch size is compiled when the program first meets it.
    sizes = jax.export.symbolic_shape(f"b, {shape}")
    program = jax.jit(self._predictor(n))
    artifact = jax.export.export(program, platforms=("cpu", "cuda", "tpu"))(
      jax.ShapeDtypeStruct(sizes, jnp.dtype(self.network.dtype)),
      jax.ShapeDtypeStruct((), "float32"),
    )
    path = files.expanded(path)
    path.write_bytes(artifact.serialize())
    return path

  def new_client(
    self, image: np.ndarray, label: np.ndarray, depth: int | None = None
  ) -> NewClient:
    """Makes a client that took no part in the training, from its own data.

    It begins with the common parameters, and with random ones where clients
    share none, and personalises if a row of results is personal. Takes inputs
    [Z, ...], labels [Z] int, and a depth of the clients; None: the shallowest.
    """
    method = self.method
    state = self.state
    net = self.network.backbone
    image = self._fitting(image)
    fits = len(label) == len(image) and np.isin(label, range(net.classes)).all()
    require(fits, f"label: give {len(image)} numbers below {net.classes}")
    depths = [cohort.depth for cohort in self._fleet.cohorts]
    depth = depths[0] if depth is None else depth
    require(depth in depths, f"depth={depth}: the clients' depths are {depths}")
    common = state.server.common
    require(
      jax.tree.leaves(common) and not method.pick,
      f"{type(method).__name__} has no network in common that a new client"
      " could begin with and answer by: predict as a client of the run",
    )
    # Random even in a pretrained network, whose file only training reads.
    key = jax.random.fold_in(jax.random.key(self.config.seed), 0)
    part = prefix(net, init(net, key), depth, with_exit=method.exits)
    apart = nets.select(part, lambda path: not method.sends(path))
    number = self.network.fleet.num_clients
    client = method.first_client(nets.join(apart, common), number)
    personal = method.model(client, state.server)
    if any(row.personal for row in method.rows):
      samples = self.samples(number, image, label)
      key = jax.random.fold_in(exits.tuning_key(state.key, state.round), number)
      personal = method.personalise(client, state.server, samples, key)
    return NewClient(net=personal, server=method.part_two(client, state.server))

  # Of single clients.

  def number(self, client: int | str) -> int:
    """Returns the number of a client."""
    names = self.network.names
    count = self.network.fleet.num_clients
    if isinstance(client, str) and client in names:
      return names.index(client)
    if np.asarray(client).dtype.kind in "iu" and int(client) in range(count):
      return int(client)
    similar = shown(str(client), names)
    raise UserError(
      f"client {client!r}: the run has {count} clients; give a number in"
      f" 0..{count - 1}"
      + (f", or a name, such as {similar}" if similar else "")
    )

  def kept(self, n: int | str) -> Client:
    """Returns what client n keeps between rounds."""
    return client_of(self._fleet, self.state.clients, self.number(n))

  def samples(
    self, number: int, image: np.ndarray, label: np.ndarray, epochs: int = 1
  ) -> Samples:
    """Makes the data of a client that holds the given samples alone."""
    net = self.network
    plan = feed.BatchPlan(self.config.batch_size, epochs, net.mean, net.std)
    counts = np.bincount(label, minlength=net.backbone.classes)
    group = group_of(self.method, net.fleet, counts[None], [number])
    rows = jnp.arange(len(label))
    shard = Shard(
      image=jnp.asarray(image),
      label=jnp.asarray(label, jnp.int32),
      rows=rows,
      size=jnp.int32(len(label)),
      counts=jnp.asarray(counts),
      number=jnp.int32(number),
      group=() if group is None else jnp.asarray(group)[0],
      validation=rows if self.method.validates else (),
    )
    return Samples(shard, plan.for_clients([len(label)]))

  def _pair(self, n: AnyClient) -> NewClient:
    """Returns the networks that answer for client n."""
    if isinstance(n, NewClient):
      return n
    client = self.kept(n)
    server = self.state.server
    if self.personal:
      net = client_of(self._fleet, self.personal, self.number(n))
    else:
      net = self.method.model(client, server)
    return NewClient(net=net, server=self.method.part_two(client, server))

  def _predictor(self, n: AnyClient) -> Callable[..., tuple[Array, Array]]:
    """Makes the function (inputs, threshold) -> (class, offloaded)."""
    method = self.method
    state = self.state
    net, server = self._pair(n)

    def predictor(image: Array, threshold: Array) -> tuple[Array, Array]:
      x = self._standardised(image)
      both = exits.to_exits(
        exits.both_logits(method, net, server, x, state.clients, state.server)
      )
      away = jnp.asarray(gate.offloads(both.entropy, threshold, method.answers))
      return jnp.where(away, both.server, both.client), away

    return predictor

  @property
  def _fleet(self) -> Fleet:
    return own_fleet(self.method, self.network.fleet)

  def _fitting(self, image: np.ndarray) -> np.ndarray:
    net = self.network.backbone
    return fitting(image, net.shape, self.network.dtype, net.vocabulary)

  def _standardised(self, image: Array) -> Array:
    return feed.standardise(image, self.network.mean, self.network.std)


def load(
  workdir: str | Path,
  key: str,
  round: int | None = None,
  config: str | Path | None = None,
) -> Trained:
  """Loads a trained method of a run.

  Args:
    workdir: the folder of the run.
    key: the key of the method in the config.
    round: a number loads the checkpoint after this round, not personalised and
      without thresholds; None loads the finished method. If it personalises,
      its clients do so again, on the run's data.
    config: a config file of your own, which is executed to register its
      methods, networks and partitions; not needed if those of this method are
      registered.

  Raises:
    UserError: the run or the checkpoint does not exist, the method is not
      finished, or files are damaged.

  Example:
    >>> import splitjax
    >>> trained = splitjax.load("runs/first", "splitgp")
    >>> sorted(trained.client(0).params)
    ['block1', 'block2', 'exit2']
  """
  workdir = files.expanded(workdir)
  if config is not None:
    loading.execute(config)
  settings, facts = workdirs.read_config(workdir, key)
  about = None
  if round is None and key in settings.methods:
    about = workdirs.read_about(workdir, key)
  number = about.rounds if about else round
  if number is None or key not in settings.methods:
    finished = ", ".join(workdirs.finished(workdir)) or "none"
    text = f"holds no finished method {key!r} (finished: {finished})"
    if workdirs.kind_of(workdir) == "seeds":
      text = "holds one run per seed: name a seed's folder in it"
    raise UserError(f"--workdir={workdir} {text}")
  network = networks.make_network(networks.from_scratch(settings), facts)
  method = networks.make_method(settings, network.backbone, key)
  like = networks.abstract_state(method, network)
  state, _ = storage.read(workdirs.folder(workdir, key), number, like)
  device = target.current().local[0]
  personal: tuple[Net, ...] = ()
  if about and any(row.personal for row in method.rows):
    # The same program gives the same networks as at the end of the training.
    task = rebuilt(workdir, settings, facts)
    programs = Programs(make_subject(task, key))
    nets = programs.personalise(programs.place(state))
    fleet = own_fleet(method, network.fleet)
    personal = without_padding(fleet, jax.device_put(nets, device))
  return Trained(
    config=settings,
    network=network,
    method=method,
    state=jax.device_put(state, device),
    personal=personal,
    thresholds=about.thresholds if about else None,
  )


def rebuilt(workdir: Path, config: Config, facts: Json) -> Task:
  """Builds a task on the data and with the depths of a trained run.

  Raises UserError if clients would have other samples than in the training.
  """
  # The trained weights are stored: no file of pretrained ones is needed.
  task = build(networks.from_scratch(config), facts["depth"])
  if task.facts["digest"] != facts["digest"]:
    raise UserError(
      f"--workdir={workdir} was trained on other data: {config.data.name} has"
      " changed since"
    )
  # Other test sets may imply other training samples.
  if task.facts["partition"] != facts["partition"]:
    raise UserError(
      "eval.shift.name, eval.holdout, or the code of data.partition="
      f"{config.data.partition.name}: it deals clients other samples than in"
      " the training; set it back, or train anew"
    )
  return task._replace(config=config)
