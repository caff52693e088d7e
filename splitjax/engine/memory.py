"""Shapes of what a round holds, and the bytes of the server's parameters."""

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.data.feed import BatchPlan, Samples
from splitjax.engine.fleets import Fleet
from splitjax.engine.topologies import topology_of
from splitjax.models import shapes
from splitjax.models.backbones import Backbone
from splitjax.types import Half, Method, Shard, State, Sums


def round_shapes(
  method: Method, net: Backbone, fleet: Fleet, plan: BatchPlan, cohort: int = 0
) -> tuple[State, Half, Half, Sums]:
  """Traces the shapes in a round; nothing is computed.

  Returns:
    Shapes of the state; of the client half and the server half after `begin`,
    for one client of the cohort; and of this client's contribution to the sums.
  """

  def start(full):
    key, shard = jax.random.key(0), blank_shard(method, net, plan)
    state = method.init(key, fleet, full)
    client = trees.take(state.clients[cohort], 0)
    samples = Samples(shard, plan)
    pair = method.begin(client, state.server, samples, state.round, key)[:2]
    return state, *pair, method.aggregation.contribute(*pair, jnp.ones(()))

  return jax.eval_shape(start, shapes.network(net))


def blank_shard(method: Method, net: Backbone, plan: BatchPlan) -> Shard:
  """Makes a shard for tracing, with a placeholder input but no samples."""
  rows = jnp.zeros(plan.steps * plan.batch, jnp.int32)
  image = jnp.zeros((1, *net.shape), jnp.uint8)
  label, one = jnp.zeros(1, jnp.int32), jnp.int32(0)
  counts = jnp.zeros(net.classes, jnp.int32)
  held = rows if method.traits.validates else ()
  return Shard(image, label, rows, one, counts, one, held=held)


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
  state, _, server, _ = round_shapes(method, net, fleet, plan)
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
