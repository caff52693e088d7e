"""The worlds of splitjax.sandbox with any method, and a spy method."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from splitjax import sandbox, trees, wire
from splitjax.engine.loops import one_server
from splitjax.fleet.fleets import Fleet
from splitjax.methods import METHODS
from splitjax.methods.method import Method
from splitjax.methods.optimizer import Optimizer
from splitjax.models.nets import toy
from splitjax.parameters import pytree
from splitjax.sandbox import CLASSES, SHAPE, SIZES, Sandbox
from splitjax.types import NO_BLOCKS, Client, Half, Server


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
  **plan: Any,
) -> Sandbox:
  """A sandbox with the method of that name, cached.

  Args:
    name: in METHODS.
    options: of the method, as pairs.
    outer: options of the optimiser, as pairs.
    depths: cuts in use, of a toy with one block more.
    batch_norm: whether blocks normalise.
    participants: clients per round.
    sizes: samples of each client.
    plan: batch, epochs and steps of `sandbox.build`.
  """
  optimizer = Optimizer(**{"lr": 0.1, **dict(outer)})
  method = None
  while method is None or (one_server(method) and len(depths) > 1):
    depths = depths if method is None else depths[:1]
    length = max(depths) + 1 if method is None else method.backbone.length
    net = toy(
      SHAPE, CLASSES, depths=depths, length=length, batch_norm=batch_norm
    )
    method = METHODS[name](backbone=net, optimizer=optimizer, **dict(options))
  fleet = sandbox.fleet_of(
    method, clients=len(sizes), participants=participants
  )
  return sandbox.build(method, fleet, sizes, **plan)


class Memory(NamedTuple):
  """What a spy client counts over all rounds.

  Attributes:
    seen: [Z] int32, how often each row of the data set was in a batch.
    steps: [] int32, steps, including those that the engine should undo.
    begun: [] int32, begun rounds.
    finished: [] int32, finished rounds.
    drawn: [] uint32, a number drawn from the key of the last step.
  """

  seen: jax.Array
  steps: jax.Array
  begun: jax.Array
  finished: jax.Array
  drawn: jax.Array


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
        drawn=jnp.uint32(0),
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
    drawn = jax.random.bits(key, dtype=jnp.uint32)
    memory = old._replace(seen=seen, steps=old.steps + 1, drawn=drawn)
    server = server._replace(memory=server.memory + jnp.array([0.0, 1.0]))
    return client._replace(memory=memory), server, {"one": jnp.ones(())}

  def send(self, client, server, context, samples, weight, key):
    wire.record("up/model", 1.0)
    memory = client.memory._replace(finished=client.memory.finished + 1)
    shares = {"memory": weight * server.memory}
    return Client(net=NO_BLOCKS, memory=memory), shares

  def merge(self, server, shares, clients, counted):
    return server._replace(memory=shares["memory"]), clients


def spied(fleet: Fleet, sizes=SIZES, **plan: Any) -> Sandbox:
  """A sandbox of spies; each image is two bytes, the number of its row."""
  total = sum(sizes) + 5
  number = np.arange(total)
  image = np.stack([number % 256, number // 256], -1).astype(np.uint8)
  image = np.broadcast_to(image[:, None, None], (total, 1, 1, 2))
  depths = tuple(cohort.depth for cohort in fleet.cohorts)
  net = toy((1, 1, 2), CLASSES, depths=depths, length=max(depths) + 1)
  spy = Spy(backbone=net, optimizer=Optimizer(lr=0.1), total=total)
  made = sandbox.build(spy, fleet, sizes, image=image, **plan)
  plain = tuple(p._replace(mean=(0.0, 0.0), std=(1.0, 1.0)) for p in made.plans)
  return made._replace(plans=plain)


def by_number(made: Sandbox, state: Any) -> list:
  """What clients keep, on the host, in the order of their numbers."""
  return _in_order(made.fleet, state.clients)


def networks(made: Sandbox, state: Any) -> list:
  """The networks that clients start a round with, in the same order."""
  return _in_order(made.fleet, made.networks(state))


def _in_order(fleet: Fleet, stacked: Any) -> list:
  out = {}
  for cohort, rows in zip(fleet.cohorts, jax.device_get(stacked), strict=True):
    for place, number in enumerate(cohort.ids):
      out[number] = trees.take(rows, place)
  return [out[number] for number in sorted(out)]


def assert_close(a, b, atol: float = 0.0) -> None:
  """Equal structure, and leaves equal to within `atol`; keys bit by bit."""
  assert jax.tree.structure(a) == jax.tree.structure(b)
  for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
      x, y = jax.random.key_data(x), jax.random.key_data(y)
    np.testing.assert_allclose(x, y, rtol=0, atol=atol)
