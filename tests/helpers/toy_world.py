"""Small worlds for the correctness tests: a network, clients, data, rounds.

The blocks have four different widths and no parameter starts at zero, so that
swapped blocks, forgotten biases and mispriced messages cannot go unnoticed.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from splitjax import data, models, trees
from splitjax.engine import layout, round, visit
from splitjax.engine.faults import NO_FAULTS, strike
from splitjax.engine.visit import ClientRound
from splitjax.fleet import Cohort, Fleet
from splitjax.methods.method import Method
from splitjax.methods.optimizer import Optimizer
from splitjax.models import Backbone, DenseBlock, Style, toy
from splitjax.types import Batch, Client, Half, Metrics, Net, Shard, State

SHAPE, CLASSES, WIDTHS = (4, 4, 1), 3, (5, 7, 6, 8)
STOCK = 64
"""Images that all clients' data are taken from."""


@functools.cache
def network(
  depths: tuple[int, ...] = (1, 2, 3), batch_norm: bool = False
) -> Backbone:
  """The toy, with a width of its own for every block."""
  net = toy(SHAPE, CLASSES, depths=depths, length=len(WIDTHS))
  how = Style(norm="batch" if batch_norm else None)
  blocks = {
    name: DenseBlock(width, how)
    for name, width in zip(net.blocks, WIDTHS, strict=True)
  }
  return dataclasses.replace(net, blocks=blocks)


def fresh(net: Backbone, seed: int = 0) -> Net:
  """A random network without a zero in it, biases and statistics included.

  Arrays here and in `batch` are NumPy's float64: a test in float64 takes them
  as they are, another one rounds them.
  """
  full = models.shapes(net)
  rng = np.random.default_rng([seed, 0])

  def draw(path, leaf):
    noise = rng.uniform(-0.2, 0.2, leaf.shape)
    kind = path[-1].key
    if kind == "kernel":
      noise += rng.normal(size=leaf.shape) * np.sqrt(2 / leaf.shape[0])
    return noise + (kind in ("scale", "var"))

  return jax.tree_util.tree_map_with_path(draw, full)


def whole(net: Backbone, seed: int = 0) -> Net:
  """A random network without its exits, as a client may hold it."""
  full = jax.tree.map(jnp.asarray, fresh(net, seed))
  return models.prefix(net, full, net.length)


def stack(net: Backbone, count: int) -> Net:
  """So many such networks, leaves [N, ...]."""
  networks = [whole(net, seed) for seed in range(count)]
  return jax.tree.map(lambda *x: jnp.stack(x), *networks)


def flat(tree) -> np.ndarray:
  """All numbers of a pytree in a row."""
  return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def batch(
  seed: int, size: int = 6, real: Sequence[bool] | None = None
) -> Batch:
  """A random batch; its padding is loud, so that a leak of it shows."""
  rng = np.random.default_rng([seed, 1])
  mask = np.ones(size, bool) if real is None else np.array(real)
  image = rng.normal(size=(size, *SHAPE))
  image[~mask] *= 30
  label = rng.integers(0, CLASSES, size).astype(np.int32)
  return Batch(image, label, mask)


def pair(
  net: Backbone, depth: int, optimizer: Optimizer, seed: int = 0
) -> tuple[Half, Half]:
  """A client of this depth and its copy of the server, ready for a step."""
  full = jax.tree.map(jnp.asarray, fresh(net, seed))
  theta = models.suffix(net, full, net.cuts[0])
  return (
    optimizer.start(models.prefix(net, full, depth)),
    optimizer.at_server.start(theta, copied=True),
  )


@functools.cache
def stock() -> tuple[np.ndarray, np.ndarray]:
  """Images [STOCK, 4, 4, 1] uint8 and labels [STOCK] int32."""
  rng = np.random.default_rng(5)
  image = rng.integers(0, 256, (STOCK, *SHAPE)).astype(np.uint8)
  return image, rng.integers(0, CLASSES, STOCK).astype(np.int32)


def standard(rows: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
  """Images of these rows as a network sees them [B, 16] float64, labels."""
  image, label = stock()
  mean, std = data.scale(image)
  rows = np.asarray(rows)
  flat = (image[rows].reshape(len(rows), -1) - mean[0]) / std[0]
  return flat, label[rows]


def samples(net: Backbone, rows: Sequence[int], held: Sequence[int] = ()):
  """Samples of a client with these rows of the stock, in batches of 4.

  It holds the rows `held` back to validate on; -1 is padding.
  """
  image, label = stock()
  counts = np.bincount(label[list(rows)], minlength=CLASSES)
  shard = Shard(
    jnp.asarray(image),
    jnp.asarray(label),
    jnp.asarray(rows, jnp.int32),
    jnp.int32(len(rows)),
    jnp.asarray(counts),
    jnp.int32(0),
    validation=jnp.asarray(held, jnp.int32),
  )
  return data.Samples(shard, world(net, (4,), (tuple(rows),)).plans[0])


class World(NamedTuple):
  """Clients with data.

  Attributes:
    net: the backbone.
    depths: of each client; len(WIDTHS) is a client with the whole network.
    parts: rows of the stock that each client holds.
    fleet: the clients, one cohort for each depth.
    plans: of each cohort.
    shards: of each cohort.
  """

  net: Backbone
  depths: tuple[int, ...]
  parts: tuple[tuple[int, ...], ...]
  fleet: Fleet
  plans: tuple[data.BatchPlan, ...]
  shards: tuple[Shard, ...]

  def where(self, n: int) -> tuple[int, int]:
    """The cohort of client n, and its row there."""
    for number, cohort in enumerate(self.fleet.cohorts):
      if n in cohort.ids:
        return number, cohort.ids.index(n)
    raise KeyError(n)

  def record(self, state: State, n: int) -> Client:
    """What client n keeps, unbatched, on the host."""
    cohort, row = self.where(n)
    return jax.device_get(trees.take(state.clients[cohort], row))

  def client(self, method: Method, state: State, n: int) -> Net:
    """The network of client n between rounds."""
    return method.model(self.record(state, n), jax.device_get(state.server))


def parts_of(sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
  """Disjoint rows for clients of these sizes."""
  ends = np.cumsum(sizes)
  rows = np.random.default_rng(2).permutation(STOCK)[: ends[-1]]
  return tuple(
    tuple(int(i) for i in part) for part in np.split(rows, ends[:-1])
  )


def world(
  net: Backbone,
  depths: tuple[int, ...],
  parts: tuple[tuple[int, ...], ...],
  *,
  batch_size: int = 4,
  epochs: int = 1,
  steps: int | None = None,
  participants: int | None = None,
) -> World:
  """Builds a world.

  Args:
    net: the backbone.
    depths: of each client.
    parts: rows of each client.
    batch_size: of a step.
    epochs: of a round.
    steps: local steps of a round; None: `epochs`.
    participants: of a round; None for all.
  """
  image, label = stock()
  mean, std = data.scale(image)
  cohorts = tuple(
    Cohort(depth, tuple(n for n, own in enumerate(depths) if own == depth))
    for depth in sorted(set(depths))
  )
  plans, shards = [], []
  held = [len(part) for part in parts]
  epochs = data.epochs(epochs, steps, held, batch_size)
  for cohort in cohorts:
    mine = [np.array(parts[n]) for n in cohort.ids]
    sizes = [len(part) for part in mine]
    plan = data.plan(sizes, batch_size, epochs, mean, std, limit=steps)
    plans.append(plan)
    shards.append(
      data.shards(
        jnp.asarray(image), jnp.asarray(label), mine, CLASSES, cohort.ids
      )
    )
  count = len(depths)
  fleet = Fleet(cohorts, (1.0,) * count, participants or count)
  return World(net, depths, parts, fleet, tuple(plans), tuple(shards))


def start(world: World, method: Method, seed: int = 0) -> State:
  """The state before the first round, in buffers that may be donated."""
  full = jax.tree.map(jnp.asarray, fresh(world.net, seed))
  clients = layout.of(world.fleet)
  state = round.start(method, clients, full, jax.random.key(seed))
  return jax.tree.map(jnp.copy, state)


def client_round(
  world: World,
  method: Method,
  n: int = 0,
  number: int = 0,
  state: State | None = None,
) -> ClientRound:
  """Client n in round `number`, from `state`; None: the first."""
  state = start(world, method) if state is None else state
  cohort, row = world.where(n)
  shard, plan = world.shards[cohort], world.plans[cohort]
  common = visit.Common(
    server=state.server,
    image=shard.image,
    label=shard.label,
    round=jnp.int32(number),
    key=jax.random.key(3),
  )
  cohort_of_one = jax.tree.map(
    lambda x: x[row : row + 1],
    (state.clients[cohort], shard._replace(image=(), label=())),
  )
  active = jnp.ones(1, bool)
  client = visit.Visit(
    *cohort_of_one,
    sampled=active,
    struck=strike(NO_FAULTS, method, common.round, jnp.array([n]), active),
  )
  (client,) = visit.with_draws(method, plan, common.key, (client,))
  return ClientRound(method, plan, common, trees.take(client, 0))


def hasty(function, *args):
  """Compiles a function (jitted or not) for these arguments, in haste.

  It will run for milliseconds; LLVM's optimisations would take seconds.
  """
  jitted = function if hasattr(function, "lower") else jax.jit(function)
  return jitted.lower(*args).compile(
    compiler_options={"xla_backend_optimization_level": 0}
  )


def compiled(world: World, method: Method, state: State, **options):
  """The round of this world, (state) -> state, metrics.

  `options` are keywords of `run_round`.
  """
  how = {"layout": layout.of(world.fleet), "plans": world.plans, **options}
  lowered = round.run_round.lower(method, state, world.shards, **how)
  step = lowered.compile(compiler_options={"xla_backend_optimization_level": 0})
  data = {key: options[key] for key in {"faults"} & options.keys()}
  return lambda state: step(method, state, world.shards, **data)


def train(
  world: World, method: Method, count: int = 3, seed: int = 0, **options
) -> tuple[State, list[Metrics]]:
  """Runs `count` compiled rounds; the state after the last, all metrics."""
  state, metrics = start(world, method, seed), []
  step = compiled(world, method, state, **options)
  for _ in range(count):
    state, of_round = step(state)
    metrics.append(of_round)
  return state, metrics


def assert_close(got, want, tol: float = 1e-10, rtol: float = 0.0) -> None:
  """Compares two pytrees leaf by leaf: |got - want| <= tol + rtol |want|."""
  assert jax.tree.structure(got) == jax.tree.structure(want)
  paths = jax.tree_util.tree_leaves_with_path(got)
  for (path, a), b in zip(paths, jax.tree.leaves(want), strict=True):
    np.testing.assert_allclose(
      a, b, rtol, tol, err_msg=jax.tree_util.keystr(path)
    )


def distance(a, b) -> float:
  """Largest difference between two pytrees: how far something did move."""
  gaps = jax.tree.map(lambda x, y: np.abs(np.asarray(x) - y).max(), a, b)
  return max(float(gap) for gap in jax.tree.leaves(gaps))
