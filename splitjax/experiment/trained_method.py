"""Trained methods, loaded to predict; `train.finished` saves them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from splitjax import files, registry, trees
from splitjax.config import shipped
from splitjax.config.schema import Config
from splitjax.data import feed
from splitjax.engine.fleets import without_padding
from splitjax.evaluation import confident_path, early_exit, evaluate
from splitjax.experiment.by_client import read_clients
from splitjax.experiment.setup import method_factory
from splitjax.experiment.setup.network import (
  Network,
  from_scratch,
  make_network,
)
from splitjax.experiment.storage import checkpoint, workdirs
from splitjax.experiment.storage.checkpoint import Damaged
from splitjax.models import inference
from splitjax.types import Array, Half, Logits, Method, State, UserError


class Trained(NamedTuple):
  """A trained method, returned by `load`.

  Attributes:
    config: the config of its run.
    network: backbone, clients, standardisation.
    method: the trained method's functions.
    state: the state after the last round.
    personal: the personalised clients of each cohort, arrays [N, ...]; equal to
      state.clients for a checkpoint or a method that does not personalise.
    thresholds: test set (a rho as text) -> each client's threshold by the
      config's rule, nats; None for a checkpoint or a method without two exits.
    by_client: accuracy by client and class (see `by_client.measure`); [] for a
      checkpoint.

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
  personal: tuple[Half, ...]
  thresholds: dict[str, list[float]] | None
  by_client: list[dict[str, Any]]

  def number(self, client: int | str) -> int:
    """Returns the number of a client that is given by number or name.

    Raises:
      UserError: there is no such client.
    """
    names, count = self.network.names, self.network.fleet.num_clients
    if isinstance(client, str) and client in names:
      return names.index(client)
    if np.asarray(client).dtype.kind in "iu" and int(client) in range(count):
      return int(client)
    near = ", ".join(registry.nearest(str(client), names))
    raise UserError(
      f"client {client!r}: the run has {count} clients; give a number in"
      f" 0..{count - 1}" + (f", or a name, such as {near}" if near else "")
    )

  def client(self, n: int | str) -> Half:
    """Returns the personalised prefix and exit of client n (number or name).

    Raises:
      UserError: see `number`.
    """
    number = self.number(n)
    fleet = method_factory.own_fleet(self.method, self.network)
    for cohort, half in zip(fleet.cohorts, self.personal, strict=True):
      if number in cohort.ids:
        return trees.take(half, cohort.ids.index(number))
    raise AssertionError("every client is in a cohort")

  def server(self, n: int | str) -> Half:
    """Returns the server's part for client n."""
    if self.method.part_two is None:
      return self.state.server
    return self.method.part_two(self.client(n), self.state.server)

  def predict(
    self, n: int | str, image: np.ndarray, threshold: float | None
  ) -> tuple[Array, Array]:
    """Classifies inputs as client n does.

    With two exits, the client's exit answers if it is confident; otherwise the
    server answers. If the method has `Traits.pick`, the paths of all clients
    classify each input, and the most confident path answers.

    Args:
      n: the client's number, or its name where the data name the clients.
      image: inputs [B, ...] in the data's dtype; images are [B, H, W, c] uint8.
      threshold: e_n, nats: the exit answers iff its entropy is below it.
        Ignored for methods without two exits.

    Returns:
      class [B] int32 and offloaded [B] bool.

    Raises:
      UserError: the inputs have another dtype or shape, the threshold is no
        number, or see `client`.
    """
    self._check(image)
    answers = self.method.traits.answers
    number = np.asarray(threshold).dtype.kind in "iuf"  # None is an object
    if len(answers) > 1 and not number:
      raise UserError(
        f"threshold={threshold!r}: give a number, nats, as in"
        f" thresholds[{next(iter(self.thresholds or ['']))!r}]; clients without"
        " test samples have None there"
      )
    limit = jnp.asarray(threshold if len(answers) > 1 else 0.0)
    return self._predictor(n)(jnp.asarray(image), limit)

  def export(self, n: int | str, path: str | Path) -> Path:
    """Writes `predict` of client n as a program that needs jax alone.

    The file is an artifact of jax.export with the parameters inside. Its
    program maps inputs [B, ...], as `predict` takes them, and a threshold,
    float32 [], to what `predict` returns, for any B, on CPU, CUDA and TPU.

    Args:
      n: the client's number, or its name where the data name the clients.
      path: the file; an existing one is replaced.

    Returns:
      The path.

    Raises:
      UserError: see `client`.

    Example:
      >>> import jax.export
      >>> import splitjax
      >>> trained = splitjax.load("runs/first", "splitgp")
      >>> path = trained.export(0, "runs/client0.bin")
      >>> program = jax.export.deserialize(path.read_bytes())
      >>> image = splitjax.build(trained.config).data.test_image[:3]
      >>> label, offloaded = program.call(image, np.float32(0.4))
      >>> label.shape
      (3,)
    """
    shape, dtype = self.network.backbone.shape, jnp.dtype(self.network.dtype)
    # Each batch size is compiled when the program first meets it.
    sizes = jax.export.symbolic_shape(f"b, {', '.join(map(str, shape))}")
    lower = jax.export.export(
      jax.jit(self._predictor(n)), platforms=("cpu", "cuda", "tpu")
    )
    artifact = lower(
      jax.ShapeDtypeStruct(sizes, dtype), jax.ShapeDtypeStruct((), "float32")
    )
    path = files.expanded(path)
    path.write_bytes(artifact.serialize())
    return path

  def embeddings(self, n: int | str, image: np.ndarray) -> Array:
    """Returns the input z_S of the server's head for inputs at client n.

    Inputs are as in `predict`, the result is [B, D] float32.

    Raises:
      UserError: clients hold the whole network, so there is no server; or see
        `predict`.
    """
    if self.method.traits.depth == "full":
      raise UserError(
        "embeddings are the server's: clients of this method have the whole"
        " network"
      )
    self._check(image)
    x = self._standardised(jnp.asarray(image))
    own, server = self.client(n).segment, self.server(n).segment
    return inference.embedding(self.network.backbone, own, server, x)

  def _predictor(self, n: int | str) -> Callable[..., tuple[Array, Array]]:
    """Makes the function (inputs, threshold) -> (class, offloaded)."""
    method, server = self.method, self.state.server
    answers = method.traits.answers
    client = self.client(n)

    def predictor(image: Array, threshold: Array) -> tuple[Array, Array]:
      x = self._standardised(image)
      # Logits of both exits, or of the most confident path.
      if method.traits.pick:
        path = confident_path.most_confident_path
        one = path(method, self.personal, server, x)
        logits = Logits(one, one)
      else:
        logits = method.predict(client, server, x)
      exits = evaluate.to_exits(logits)
      if len(answers) == 1:
        away = jnp.full(exits.client.shape, answers == ("server",))
      else:
        away = jnp.asarray(
          early_exit.offloads(exits.entropy, threshold, answers)
        )
      return jnp.where(away, exits.server, exits.client), away

    return predictor

  def _check(self, image: np.ndarray) -> None:
    """Raises UserError if inputs do not suit the network, see `predict`."""
    network, net = self.network, self.network.backbone
    if wrong := feed.unfit(image, net.shape, network.dtype, net.vocabulary):
      raise UserError(wrong)

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
      without thresholds; None loads the finished method.
    config: a config file of your own, which is executed to register its
      methods, networks and partitions; not needed if they are registered.

  Returns:
    The method with its state; `Trained.client(n)` is a client's own part.

  Raises:
    UserError: the run or the checkpoint does not exist, the method is not
      finished, or files are damaged.

  Example:
    >>> import splitjax
    >>> trained = splitjax.load("runs/first", "splitgp")
    >>> sorted(trained.client(0).segment.params)
    ['block1', 'block2', 'exit2']
  """
  workdir = files.expanded(workdir)
  if config is not None:
    shipped.execute(config)
  settings, facts = workdirs.read_config(workdir)
  about = None
  if key in settings.methods:
    about = {} if round is not None else workdirs.read_about(workdir, key)
  if about is None:
    done = ", ".join(workdirs.finished(workdir)) or "none"
    raise UserError(
      f"{workdir} holds no finished method {key!r} (finished: {done})"
    )
  network = make_network(from_scratch(settings), facts)
  method = method_factory.make_method(settings, network.backbone, key)
  fleet = method_factory.own_fleet(method, network)

  def wanted(places):  # for a state saved from any devices
    state = method_factory.abstract_state(method, network, places)
    return checkpoint.on_first_device(state)

  place, saved, lines = workdirs.folder(workdir, key), dict[str, Any](), []
  if round is not None:
    folder = place / workdirs.CHECKPOINTS
    saved["state"] = checkpoint.read_round(folder, round, wanted)
  else:
    lines, shapes = read_clients(place), wanted(about["record"]["places"])
    trees = {"state": shapes, "personal": shapes.clients}
    for name, digest in about["digests"].items():
      try:
        saved[name] = checkpoint.read_state(place / name, trees[name], digest)
      except Damaged as damage:
        raise UserError(
          f"{place / name} is damaged ({damage}): delete {place} to train the"
          " method again"
        ) from None
  state = saved["state"]
  own = without_padding(fleet, saved.get("personal", state.clients))
  state = state._replace(clients=without_padding(fleet, state.clients))
  given = about.get("thresholds")
  return Trained(settings, network, method, state, own, given, lines)
