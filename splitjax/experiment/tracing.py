"""What a method sends in a step, and what its server holds, found by tracing.

Nothing is computed.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.data.feed import Samples
from splitjax.engine import round
from splitjax.engine.loops import one_server
from splitjax.evaluation.subject import Subject
from splitjax.models import sizes
from splitjax.types import Half, Net, Shard, State, Tree


class Start(NamedTuple):
  """A state, and the round of one client that begins from it."""

  state: State
  samples: Samples
  client: Half
  server: Half
  context: Tree


def start_of(
  subject: Subject, cohort: int, full: Net, shards: tuple[Shard, ...]
) -> Start:
  """Starts a round of the first client of a cohort, inside of a trace."""
  method = subject.method
  key = jax.random.key(0)
  state = round.start(method, subject.fleet.layout, full, key)
  shared: Any = ()
  shard = trees.take(shards[cohort]._replace(image=shared, label=shared), 0)
  image, label, *_ = shards[cohort]
  shard = shard._replace(image=image, label=label)
  samples = Samples(shard=shard, plan=subject.plans[cohort])
  client = trees.take(state.clients[cohort], 0)
  half, copy, context = method.receive(
    client, state.server, samples, state.round, key
  )
  return Start(
    state=state, samples=samples, client=half, server=copy, context=context
  )


def of_steps(subject: Subject) -> tuple[dict[str, int], ...]:
  """Counts the messages of a step of each stage: name -> how often it is sent.

  The client that takes the step has the deepest cut.
  """
  method = subject.method
  full = sizes.shapes(subject.backbone)
  counts = []
  for stage in method.stages():

    def step(*arguments, stage=stage):
      start = start_of(subject, -1, *arguments)
      rows, real = start.samples.in_order()
      batch = start.samples.for_draws(rows[0], real[0], start.state.key)
      batches = (batch,) * method.views
      client = start.client, start.context, batches, start.state.key
      if method.topology == "merged":  # takes all clients at once
        client = trees.repeat(client, 1)
      half, context, *rest_of_step = client
      lent = method.lend(start.server, context)
      return stage.step(half, lent, context, *rest_of_step)

    with wire.listening() as heard:
      if not stage.once:
        jax.eval_shape(step, full, subject.shards)
    counts.append({name: len(messages) for name, messages in heard.items()})
  return tuple(counts)


def at_server(subject: Subject) -> int:
  """Counts the bytes of parameters that the simulated server holds in a round.

  One server of all clients holds one half. Otherwise it holds, for each
  participant, a copy of the blocks behind the shallowest cut, and once the
  clients' blocks if it has them too (SuperSFL). To this comes the method's own
  state, such as the heads of groups (Hydra, Section 4), but no mean that
  clients start from, no activation and no slot of an optimiser.
  """

  def begin(*arguments):
    start = start_of(subject, 0, *arguments)
    return start.state.server, start.server

  method = subject.method
  net = subject.backbone
  full = sizes.shapes(net)
  server, copy = jax.eval_shape(begin, full, subject.shards)
  memory = copy.memory if jax.tree.leaves(copy.memory) else server.memory
  if isinstance(memory, Half):
    memory = memory.net.params
  state = [
    leaf
    for leaf in jax.tree.leaves(memory)
    if jnp.issubdtype(leaf.dtype, jnp.floating)
  ]
  if one_server(method):
    return trees.num_bytes((copy.net.params, state))
  if not method.needs_server:
    return trees.num_bytes(state)
  behind = [full.params[name] for name in (*net.names(net.cuts[0]), "head")]
  copies = subject.fleet.participants * trees.num_bytes(behind)
  if method.uncut:  # the client's network stands for both parts
    return copies
  once = server.net.params if net.names()[0] in copy.net.params else ()
  return copies + trees.num_bytes((once, state))
