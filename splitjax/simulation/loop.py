"""A simulation without config or folder: arrays in, rounds out."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from splitjax import rules, trees
from splitjax.data import feed
from splitjax.data.dataset import fitting, scale
from splitjax.data.feed import BatchPlan
from splitjax.engine import round
from splitjax.engine.faults import NO_FAULTS, FaultTable
from splitjax.fields import COUNT, convert, unknown
from splitjax.fleet import cohorts, fleets, orders
from splitjax.fleet.fleets import Fleet, Layout
from splitjax.fleet.orders import Queue
from splitjax.methods.method import Method
from splitjax.models import network
from splitjax.types import (
  Client,
  Logits,
  Metrics,
  Server,
  Shard,
  State,
  UserError,
)


class Keywords(TypedDict):
  """What describes the clients to `run_round`."""

  layout: Layout
  plans: tuple[BatchPlan, ...]
  faults: FaultTable


class Simulation(NamedTuple):
  """Clients with their data, ready for rounds of a method.

  Attributes:
    fleet: the clients.
    plans: the batches of each cohort.
    shards: of each cohort, its clients' data, arrays [N, ...].
    faults: drawn faults of the clients.
  """

  fleet: Fleet
  plans: tuple[BatchPlan, ...]
  shards: tuple[Shard, ...]
  faults: FaultTable = NO_FAULTS

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
    rules.forget_replaced()
    return round.run_round(method, state, self.shards, **self.how)

  @property
  def how(self) -> Keywords:
    """The keywords of `run_round`."""
    return Keywords(
      layout=self.fleet.layout, plans=self.plans, faults=self.faults
    )

  def client(self, state: State, number: int) -> Client:
    """Finds a client in the state by its number."""
    for cohort, clients in zip(self.fleet.cohorts, state.clients, strict=True):
      if number in cohort.ids:
        return trees.take(clients, cohort.ids.index(number))
    raise IndexError(f"client {number} of {self.fleet.num_clients}")

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
  steps: int | None = None,
  fleet: Fleet | None = None,
  participants: int | None = None,
  validation: np.ndarray | None = None,
  order: str = "random",
  rounds: int = 100,
  seed: int = 0,
) -> Simulation:
  """Makes a simulation of clients that hold rows of a data set.

  Args:
    method: the clients have the depth of its network, or its cuts, about
      equally common.
    image: [Z, ...], in the units and dtype of the data.
    label: [Z] int, from 0 on.
    parts: rows of each client.
    batch: batch size.
    epochs: local epochs of a round.
    steps: local steps of a round; None: those of `epochs`.
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
  image, label = _checked(method, image, label, parts)
  for name, count in (("batch", batch), ("epochs", epochs)):
    convert(count, Annotated[int, COUNT], name)
  if order not in orders.ORDERS:
    raise UserError(unknown("order", order, orders.ORDERS, "order"))
  if fleet is None:
    fleet = fleet_of(method, len(parts), participants=participants, seed=seed)
  mean, std = scale(image, vocabulary=method.backbone.vocabulary)
  plan = feed.BatchPlan(
    batch=method.batch_size(len(parts), batch),
    epochs=epochs,
    mean=mean,
    std=std,
    limit=steps,
  )
  split = jnp.asarray(image), jnp.asarray(label, jnp.int32)
  queue = Queue(order=order, rounds=rounds, seed=seed)
  held_back = list[np.ndarray]()
  if method.validates and validation is not None:
    held_back = [validation] * len(parts)
  plans, shards = cohorts.deal(
    method,
    fleet,
    split,
    parts,
    plan,
    queue,
    validation=held_back,
  )
  return Simulation(fleet=fleet, plans=plans, shards=shards)


def _checked(
  method: Method,
  image: np.ndarray,
  label: np.ndarray,
  parts: Sequence[np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
  """Returns inputs and labels as the network takes them.

  Raises UserError unless inputs, labels and rows suit the network.
  """
  net = method.backbone
  classes = net.classes
  dtype = str(np.asarray(image).dtype)
  image = fitting(image, net.shape, dtype, net.vocabulary)
  label = np.asarray(label)
  rows = np.concatenate([np.asarray(part) for part in parts])
  if rows.size and not (0 <= rows.min() and rows.max() < len(image)):
    raise UserError(
      f"parts have rows {rows.min()} to {rows.max()}: image has rows"
      f" 0..{len(image) - 1}"
    )
  if len(label) != len(image):
    raise UserError(f"label has {len(label)} rows and image {len(image)}")
  integers = np.issubdtype(label.dtype, np.integer)
  if not integers or label.min() < 0 or label.max() >= classes:
    values = np.unique(label)[[0, -1]].tolist()
    raise UserError(
      f"label is {label.dtype} from {values[0]} to {values[1]}: give whole"
      f" numbers in 0..{classes - 1}, the network's {classes} classes"
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
  if method.uncut:
    fleet = fleets.with_full_depth(fleet, net.length)
  return fleet
