"""One client's round, unbatched: its local steps are a scan."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from splitjax import faults, trees, wire
from splitjax.data.feed import Plan, Samples
from splitjax.faults import FINE, Fate
from splitjax.types import Array, Half, Ledger, Method, Shard

EPOCH = 1 << 20
"""Numbers set aside for the steps of one epoch, in a client's keys."""


def client_round(
  method: Method,
  plan: Plan,
  client: Half,
  server: Half,
  shard: Shard,
  round: Array,
  key: Array,
  fate: Fate = FINE,
) -> tuple[Half, Half, dict[str, Array], Ledger, dict[str, Array]]:
  """One client, one round, unbatched.

  Args:
    method: what it does.
    plan: how it walks through its data.
    client: its half.
    server: its copy of the server.
    shard: its data.
    round: [] int32.
    key: [] PRNG key, the client's own in this round.
    fate: what befalls it.

  Returns:
    Both halves, losses averaged over its local steps, its ledger; and, where
    the server may be down, loss name -> [] float32, in how many steps it had
    that loss.
  """
  samples = Samples(shard, plan)
  first, shuffle, walk, last = jax.random.split(key, 4)
  rows, real = samples.visits(shuffle, method.views)
  if fate.share is not None:
    real = faults.shortened(real, fate.share)
  step = step_for(method, fate.down)
  looks = [jax.random.fold_in(shuffle, EPOCH + v) for v in range(method.views)]
  client, server, down = method.begin(client, server, samples, round, first)

  def tick(pair, inputs):
    t, row, real = inputs
    batches = tuple(
      samples.batch(row[v], real, jax.random.fold_in(looks[v], t))
      for v in range(method.views)
    )
    *new, told = step(*pair, batches, jax.random.fold_in(walk, t))
    if plan.equal and fate.share is None:
      return tuple(new), told
    # A short client's extra steps change nothing and cost nothing.
    on = real.any()
    kept = trees.where(on, tuple(new), pair)
    return kept, wire.weigh(told, on.astype(jnp.float32))

  # Numbered by epoch and step in it: how long the cohort's largest client
  # takes must not change what a short one draws in its second epoch.
  steps = (
    jnp.arange(plan.epochs)[:, None] * EPOCH + jnp.arange(plan.steps)
  ).reshape(-1)
  pair, told = jax.lax.scan(tick, (client, server), (steps, rows, real))
  losses, ledger, had = trees.total(told)
  taken = jnp.maximum(real.any(axis=1).sum(), 1)
  losses = jax.tree.map(lambda x: x / taken, losses)
  client, server, up = method.finish(*pair, samples, last)
  return client, server, losses, wire.merge(down, ledger, up), had


def step_for(method: Method, down: Array | None) -> Callable:
  """A method's local step, which may have to do without the server.

  Args:
    method: has `step`, and `alone` where it can do without.
    down: [] bool, whether the server cannot be reached; None if it always can.

  Returns:
    (client, server, batches, key) -> (client, server, (losses, ledger, had));
    had: loss name -> 1 if the step had that loss, 0 if not; {} if it always
    has.
  """

  def step(client, server, batches, key):
    def together():
      *new, losses, ledger = method.step(client, server, batches, key)
      return *new, (losses, ledger, dict.fromkeys(losses, jnp.float32(1)))

    alone = method.alone
    if down is None or alone is None:
      *new, (losses, ledger, _) = together()
      return *new, (losses, ledger, {})
    blank = trees.zeros(jax.eval_shape(together)[2])

    def apart():
      new, *own = alone(client, batches, key)
      own.append(dict.fromkeys(own[0], jnp.float32(1)))
      told = tuple({**a, **b} for a, b in zip(blank, own, strict=True))
      return new, server, told

    return jax.lax.cond(down, apart, together)

  return step
