"""What a method sends in a step, and what its server holds, found by tracing.

Nothing is computed.
"""

from collections.abc import Set
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.data import feed
from splitjax.data.dataset import unscaled
from splitjax.data.feed import BatchPlan, Samples
from splitjax.engine import round
from splitjax.engine.layout import Layout
from splitjax.engine.loops import one_server
from splitjax.methods.method import Method
from splitjax.models import sizes
from splitjax.types import Batch, Client, Half, Shard, State, Tree


class Sent(NamedTuple):
  """The messages of a client's steps.

  Attributes:
    counts: for each stage, message name -> how often a step sends it, recorded
      by `wire.listening`.
    priced: names of all messages in the steps' ledgers. Of some of them only
      the bytes are known (`wire.record`).
  """

  counts: tuple[dict[str, int], ...]
  priced: Set[str]


class Start(NamedTuple):
  """The shapes of a state, and of a client's round that begins from it."""

  state: State
  client: Half
  server: Half
  context: Tree


def of_steps(method: Method, layout: Layout) -> Sent:
  """Traces a step of each stage, with a batch of two samples.

  The client that takes the step has the deepest cut.
  """
  net = method.backbone
  counts = []
  priced = set[str]()
  plan = feed.plan([2], 2, 1, *unscaled(net.vocabulary))
  start = start_of(method, layout, plan, len(layout.cohorts) - 1)
  batch = Batch(
    image=jnp.zeros((2, *net.shape), net.inputs(2).dtype),
    label=jnp.zeros(2, jnp.int32),
    real=jnp.ones(2, bool),
    key=jax.random.key(0),
  )
  client: Any = start.client, start.context, (batch,) * method.views, batch.key
  if method.topology == "merged":  # takes all clients at once
    client = jax.eval_shape(lambda tree: trees.repeat(tree, 1), client)

  for stage in method.stages():

    def step(client, server, stage=stage):
      half, context, batches, key = client
      with wire.ledger() as sent:
        lent = method.lend(server, context)
        stage.step(half, lent, context, batches, key)
      return sent

    with wire.listening() as heard:
      if not stage.once:
        priced |= jax.eval_shape(step, client, start.server).keys()
    counts.append({name: len(rows) for name, rows in heard.items()})
  return Sent(counts=tuple(counts), priced=priced)


def at_server(method: Method, layout: Layout, plan: BatchPlan) -> int:
  """Counts the bytes of parameters that the simulated server holds in a round.

  If clients share one server, it holds one server half. Otherwise it holds, for
  each participant, a copy of the blocks behind the shallowest cut. It also
  holds the numbers of the method's own state, such as the heads of groups
  (Hydra, Section 4). A server that has the clients' blocks too (SuperSFL) holds
  its whole network once more. The mean that clients start from, activations and
  optimiser slots are not counted. `plan` is the plan of the first cohort.
  """
  start = start_of(method, layout, plan)
  net = method.backbone
  memory = start.server.memory
  params = start.server.net.params
  if not jax.tree.leaves(memory):
    memory = start.state.server.memory
  if isinstance(memory, Half):
    memory = memory.net.params
  heads = [
    leaf
    for leaf in jax.tree.leaves(memory)
    if jnp.issubdtype(leaf.dtype, jnp.floating)
  ]
  if one_server(method):
    return trees.num_bytes((params, heads))
  if not method.needs_server:
    return trees.num_bytes(heads)
  full = sizes.shapes(net).params
  behind = [full[name] for name in (*net.names(net.cuts[0]), "head")]
  copies = layout.participants * trees.num_bytes(behind)
  if method.uncut:  # the client's network stands for both parts
    return copies
  once = start.state.server.net.params if net.names()[0] in params else ()
  return copies + trees.num_bytes((once, heads))


def start_of(
  method: Method, layout: Layout, plan: BatchPlan, cohort: int = 0
) -> Start:
  """Traces the start of a round for one client of a cohort."""
  net = method.backbone
  rows = jnp.zeros(plan.steps * plan.batch, jnp.int32)
  shard = Shard(
    image=jnp.zeros((1, *net.shape), jnp.uint8),
    label=jnp.zeros(1, jnp.int32),
    rows=rows,
    size=jnp.int32(0),
    counts=jnp.zeros(net.classes, jnp.int32),
    number=jnp.int32(0),
    group=jnp.int32(0),
    validation=rows if method.validates else (),
  )

  def begin(full):
    key = jax.random.key(0)
    state = round.start(method, layout, full, key)
    client: Client = trees.take(state.clients[cohort], 0)
    samples = Samples(shard=shard, plan=plan)
    half, copy, context = method.receive(
      client, state.server, samples, state.round, key
    )
    return Start(state=state, client=half, server=copy, context=context)

  return jax.eval_shape(begin, sizes.shapes(net))
