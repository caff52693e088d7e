"""The worlds of splitjax.methods.sandbox with any method, and a spy method."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from tiny import ONE_SERVER

from splitjax import engine, evaluation, trees, wire
from splitjax.engine import Fleet
from splitjax.methods import CLASSES, METHODS, SHAPE, SIZES, Sandbox, build, sgd
from splitjax.models import toy
from splitjax.types import (
  Aggregation,
  Half,
  Method,
  Segment,
  Stage,
  State,
  Sums,
  Traits,
)


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
  batch: int = 4,
  epochs: int = 1,
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
    batch: batch size.
    epochs: local epochs.
  """
  length = max(depths) + 1
  if name in ONE_SERVER:
    depths = depths[:1]
  net = toy(SHAPE, CLASSES, depths=depths, length=length, batch_norm=batch_norm)
  optimizer = sgd(**{"lr": 0.1, **dict(outer)})
  method = METHODS[name](net, optimizer, **dict(options))
  fleet = engine.assign_depths(
    len(sizes),
    net.cuts,
    0,
    participants=participants,
  )
  if method.traits.depth == "full":
    fleet = engine.with_full_depth(fleet, net.length)
  return build(method, net, fleet, sizes, batch=batch, epochs=epochs)


def compiled_round(
  made: Sandbox,
  mesh: Any = None,
) -> Any:
  """The round of a sandbox; all tests of a process share one compilation."""
  how = (
    jnp.result_type(float),
    jax.config.read("jax_disable_most_optimizations"),
  )
  static = made.method, made.plans, made.fleet, mesh
  return _compiled_round(how, *static)


@functools.cache
def _compiled_round(how, method, plans, fleet, mesh):
  del how
  return engine.make_round(method, plans, fleet, mesh=mesh)


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


def spy(total: int, views: int = 1) -> Method:
  """A method that learns nothing and records the calls of the engine.

  Each image of its data set holds the number of its row (`spied`). Every step
  counts, also on padding; every message costs 1 byte. The server's memory is
  the participants' weighted sum of (1, steps of the round).
  """
  zero = jnp.int32(0)
  fresh = Memory(jnp.zeros(total, jnp.int32), zero, zero, zero, jnp.uint32(0))

  def init(key, fleet, full):
    one = Half(Segment({}, {}), (), fresh)
    clients = tuple(trees.repeat(one, len(c.places)) for c in fleet.cohorts)
    server = Half(Segment({}, {}), (), jnp.zeros(2))
    return State(jnp.int32(0), key, clients, server)

  def begin(client, server, samples, round, key):
    memory = client.memory._replace(begun=client.memory.begun + 1)
    server = server._replace(memory=jnp.array([1.0, 0.0]))
    return client._replace(memory=memory), server, wire.price("down/model", 1)

  def step(client, server, batches, key):
    seen, old = client.memory.seen, client.memory
    for batch in batches:
      row = batch.image[:, 0, 0, :] @ jnp.array([1.0, 256.0])
      row = jnp.round(row).astype(jnp.int32)
      seen = seen.at[row].add(batch.real)
    drawn = jax.random.bits(key, dtype=jnp.uint32)
    memory = old._replace(seen=seen, steps=old.steps + 1, drawn=drawn)
    server = server._replace(memory=server.memory + jnp.array([0.0, 1.0]))
    client = client._replace(memory=memory)
    return client, server, {"one": jnp.ones(())}, wire.price("up/prefix", 1)

  def finish(client, server, samples, key):
    memory = client.memory._replace(finished=client.memory.finished + 1)
    return client._replace(memory=memory), server, wire.price("up/model", 1)

  def contribute(client, server, weight):
    return Sums({}, {}, {"memory": weight * server.memory}, {}, {})

  aggregation = Aggregation(
    contribute,
    lambda server, _, active, sums: server._replace(
      memory=sums.server["memory"]
    ),
    lambda clients, active, sums, server: clients,
  )
  return Method(
    init,
    begin,
    (Stage(step),),
    finish,
    aggregation,
    **dict.fromkeys(("personalise", "predict")),
    traits=Traits(views=views),
  )


def with_step(method: Method, step: Callable) -> Method:
  """A method of one stage with another step."""
  (stage,) = method.stages
  return method._replace(stages=(stage._replace(step=step),))


def counted_merges(method: Method, n: int) -> Method:
  """A method whose aggregation may be traced n times at most."""
  rule = method.aggregation
  server = chex.assert_max_traces(rule.server, n=n)
  return method._replace(aggregation=rule._replace(server=server))


def spied(fleet: Fleet, sizes=SIZES, *, views=1, batch=4, epochs=1) -> Sandbox:
  """A sandbox of spies; each image is two bytes, the number of its row."""
  total = sum(sizes) + 5
  number = np.arange(total)
  image = np.stack([number % 256, number // 256], -1).astype(np.uint8)
  image = np.broadcast_to(image[:, None, None], (total, 1, 1, 2))
  net = toy((1, 1, 2), CLASSES)
  made = build(
    spy(total, views),
    net,
    fleet,
    sizes,
    batch=batch,
    epochs=epochs,
    image=image,
  )
  plain = tuple(p._replace(mean=(0.0, 0.0), std=(1.0, 1.0)) for p in made.plans)
  return made._replace(plans=plain)


def numbers(made: Sandbox) -> list:
  """Per cohort [N] int32, the clients' numbers."""
  return [shard.number for shard in made.shards]


def exits(made: Sandbox, state: Any, image: Any, shown: Any, mesh=None) -> list:
  """The Exits of every result row, on the host."""
  parts = made.method, made.plans, made.fleet
  out = []
  for row in made.method.traits.rows:
    clients = state.clients
    if row.personal:
      tune = evaluation.make_personalised(*parts, mesh=mesh)
      clients = tune(state, made.shards)
    run = evaluation.make_evaluate(*parts, mesh=mesh)
    who = tuple(numbers(made))
    out.append(run(clients, state.server, who, image, shown))
  return jax.device_get(out)


def by_number(fleet: Fleet, clients: tuple[Half, ...]) -> list:
  """Clients' halves on the host, in the order of their numbers."""
  out, clients = {}, jax.device_get(clients)
  for cohort, halves in zip(fleet.cohorts, clients, strict=True):
    for place, number in enumerate(cohort.ids):
      out[number] = jax.tree.map(lambda x, i=place: x[i], halves)
  return [out[number] for number in sorted(out)]


def assert_close(a, b, atol: float = 0.0) -> None:
  """Equal structure, and leaves equal to within `atol`; keys bit by bit."""
  assert jax.tree.structure(a) == jax.tree.structure(b)
  for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
      x, y = jax.random.key_data(x), jax.random.key_data(y)
    np.testing.assert_allclose(x, y, rtol=0, atol=atol)
