"""What a method sends and holds in a round, found by tracing.

Nothing is computed.
"""

from collections.abc import Callable, Set
from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.data import feed, inputs
from splitjax.data.feed import BatchPlan, Samples
from splitjax.engine.fleets import Fleet
from splitjax.engine.sequential import for_group
from splitjax.engine.topologies import topology_of
from splitjax.models import shapes
from splitjax.models.backbones import Backbone
from splitjax.types import Batch, Half, Method, Shard, State


class Sent(NamedTuple):
  """The messages of a client's steps.

  Attributes:
    counts: for each stage, message name -> how often a step sends it, recorded
      by `wire.listening`.
    priced: names of all messages in the steps' ledgers. The content of some of
      them does not pass through `wire.send`; only their bytes are known.
  """

  counts: tuple[dict[str, int], ...]
  priced: Set[str]


def of_steps(method: Method, net: Backbone, fleet: Fleet) -> Sent:
  """Traces a step of each stage of a method, with a batch of two samples.

  The client that takes the step is from the last cohort, which has the deepest
  cut.
  """
  counts, priced = [], set[str]()
  for stage in method.stages:
    with wire.listening() as heard:
      if stage.step is not None:
        priced |= _ledger(method, stage.step, net, fleet)
    counts.append({name: len(every) for name, every in heard.items()})
  return Sent(tuple(counts), priced)


def _ledger(
  method: Method, take: Callable, net: Backbone, fleet: Fleet
) -> Set[str]:
  """Traces the step `take` and returns the names in its ledger."""
  plan = feed.plan([2], 2, 1, *inputs.unscaled(net.vocabulary))
  last = len(fleet.cohorts) - 1
  _, client, server = _round_shapes(method, net, fleet, plan, last)

  def step(client, server):
    key, real = jax.random.key(0), jnp.ones(2, bool)
    image = jnp.zeros((2, *net.shape), net.inputs(2).dtype)
    batch = Batch(image, jnp.zeros(2, jnp.int32), real, key)
    batches = (batch,) * method.traits.views
    server = for_group(method, server, 0)
    if topology_of(method.traits).all_at_once:
      one = jax.tree.map(lambda x: x[None], (client, batches, key))
      return take(one[0], server, *one[1:])[3]
    return take(client, server, batches, key)[3]

  return jax.eval_shape(step, client, server).keys()


def at_server(
  method: Method, net: Backbone, fleet: Fleet, plan: BatchPlan
) -> int:
  """Counts the bytes of parameters that the simulated server holds in a round.

  If clients share one server, it holds one server half. Otherwise it holds, for
  each participant, a copy of the blocks behind the shallowest cut. It also
  holds the method's own state, `Half.memory`, such as the heads of groups
  (Hydra, Section 4). A server that has the clients' blocks too (SuperSFL) holds
  its whole network once more. Activations and optimiser slots are not counted.
  `plan` is the plan of the first cohort.
  """
  state, _, server = _round_shapes(method, net, fleet, plan)
  memory, params = server.memory, server.segment.params
  heads = memory.segment.params if isinstance(memory, Half) else memory
  if topology_of(method.traits).one_server:
    return trees.num_bytes(params) + trees.num_bytes(heads)

  if not params and method.cuts is None:
    return trees.num_bytes(heads)
  every, behind = shapes.network(net).params, (*net.names(net.cuts[0]), "head")
  size = sum(trees.num_bytes(every[name]) for name in behind)
  copies = fleet.participants * size
  if method.cuts is not None:  # the client's network stands for both parts
    return copies
  once = state.server.segment.params if net.names()[0] in params else ()
  return copies + trees.num_bytes((once, heads))


def _round_shapes(
  method: Method, net: Backbone, fleet: Fleet, plan: BatchPlan, cohort: int = 0
) -> tuple[State, Half, Half]:
  """Traces the shapes in a round; nothing is computed.

  Returns:
    Shapes of the state; and of the client half and the server half after
    `begin`, for one client of the cohort.
  """

  def start(full):
    key, shard = jax.random.key(0), _blank_shard(method, net, plan)
    state = method.init(key, fleet, full)
    client = trees.take(state.clients[cohort], 0)
    samples = Samples(shard, plan)
    begun = method.begin(client, state.server, samples, state.round, key)
    return state, *begun[:2]

  return jax.eval_shape(start, shapes.network(net))


def _blank_shard(method: Method, net: Backbone, plan: BatchPlan) -> Shard:
  """Makes a shard for tracing, with a placeholder input but no samples."""
  rows = jnp.zeros(plan.steps * plan.batch, jnp.int32)
  image = jnp.zeros((1, *net.shape), jnp.uint8)
  label, one = jnp.zeros(1, jnp.int32), jnp.int32(0)
  counts = jnp.zeros(net.classes, jnp.int32)
  held = rows if method.traits.validates else ()
  return Shard(image, label, rows, one, counts, one, held=held)
