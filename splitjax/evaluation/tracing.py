"""What a method sends and what its server holds, found without training."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from splitjax import trees, wire
from splitjax.data.feed import Samples
from splitjax.engine import devices, round
from splitjax.engine.loops import one_server
from splitjax.evaluation.subject import Subject
from splitjax.methods.method import Method
from splitjax.models import sizes
from splitjax.parameters import pytree
from splitjax.types import Half, Tree
from splitjax.wire import Ledger


def messages_of_steps(subject: Subject) -> list[dict[str, int]]:
  """Counts the messages of a step of each stage: name -> how often it is sent.

  The client that takes the step has the deepest cut.
  """
  method = subject.method
  counts = []
  for stage in method.stages():

    def step(state, samples, half, server, context, *, stage=stage):
      rows, real = samples.in_order()
      batch = samples.for_draws(rows[0], real[0], state.key)
      client = half, context, (batch,) * method.views, state.key
      if method.topology == "merged":  # takes all clients at once
        client = trees.repeat(client, 1)
      half, context, *rest_of_step = client
      lent = method.lend(server, context)
      return stage.step(half, lent, context, *rest_of_step)

    with wire.listening() as heard:
      if not stage.once:
        _traced(subject, -1, step)
    counts.append({name: len(messages) for name, messages in heard.items()})
  return counts


def bytes_of_round(subject: Subject, key: Array) -> Ledger:
  """Returns the ledger of a run's first round without faults.

  `key` is that of the run, State.key. No training is compiled: the steps send
  their messages and change nothing.
  """
  method = subject.method
  layout = subject.fleet.layout
  mesh = subject.task.mesh
  kind: type[Method] = type(method)

  class Idle(kind):  # type: ignore[valid-type, misc]
    def stages(self):
      return tuple(
        stage._replace(step=functools.partial(_idle_step, stage.step))
        for stage in super().stages()
      )

  @jax.jit
  def sent(method, full, shards):
    state = devices.laid_out(round.start(method, layout, full, key), mesh)
    how = {"layout": layout, "plans": subject.plans, "mesh": mesh}
    return round.run_round(method, state, shards, **how)[1].wire

  fields = {f.name: getattr(method, f.name) for f in dataclasses.fields(kind)}
  # The ledger depends on shapes alone, so a network of zeros is enough.
  full = trees.zeros(sizes.shapes(subject.backbone))
  return sent(pytree(Idle)(**fields), full, subject.shards)


def _idle_step(
  step: Callable[..., Any], client: Half, server: Half, *rest_of_step: Any
) -> Any:
  losses = step(client, server, *rest_of_step)[2]
  return client, server, trees.zeros(losses)


def server_bytes(subject: Subject) -> int:
  """Counts the bytes of parameters that the simulated server holds in a round.

  One server of all clients holds one half. Otherwise it holds, for each
  participant, a copy of the blocks behind the shallowest cut, and once the
  clients' blocks if it has them too (SuperSFL). To this comes the method's own
  state, such as the heads of groups (Hydra, Section 4), but no mean that
  clients start from, no activation and no slot of an optimiser.
  """
  method = subject.method
  net = subject.backbone
  full = sizes.shapes(net)
  server, copy = _traced(
    subject, 0, lambda state, _samples, _half, server, _: (state.server, server)
  )
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


def _traced(
  subject: Subject, cohort: int, function: Callable[..., Tree]
) -> Any:
  """Traces a function where the first client of a cohort begins its round.

  It gets the state, the client's samples, and what `Method.receive` returns.
  """
  method = subject.method

  def begin(full, shards):
    key = jax.random.key(0)
    state = round.start(method, subject.fleet.layout, full, key)
    of_cohort = shards[cohort]
    none: Any = ()
    first = trees.take(of_cohort._replace(image=none, label=none), 0)
    shard = first._replace(image=of_cohort.image, label=of_cohort.label)
    samples = Samples(shard=shard, plan=subject.plans[cohort])
    client = trees.take(state.clients[cohort], 0)
    received = method.receive(client, state.server, samples, state.round, key)
    return function(state, samples, *received)

  return jax.eval_shape(begin, sizes.shapes(subject.backbone), subject.shards)
