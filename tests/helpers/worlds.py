"""The clients of the tests: small networks, data, rounds, any method.

A method is played on `splitjax.simulation.sandbox` (`world`), divided among
devices or served in an order where a test asks for it. NumPy's loops take
`population`, whose networks have four different widths and no parameter at
zero, so that swapped blocks, forgotten biases and mispriced messages cannot go
unnoticed.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from splitjax import data, models, simulation, trees, wire
from splitjax.engine import round, visit
from splitjax.engine.faults import FaultTable, Struck
from splitjax.engine.schedules import draw, plan_of
from splitjax.engine.visit import ClientRound
from splitjax.fleet import Cohort, Fleet, orders
from splitjax.fleet.fleets import divide
from splitjax.methods import METHODS
from splitjax.methods.method import Method
from splitjax.methods.optimizer import Optimizer
from splitjax.models import Backbone, DenseBlock, Style, toy
from splitjax.parameters import pytree
from splitjax.simulation import Simulation, sandbox
from splitjax.simulation.sandbox import SIZES
from splitjax.types import (
  NO_BLOCKS,
  Batch,
  Client,
  Half,
  Metrics,
  Net,
  Server,
  Shard,
  State,
)

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
  rng = np.random.default_rng([seed, 0])

  def draw(path, leaf):
    noise = rng.uniform(-0.2, 0.2, leaf.shape)
    kind = path[-1].key
    if kind == "kernel":
      noise += rng.normal(size=leaf.shape) * np.sqrt(2 / leaf.shape[0])
    return noise + (kind in ("scale", "var"))

  return jax.tree_util.tree_map_with_path(draw, models.shapes(net))


def full(net: Backbone, seed: int = 0) -> Net:
  """The same in jax's arrays."""
  return jax.tree.map(jnp.asarray, fresh(net, seed))


def whole(net: Backbone, seed: int = 0) -> Net:
  """A random network without its exits, as a client may hold it."""
  return models.prefix(net, full(net, seed), net.length)


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
  parameters = full(net, seed)
  theta = models.suffix(net, parameters, net.cuts[0])
  return (
    optimizer.start(models.prefix(net, parameters, depth)),
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
  mean, std = data.mean_and_std(image)
  rows = np.asarray(rows)
  x = (image[rows].reshape(len(rows), -1) - mean[0]) / std[0]
  return x, label[rows]


def samples(net: Backbone, rows: Sequence[int], held: Sequence[int] = ()):
  """Samples of a client with these rows of the stock, in batches of 4.

  It holds the rows `held` back to validate on; -1 is padding.
  """
  made = population(net, (4,), (tuple(rows),))
  (shard,), (plan,) = made.shards, made.plans
  validation = jnp.asarray(held, jnp.int32)
  shard = one_shard(shard, 0)._replace(validation=validation)
  return data.Samples(shard, plan)


def parts_of(sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
  """Disjoint rows for clients of these sizes."""
  ends = np.cumsum(sizes)
  rows = np.random.default_rng(2).permutation(STOCK)[: ends[-1]]
  return tuple(tuple(part.tolist()) for part in np.split(rows, ends[:-1]))


def population(
  net: Backbone,
  depths: tuple[int, ...],
  parts: tuple[tuple[int, ...], ...],
  *,
  participants: int | None = None,
  epochs: int = 1,
) -> Simulation:
  """Clients of these depths with these rows of the stock, for any method."""
  cohorts = tuple(
    Cohort(depth, tuple(n for n, k in enumerate(depths) if k == depth))
    for depth in sorted(set(depths))
  )
  count = len(depths)
  fleet = Fleet(cohorts, (1.0,) * count, participants or count)
  method = METHODS["local"](backbone=net, optimizer=Optimizer(lr=0.1))
  rows = [np.array(part) for part in parts]
  return simulation.simulate(
    method, *stock(), rows, fleet=fleet, batch=4, epochs=epochs
  )


def start(world: Simulation, method: Method) -> State:
  """The state before a population's first round, which may be donated."""
  net, clients = full(world.method.backbone), world.fleet.layout
  state = round.start(method, clients, net, jax.random.key(0))
  return jax.tree.map(jnp.copy, state)


def client(world: Simulation, method: Method, state: State, n: int) -> Net:
  """The network of client n between rounds, on the host."""
  return jax.device_get(method.model(world.client(state, n), state.server))


def one_client(method, plan, client, server, shard, round, key) -> ClientRound:
  """The round of one client, not stacked, with draws from its key alone.

  Its shard has the images and labels of all clients.
  """
  method, on = method.at(round), jnp.bool_(True)
  epochs = [plan_of(stage, plan).epochs for stage in method.stages()]
  common = visit.Common(
    server=server, image=shard.image, label=shard.label, round=round, key=key
  )
  alone = visit.Visit(
    client=client,
    shard=shard._replace(image=(), label=()),
    sampled=on,
    struck=Struck(active=on),
    draws=draw(key, method.views, epochs, len(shard.rows), shard.size),
  )
  return ClientRound(method, plan, common, alone)


def one_shard(shard: Shard, row: int) -> Shard:
  """The shard of the client in this row of a cohort."""
  mine = trees.take(shard._replace(image=(), label=()), row)
  return mine._replace(image=shard.image, label=shard.label)


def client_round(
  world: Simulation,
  method: Method,
  n: int = 0,
  number: int = 0,
  state: State | None = None,
) -> ClientRound:
  """Client n in round `number`, from `state`; None: the first."""
  state = state or start(world, method)
  (cohort,) = [i for i, c in enumerate(world.fleet.cohorts) if n in c.ids]
  row = world.fleet.cohorts[cohort].ids.index(n)
  shard = one_shard(world.shards[cohort], row)
  key = jax.random.fold_in(jax.random.key(3), n)
  return one_client(
    method, world.plans[cohort], world.client(state, n), state.server, shard,
    jnp.int32(number), key,
  )  # fmt: skip


def train(
  world: Simulation, method: Method, count: int = 3, **changes: Any
) -> tuple[State, list[Metrics]]:
  """Rounds of a population; `changes` such as faults."""
  made = world._replace(method=method, **changes)
  return rounds(made, count, start(world, method))


def rounds(
  made: Any, count: int = 1, state: State | None = None
) -> tuple[State, list[Metrics]]:
  """Runs rounds from a state, or from the first; the last, and all metrics."""
  state, metrics = state or made.start(made.method), []
  for _ in range(count):
    state, of_round = made.round(made.method, state)
    metrics.append(jax.device_get(of_round))
  return state, metrics


def assert_close(got, want, tol: float = 1e-10, rtol: float = 0.0) -> None:
  """Compares two pytrees leaf by leaf: |got - want| <= tol + rtol |want|."""
  chex.assert_trees_all_close(got, want, atol=tol, rtol=rtol)


@functools.cache
def world(
  name: str,
  *,
  options: tuple[tuple[str, object], ...] = (),
  outer: tuple[tuple[str, object], ...] = (),
  depths: tuple[int, ...] = (1, 2),
  batch_norm: bool = False,
  participants: int | None = None,
  sizes: tuple[int, ...] = SIZES,
  chunk: int | None = None,
  change: Callable[[Backbone], Backbone] = lambda net: net,
  **plan: Any,
) -> Simulation:
  """A sandbox with the method of that name, cached.

  `options` are of the method and `outer` of the optimiser, as pairs; `depths`
  are the cuts of a toy with one block more, of which a method of one server has
  the first; `plan` is batch, epochs and steps of `sandbox.build`.
  """
  kind, length = METHODS[name], max(depths) + 1
  if getattr(kind, "topology", "parallel") != "parallel":
    depths = depths[:1]
  net = toy(
    sandbox.SHAPE,
    sandbox.CLASSES,
    depths=depths,
    length=length,
    batch_norm=batch_norm,
  )
  optimizer = Optimizer(**{"lr": 0.1, **dict(outer)})
  method = kind(backbone=change(net), optimizer=optimizer, **dict(options))
  fleet = sandbox.fleet_of(
    method, clients=len(sizes), participants=participants
  )
  return sandbox.build(method, chunked(fleet, chunk), sizes, **plan)


def chunked(fleet: Fleet, chunk: int | None, count: int = 1) -> Fleet:
  """The same clients in chunks, divided among so many devices."""
  return divide(fleet, count, [chunk] * len(fleet.cohorts))


class Memory(NamedTuple):
  """What a spy client counts over all rounds; `seen` is [Z], the rest [].

  `seen` is how often each row of the data set was in a batch; `steps` counts
  those that the engine should undo, too.
  """

  seen: jax.Array
  steps: jax.Array
  begun: jax.Array
  finished: jax.Array


@pytree
class Spy(Method):
  """Learns nothing and records the calls of the engine.

  Each image of its data set holds the number of its row (`spied`). Every step
  counts, also on padding; every message costs 1 byte. The server's memory is
  the participants' weighted sum of (1, steps of the round).
  """

  total: int

  def first_client(self, net, size):
    zero = jnp.int32(0)
    return Client(
      net=NO_BLOCKS,
      memory=Memory(
        seen=jnp.zeros(self.total, jnp.int32),
        steps=zero,
        begun=zero,
        finished=zero,
      ),
    )

  def first_server(self, full, part, size):
    return Server(net=NO_BLOCKS, common=NO_BLOCKS, memory=jnp.zeros(2))

  def receive(self, client, server, samples, round, key):
    wire.record("down/model", 1.0)
    memory = client.memory._replace(begun=client.memory.begun + 1)
    return (
      Half(net=NO_BLOCKS, slots={}, memory=memory),
      Half(net=NO_BLOCKS, slots={}, memory=jnp.array([1.0, 0.0])),
      (),
    )

  def step(self, client, server, context, batches, key):
    wire.record("up/prefix", 1.0)
    old = client.memory
    seen = old.seen
    for batch in batches:
      row = batch.image[:, 0, 0, :] @ jnp.array([1.0, 256.0])
      row = jnp.round(row).astype(jnp.int32)
      seen = seen.at[row].add(batch.real)
    memory = old._replace(seen=seen, steps=old.steps + 1)
    server = server._replace(memory=server.memory + jnp.array([0.0, 1.0]))
    return client._replace(memory=memory), server, {"one": jnp.ones(())}

  def send(self, client, server, context, samples, weight, key):
    wire.record("up/model", 1.0)
    memory = client.memory._replace(finished=client.memory.finished + 1)
    shares = {"memory": weight * server.memory}
    return Client(net=NO_BLOCKS, memory=memory), shares

  def merge(self, server, shares, clients, counted):
    return server._replace(memory=shares["memory"]), clients


def spied(fleet: Fleet, sizes=SIZES, **plan: Any) -> Simulation:
  """A sandbox of spies; each image is two bytes, the number of its row."""
  total = sum(sizes) + 5
  number = np.arange(total)
  image = np.stack([number % 256, number // 256], -1).astype(np.uint8)
  image = np.broadcast_to(image[:, None, None], (total, 1, 1, 2))
  depths = tuple(cohort.depth for cohort in fleet.cohorts)
  net = toy((1, 1, 2), sandbox.CLASSES, depths=depths, length=max(depths) + 1)
  spy = Spy(backbone=net, optimizer=Optimizer(lr=0.1), total=total)
  made = sandbox.build(spy, fleet, sizes, image=image, **plan)
  plain = tuple(p._replace(mean=(0.0, 0.0), std=(1.0, 1.0)) for p in made.plans)
  return made._replace(plans=plain)


def of_kind(made: Simulation, kind: type[Method], **fields: Any) -> Simulation:
  """The same world with a method of another class."""
  plain = made.method
  method = kind(backbone=plain.backbone, optimizer=plain.optimizer, **fields)
  return made._replace(method=method)


def spoilt(kind: type[Method], parts: dict[int, str]) -> type[Method]:
  """The method, in which a part of some clients becomes not finite.

  `parts` is client number -> what its steps make so: "client", "server",
  "slots" (the server's) or "loss". If the field `on` is 0 it is the same
  program without that.
  """

  @pytree
  class Spoilt(kind):
    on: float = 1.0

    def bad(self, context, part):
      """0, or what is not finite: NaN of odd clients, infinity of others."""
      number, _ = context
      hit = [number == n for n, what in parts.items() if what == part]
      value = jnp.where(number % 2, jnp.nan, -jnp.inf)
      return jnp.where(sum(hit, False) & (self.on > 0), value, 0.0)

    def receive(self, client, server, samples, round, key):
      *halves, context = super().receive(client, server, samples, round, key)
      return *halves, (samples.shard.number, context)

    def lend(self, server_half, context):
      return super().lend(server_half, context[1])

    def take_back(self, server_half, context, lent):
      return super().take_back(server_half, context[1], lent)

    def step(self, half, copy, context, batches, key):
      half, copy, losses = super().step(half, copy, context[1], batches, key)

      def added(half, part):
        if part not in parts.values():
          return half
        value = self.bad(context, part)
        params = jax.tree.map(lambda x: x + value, half.net.params)
        return half._replace(net=half.net._replace(params=params))

      losses = {k: x + self.bad(context, "loss") for k, x in losses.items()}
      if "slots" in parts.values():
        value = self.bad(context, "slots")
        slots = jax.tree.map(lambda x: x + value, copy.slots)
        copy = copy._replace(slots=slots)
      return added(half, "client"), added(copy, "server"), losses

    def send(self, half, copy, context, samples, weight, key):
      return super().send(half, copy, context[1], samples, weight, key)

  return Spoilt


def by_number(made: Simulation, state: Any) -> list:
  """What clients keep, on the host, in the order of their numbers."""
  return _in_order(made.fleet, state.clients)


def networks(made: Simulation, state: Any) -> list:
  """The networks that clients start a round with, in the same order."""
  return _in_order(made.fleet, made.networks(made.method, state))


def _in_order(fleet: Fleet, stacked: Any) -> list:
  out = {}
  for cohort, rows in zip(fleet.cohorts, jax.device_get(stacked), strict=True):
    for place, number in enumerate(cohort.ids):
      out[number] = trees.take(rows, place)
  return [out[number] for number in sorted(out)]


def planned(made: Simulation, **tables) -> Simulation:
  """The same clients with faults: fields of a FaultTable, [N, R]."""
  faults = FaultTable(**{k: np.asarray(x) for k, x in tables.items()})
  return made._replace(faults=faults)


class Outcome(NamedTuple):
  """The results of rounds, on the host; metrics are of the last round."""

  clients: list
  networks: list
  server: Any
  metrics: Any


def play(made: Any, count: int = 2) -> Outcome:
  """Runs `count` rounds of a sandbox, or of what else has its methods."""
  state, metrics = rounds(made, count)
  return Outcome(
    clients=by_number(made, state),
    networks=networks(made, state),
    server=jax.device_get(state.server.net),
    metrics=metrics[-1],
  )


def distance(a: Any, b: Any) -> float:
  """The largest difference between two pytrees."""
  gaps = jax.tree.map(
    lambda x, y: np.abs(np.asarray(x, float) - np.asarray(y, float)).max(), a, b
  )
  return max([0.0, *map(float, jax.tree.leaves(gaps))])


def same_bits(a: Any, b: Any) -> bool:
  """Whether two pytrees of arrays are equal in every bit."""
  pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
  return all(
    np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in pairs
  )


QUEUE = 10, 6, 7, 4
"""Samples of clients that visit one server."""


def ordered(name, **options):
  """Four clients of depth 2 that are served in cycles, a step a turn."""
  return world(name, depths=(2,), sizes=QUEUE, **options)


def served(made, order):
  """The same clients, served in this order [Q] in every round."""
  (shard,) = made.shards
  taken = np.asarray(shard.service_order[:, 0]) >= 0
  table = np.full(shard.service_order.shape, orders.NO_TURN, np.int32)
  for client, steps in enumerate(taken):
    positions = np.flatnonzero(np.asarray(order) == client)
    table[client, :, steps] = positions[:, None]
  shard = shard._replace(service_order=jnp.asarray(table))
  return made._replace(shards=(shard,))
