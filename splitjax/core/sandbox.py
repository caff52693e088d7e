"""A small simulation: six clients of unequal size train a toy network.

`check_method` and much of the test suite run in it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from splitjax.core.engine import layout, orders, round
from splitjax.core.engine.faults import NO_FAULTS, FaultTable
from splitjax.core.engine.loops import one_server
from splitjax.core.methods.method import Method
from splitjax.core.methods.optimizer import Optimizer
from splitjax.core.records import Client, Metrics, Net, State
from splitjax.data import feed, inputs
from splitjax.data.feed import BatchPlan
from splitjax.engine import fleets
from splitjax.engine.fleets import Fleet
from splitjax.models import drawing
from splitjax.models.mlp import toy
from splitjax.types import Shard

SHAPE, CLASSES, ROUNDS = (4, 4, 1), 4, 10
SIZES = (13, 5, 9, 4, 12, 7)
"""Samples of each client: unequal, and not all multiples of a batch of 4."""


class Sandbox(NamedTuple):
  """One method and its clients, ready for rounds.

  Attributes:
    method: the method under test.
    fleet: the clients.
    plans: the plan of each cohort.
    shards: for each cohort, its clients' shards, arrays [N, ...].
    faults: drawn faults of the clients.
  """

  method: Method
  fleet: Fleet
  plans: tuple[BatchPlan, ...]
  shards: tuple[Shard, ...]
  faults: FaultTable = NO_FAULTS

  def state(self, seed: int = 0) -> State:
    """Makes the initial state, in new arrays that a round may donate."""
    key = jax.random.key(seed)
    full = drawing.init(self.method.backbone, key)
    state = round.start(self.method, layout.of(self.fleet), full, key)
    return jax.tree.map(jnp.copy, state)

  def round(self, state: State) -> tuple[State, Metrics]:
    """Runs a round; the state is donated."""
    return round.run_round(self.method, state, self.shards, **self.how)

  def lower(self, state: State) -> Any:
    """Lowers a round, for its text and its costs."""
    return round.run_round.lower(self.method, state, self.shards, **self.how)

  def networks(self, state: State) -> tuple[Net, ...]:
    """The networks [N, ...] of each cohort with which a round starts."""

    def network(client: Client, number: Array) -> Net:
      del number  # clients may store nothing: it gives the axis
      return self.method.model(client, state.server)

    return tuple(
      jax.vmap(network)(clients, shard.number)
      for clients, shard in zip(state.clients, self.shards, strict=True)
    )

  @property
  def how(self) -> dict[str, Any]:
    """The keywords of `run_round`."""
    return {
      "layout": layout.of(self.fleet),
      "plans": self.plans,
      "faults": self.faults,
    }


def small(kind: Callable[..., Method], **options: Any) -> Sandbox:
  """Makes a sandbox of a method: six clients of one or two depths.

  If the clients share one server, they have the same depth. If they visit it
  one after another, their order is cyclic.

  Args:
    kind: as in METHODS.
    options: fields of the method.
  """
  options = {"optimizer": Optimizer(lr=0.1)} | options
  net = toy(SHAPE, CLASSES, depths=(1, 2), length=3)
  method = kind(backbone=net, **options)
  if one_server(method):
    net = toy(SHAPE, CLASSES, depths=(1,), length=3)
    method = kind(backbone=net, **options)
  return build(method, fleet_of(method))


def fleet_of(
  method: Method, *, clients: int = len(SIZES), participants: int | None = None
) -> Fleet:
  """Makes clients at the method's depths."""
  net = method.backbone
  fleet = fleets.assign_depths(clients, net.cuts, 0, participants=participants)
  if method.whole:
    fleet = fleets.with_full_depth(fleet, net.length)
  return fleet


def build(
  method: Method,
  fleet: Fleet,
  sizes: tuple[int, ...] = SIZES,
  *,
  batch: int = 4,
  epochs: int = 1,
  steps: int | None = None,
  image: np.ndarray | None = None,
  faults: FaultTable = NO_FAULTS,
) -> Sandbox:
  """Makes a sandbox of clients that hold `sizes` samples.

  Args:
    method: the method under test.
    fleet: the clients.
    sizes: samples of each client.
    batch: batch size.
    epochs: local epochs.
    steps: local steps of a round; None: those of `epochs`.
    image: [Z, H, W, c] uint8; None: `stripes`.
    faults: drawn faults of the clients.
  """
  stock, label = stripes(sum(sizes) + 5)
  image = stock if image is None else image
  mean, std = inputs.statistics(stock)
  on_device = jnp.asarray(image), jnp.asarray(label)
  batch = method.batch_size(len(sizes), batch)
  epochs = feed.epochs(epochs, steps, sizes, batch)
  rows_of = parts(sizes)
  plans, shards = [], []
  for cohort in fleet.cohorts:
    rows = [rows_of[i] for i in cohort.ids]
    plan = feed.plan([*map(len, rows)], batch, epochs, mean, std, limit=steps)
    shard = feed.shards(*on_device, rows, CLASSES, cohort.places)
    if method.validates:  # holds back rows that belong to no client
      rest = np.setdiff1d(np.arange(sum(sizes) + 5), np.concatenate(rows_of))
      held = jnp.asarray(np.tile(rest, (len(cohort.places), 1)), jnp.int32)
      shard = shard._replace(held=held)
    plans.append(plan)
    shards.append(with_order(method, shard, plan, fleet))
  return Sandbox(
    method=method,
    fleet=fleet,
    plans=tuple(plans),
    shards=tuple(shards),
    faults=faults,
  )


def with_order(
  method: Method, shard: Shard, plan: BatchPlan, fleet: Fleet
) -> Shard:
  """Adds a cyclic service order and client groups, if the method uses them."""
  return orders.with_service_order(
    method, shard, plan, fleet, order="cyclic", turn=1, rounds=ROUNDS, seed=0
  )


def stripes(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
  """Makes images [count, 4, 4, 1] and labels.

  An image is dark, except for the row whose number is the label.
  """
  rng = np.random.default_rng(seed)
  label = rng.integers(0, CLASSES, count).astype(np.int32)
  image = rng.integers(0, 60, (count, *SHAPE))
  image[np.arange(count), label] += 150
  return image.astype(np.uint8), label


def parts(sizes: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
  """Divides the rows of the data among clients; 5 rows belong to no client."""
  rows = np.random.default_rng(seed).permutation(sum(sizes) + 5)
  return np.split(rows, np.cumsum(sizes))[:-1]
