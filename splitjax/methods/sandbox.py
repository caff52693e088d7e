"""A small simulation: six clients of unequal size train a toy network.

The contract checks (`contract`) and much of the test suite run in it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from splitjax.data import feed, inputs
from splitjax.data.feed import BatchPlan
from splitjax.engine import client_order, fleets, rounds
from splitjax.engine.fleets import Fleet
from splitjax.engine.topologies import topology_of
from splitjax.methods.optimizers import sgd
from splitjax.models import drawing
from splitjax.models.backbones import Backbone
from splitjax.models.mlp import toy
from splitjax.types import Method, Shard, State

SHAPE, CLASSES, ROUNDS = (4, 4, 1), 4, 10
SIZES = (13, 5, 9, 4, 12, 7)
"""Samples of each client: unequal, and not all multiples of a batch of 4."""


class Sandbox(NamedTuple):
  """One method and its clients, ready for rounds.

  Attributes:
    backbone: the network.
    method: the method under test.
    fleet: the clients.
    plans: the plan of each cohort.
    shards: for each cohort, its clients' shards, arrays [N, ...].
  """

  backbone: Backbone
  method: Method
  fleet: Fleet
  plans: tuple[BatchPlan, ...]
  shards: tuple[Shard, ...]

  def state(self, seed: int = 0) -> State:
    """Makes the initial state, in new arrays that a round may donate."""
    key = jax.random.key(seed)
    full = drawing.init(self.backbone, key)
    state = self.method.init(key, self.fleet, full)
    return jax.tree.map(jnp.copy, state)

  def round(self) -> Any:
    """Makes the jitted round: (state, shards) -> (state, Metrics)."""
    return rounds.make_round(self.method, self.plans, self.fleet)


def small(factory: Callable[..., Method]) -> Sandbox:
  """Makes a sandbox of a factory's method: six clients of one or two depths.

  If the clients share one server, they have the same depth. If they visit it
  one after another, their order is cyclic.

  Args:
    factory: as in METHODS, (backbone, optimizer, *, options) -> Method.
  """
  net = toy(SHAPE, CLASSES, depths=(1, 2), length=3)
  method = factory(net, sgd(0.1))
  if topology_of(method.traits).one_server:
    net = toy(SHAPE, CLASSES, depths=(1,), length=3)
    method = factory(net, sgd(0.1))
  fleet = fleets.assign_depths(len(SIZES), net.cuts, 0)
  if method.traits.depth == "full":
    fleet = fleets.with_full_depth(fleet, net.length)
  return build(method, net, fleet)


def build(
  method: Method,
  backbone: Backbone,
  fleet: Fleet,
  sizes: tuple[int, ...] = SIZES,
  *,
  batch: int = 4,
  epochs: int = 1,
  steps: int | None = None,
  image: np.ndarray | None = None,
) -> Sandbox:
  """Makes a sandbox of clients that hold `sizes` samples.

  Args:
    method: the method under test.
    backbone: the network.
    fleet: the clients.
    sizes: samples of each client.
    batch: batch size.
    epochs: local epochs.
    steps: local steps of a round; None: those of `epochs`.
    image: [Z, H, W, c] uint8; None: `stripes`.
  """
  stock, label = stripes(sum(sizes) + 5)
  image = stock if image is None else image
  mean, std = inputs.statistics(stock)
  on_device = jnp.asarray(image), jnp.asarray(label)
  plans, shards = [], []
  if method.batch is not None:
    batch = method.batch(len(sizes), batch)
  epochs = feed.epochs(epochs, steps, sizes, batch)
  for cohort in fleet.cohorts:
    mine = [parts(sizes)[i] for i in cohort.ids]
    each = [len(part) for part in mine]
    plan = feed.plan(each, batch, epochs, mean, std, limit=steps)
    plans.append(plan)
    shard = feed.shards(*on_device, mine, CLASSES, cohort.places)
    if method.traits.validates:  # holds back rows that belong to no client
      rest = np.setdiff1d(
        np.arange(sum(sizes) + 5), np.concatenate(parts(sizes))
      )
      held = jnp.asarray(np.tile(rest, (len(cohort.places), 1)), jnp.int32)
      shard = shard._replace(held=held)
    shards.append(with_order(method, shard, plans[-1]))
  return Sandbox(backbone, method, fleet, tuple(plans), tuple(shards))


def with_order(method: Method, shard: Shard, plan: BatchPlan) -> Shard:
  """Adds a cyclic service order and client groups, if the method uses them."""
  return client_order.with_service_order(
    method, shard, plan, order="cyclic", turn=1, rounds=ROUNDS, seed=0
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
