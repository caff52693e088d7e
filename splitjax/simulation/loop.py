"""A simulation without config or folder: arrays in, rounds out."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from splitjax import rules
from splitjax.data import feed
from splitjax.data.dataset import fitting, mean_and_std, require
from splitjax.data.feed import BatchPlan
from splitjax.data.partitions import Parts
from splitjax.engine import round
from splitjax.engine.faults import NO_FAULTS, FaultTable
from splitjax.fields import Count, convert, unknown
from splitjax.fleet import cohorts, fleets
from splitjax.fleet.fleets import Fleet
from splitjax.fleet.orders import ORDERS, Queue
from splitjax.methods.method import Method
from splitjax.models import network
from splitjax.models.network import Backbone
from splitjax.types import Client, Logits, Metrics, Net, Server, Shard, State


class Simulation(NamedTuple):
  """Clients with their data, ready for rounds of a method."""

  method: Method  #: the one that it was made for
  fleet: Fleet  #: the clients
  plans: tuple[BatchPlan, ...]  #: the batches of each cohort
  shards: tuple[Shard, ...]  #: of each cohort, its clients' data [N, ...]
  faults: FaultTable = NO_FAULTS  #: drawn faults of the clients

  def start(self, method: Method, seed: int = 0) -> State:
    """Makes the state before the first round, in new arrays."""
    key = jax.random.key(seed)
    full = network.init(method.backbone, key)
    state = round.start(method, self.fleet.layout, full, key)
    return jax.tree.map(jnp.copy, state)  # a round donates it

  def round(self, method: Method, state: State) -> tuple[State, Metrics]:
    """Runs a round; the state is donated.

    A method with other numbers, such as a new learning rate, runs in the same
    program: `dataclasses.replace(method, lam=0.5)`.
    """
    rules.refresh()
    return round.run_round(method, state, self.shards, **self.how)

  @property
  def how(self) -> dict[str, Any]:
    """The keywords of `run_round`, which describe the clients."""
    return {
      "layout": self.fleet.layout, "plans": self.plans, "faults": self.faults
    }  # fmt: skip

  def networks(self, method: Method, state: State) -> tuple[Net, ...]:
    """Returns the networks [N, ...] of each cohort that begin a round."""

    def network_of(client: Client, number: Array) -> Net:
      del number  # clients may store nothing: it gives the axis
      return method.model(client, state.server)

    return tuple(
      jax.vmap(network_of)(clients, shard.number)
      for clients, shard in zip(state.clients, self.shards, strict=True)
    )

  def client(self, state: State, number: int) -> Client:
    """Finds a client in the state by its number."""
    return fleets.client_of(self.fleet, state.clients, number)

  def predict(
    self, method: Method, state: State, number: int, image: np.ndarray
  ) -> Logits:
    """Computes the logits of both exits for inputs [B, ...] at a client."""
    plan = self.plans[0]
    x = feed.standardise(jnp.asarray(image), plan.mean, plan.std)
    return _answer(method, self.client(state, number), state.server, x)


@jax.jit
def _answer(method: Method, client: Client, server: Server, x: Array) -> Logits:
  net = method.model(client, server)
  return method.predict(net, method.part_two(client, server), x)


def simulate(
  method: Method,
  image: np.ndarray,
  label: np.ndarray,
  parts: Sequence[np.ndarray],
  *,
  batch: int = 50,
  epochs: int = 1,
  fleet: Fleet | None = None,
  participants: int | None = None,
  validation: np.ndarray | None = None,
  order: str = "random",
  rounds: int = 100,
  seed: int = 0,
) -> Simulation:
  """Makes a simulation of clients that hold rows of a data set.

  Args:
    method: the clients have its network's depth, or its cuts in equal shares.
    image: [Z, ...], in the units and dtype of the data.
    label: [Z] int, from 0 on.
    parts: rows of each client.
    batch: batch size.
    epochs: local epochs of a round.
    fleet: the clients; None: made from `method`, `participants` and `seed`.
    participants: clients sampled per round; None: all.
    validation: rows that every client validates on, if its method does.
    order: in ORDERS, for methods whose clients visit one server in turns.
    rounds: how many rounds' orders are drawn; later rounds repeat the last.
    seed: of depths and orders.

  Example:
    >>> import numpy as np
    >>> import splitjax
    >>> from splitjax.methods import FedAvg
    >>> from splitjax.methods.optimizer import Optimizer
    >>> rng = np.random.default_rng(0)
    >>> images = rng.integers(0, 256, (60, 8, 8, 1), np.uint8)
    >>> labels = (images[:, :4].mean((1, 2, 3)) > 127).astype(np.int32)
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=2)
    >>> method = FedAvg(backbone=net, optimizer=Optimizer(lr=0.1))
    >>> clients = np.array_split(np.arange(60), 4)
    >>> sim = simulate(method, images, labels, clients, batch=5)
    >>> state = sim.start(method)
    >>> for _ in range(3):
    ...   state, metrics = sim.round(method, state)
    >>> sim.predict(method, state, 0, images).client.shape
    (60, 2)
  """
  image, label = _checked(method.backbone, image, label, parts)
  convert(batch, Count, "batch")
  convert(epochs, Count, "epochs")
  require(order in ORDERS, unknown("order", order, ORDERS, "order"))
  if fleet is None:
    fleet = fleet_of(method, len(parts), participants=participants, seed=seed)
  mean, std = mean_and_std(image, vocabulary=method.backbone.vocabulary)
  plan = feed.BatchPlan(
    batch=method.batch_size(len(parts), batch),
    epochs=epochs,
    mean=mean,
    std=std,
  )
  split = jnp.asarray(image), jnp.asarray(label, jnp.int32)
  queue = Queue(order=order, rounds=rounds, seed=seed)
  held_back: Parts = ()
  if method.validates and validation is not None:
    held_back = [validation] * len(parts)
  plans, shards, _ = cohorts.deal(
    method, fleet, split, parts, plan, queue, held_back
  )
  return Simulation(method=method, fleet=fleet, plans=plans, shards=shards)


def _checked(
  net: Backbone, image: np.ndarray, label: np.ndarray, parts: Parts
) -> tuple[np.ndarray, np.ndarray]:
  """Returns inputs and labels as a network takes them; UserError if not."""
  dtype = str(np.asarray(image).dtype)
  image = fitting(image, net.shape, dtype, net.vocabulary)
  require(
    len(parts) and all(map(len, parts)), "parts: give each client rows of image"
  )
  rows = np.concatenate([np.asarray(part) for part in parts])
  require(
    not rows.size or (0 <= rows.min() and rows.max() < len(image)),
    f"parts: give rows of image, 0..{len(image) - 1}",
  )
  label = np.asarray(label)
  require(
    label.dtype.kind in "iu"
    and label.shape == (len(image),)
    and (0 <= label.min() and label.max() < net.classes),
    f"label is {label.dtype} {str(label.tolist()):.60}: give each of"
    f" {len(image)} inputs a whole number in 0..{net.classes - 1}, the"
    f" network's {net.classes} classes",
  )
  return image, label


def fleet_of(
  method: Method,
  clients: int,
  *,
  participants: int | None = None,
  seed: int = 0,
) -> Fleet:
  """Makes clients at the method's depths."""
  net = method.backbone
  cuts = net.cuts or (net.length,)
  fleet = fleets.assign_depths(clients, cuts, seed, participants=participants)
  return fleets.own_fleet(method, fleet)
