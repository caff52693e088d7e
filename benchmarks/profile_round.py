"""Where a HARMONY step's time goes, part by part.

  python -m benchmarks.profile_round [--batch=50] [--clients=6] [--repeats=5]

`cnn8`, cut behind block 3 of 2, 3 and 4, clients with weights of their own. A
part is a program of its own with the shapes of a step, run several times in a
scan; the whole step is measured as well, all in turn, and what the parts do not
add up to is the rest. The last line is one JSON object.
"""

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import setting as settings
from splitjax import trees
from splitjax.data.feed import Samples
from splitjax.engine import draws
from splitjax.methods import optimizer, split_pass
from splitjax.methods.harmony import adapt
from splitjax.methods.harmony_server import Options, early_view, server_side
from splitjax.models import backbone as bb
from splitjax.models import shapes
from splitjax.types import Batch, Half, Shard
from splitjax.wire import Wire

STEPS = 2
"""Runs of a part in one scan, as local steps are."""

OPTIONS = Options(
  gamma=0.5,
  inner_lr=0.01,
  inner_steps=settings.INNER_STEPS,
  csa_weight=1.0,
  csa_margin=1.0,
  csa_normalize=True,
  client_loss_views="late",
  stochastic_depth=True,
  meta="fomaml",
)


def parts(setting: settings.Setting, depth: int) -> dict[str, Callable]:
  """Part -> (client, server, batches, key) -> what it computes, one client."""
  net = dataclasses.replace(setting.net, wire=Wire().otherwise("float16"))
  step = settings.method_of(setting, "harmony").stages[0].step

  def inner(client, server, batches, key):
    return adapt(net, client.segment, batches, OPTIONS)

  def forward_backward(client, server, batches, key):
    fore = split_pass.front(net, client.segment, batches[0])
    return fore.loss, fore.pull(fore.features, jnp.float32(0.5))

  def at_server(client, server, batches, key, early=None):
    one, two = batches
    shape = shapes.outputs(net)[net.names()[depth - 1]]
    z = jnp.resize(one.image, (one.image.shape[0], *shape))
    same = one.label == two.label
    back = server_side(net, server.segment, depth, z, one, early, same, OPTIONS)
    return back.grads, back.dz, back.losses

  def alignment(client, server, batches, key):
    one, two = batches
    early = early_view(net, client.segment, server.segment, two, key, OPTIONS)
    return at_server(client, server, batches, key, early)

  def descent(client, server, batches, key):
    halves = []
    for half in (client, server):
      # Of the batch, or XLA would do it once for all runs.
      grads = trees.scale(batches[0].image.max(), half.segment.params)
      flags = dict.fromkeys(grads, batches[0].real.any())
      halves.append(
        optimizer.descend(half, grads, {}, settings.OPTIMIZER, flags)
      )
    return halves

  return {
    "step": step,
    "inner adaptation": inner,
    "client gradient": forward_backward,
    "server, task": at_server,
    "server, task and alignment": alignment,
    "optimiser": descent,
  }


def halves(setting: settings.Setting, depth: int, n: int) -> tuple[Half, Half]:
  """Clients and their servers, within a round."""
  full = bb.init(setting.net, jax.random.key(0))
  return tuple(
    trees.repeat(
      optimizer.begin_round(Half(segment), settings.OPTIMIZER, jnp.int32(0)), n
    )
    for segment in (
      bb.prefix(setting.net, full, depth),
      bb.suffix(setting.net, full, setting.net.cuts[0]),
    )
  )


def nudge(batches: tuple[Batch, ...], outputs: Any) -> tuple[Batch, ...]:
  """Makes the next run depend on all outputs of this one."""
  total = sum(
    x.sum() for x in jax.tree.leaves(outputs) if x.dtype == jnp.float32
  )
  return tuple(b._replace(image=b.image + 1e-20 * total) for b in batches)


def program(part: Callable, pair, batches, keys) -> Callable:
  """Compiles STEPS runs of a part for all clients."""

  def run(pair, batches, keys):
    def one(pair, batches, key):
      def again(batches, t):
        outputs = part(*pair, batches, jax.random.fold_in(key, t))
        return nudge(batches, outputs), None

      return jax.lax.scan(again, batches, jnp.arange(STEPS))[0]

    return jax.vmap(one)(pair, batches, keys)

  compiled = jax.jit(run).lower(pair, batches, keys).compile()
  return lambda: jax.block_until_ready(compiled(pair, batches, keys))


def feeding(setting: settings.Setting, shard: Shard, n: int) -> Callable:
  """Draws an epoch and gathers its batches, STEPS of them."""

  def one(rows, key):
    own = shard._replace(rows=rows, size=shard.size[0], counts=shard.counts[0])
    samples = Samples(own, setting.plans[0])
    epochs = (setting.plans[0].epochs,)
    drawn = draws.draw(key, 2, epochs, len(rows), own.size)
    order, real = samples.round_batches(drawn.orders[0])

    def again(total, t):
      views = [samples.batch(order[t, v], real[t]) for v in range(2)]
      return total + sum(view.image.sum() for view in views), None

    return jax.lax.scan(again, 0.0, jnp.arange(STEPS))[0]

  keys = jax.random.split(jax.random.key(2), n)
  rows = jnp.broadcast_to(shard.rows[0], (n, shard.rows.shape[1]))
  compiled = jax.jit(jax.vmap(one)).lower(rows, keys).compile()
  return lambda: jax.block_until_ready(compiled(rows, keys))


def aggregation(setting: settings.Setting, server: Half) -> Callable:
  """Weighted sums of all servers, the bulk of a round's end."""

  def total(server):
    return trees.total(trees.scale(0.5, (server.segment, server.opt.slots)))

  compiled = jax.jit(total).lower(server).compile()
  return lambda: jax.block_until_ready(compiled(server))


def main() -> None:
  """Measures and prints a table."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--batch", type=int, default=50)
  parser.add_argument("--clients", type=int, default=6)
  parser.add_argument("--width", type=float, default=1.0)
  parser.add_argument("--repeats", type=int, default=5)
  given = parser.parse_args()
  n, depth = given.clients, 3
  setting = settings.make(3, 4 * given.batch, given.batch, given.width)
  pair = halves(setting, depth, n)
  shard = setting.shards[0]
  own, plan = Shard(*shard[:2], *trees.take(shard[2:], 0)), setting.plans[0]
  samples, held = Samples(own, plan), len(own.rows)
  drawn = draws.draw(jax.random.key(1), 2, (plan.epochs,), held, own.size)
  rows, real = samples.round_batches(drawn.orders[0])
  batches = tuple(samples.batch(rows[0, v], real[0]) for v in range(2))
  batches = trees.repeat(batches, n)
  keys = jax.random.split(jax.random.key(0), n)
  runs = {
    name: program(part, pair, batches, keys)
    for name, part in parts(setting, depth).items()
  }
  runs["feeding"] = feeding(setting, shard, n)
  runs["aggregation, a round"] = aggregation(setting, pair[1])
  took: dict[str, list[float]] = {name: [] for name in runs}
  for i in range(given.repeats + 1):  # the first warms up
    for name, run in runs.items():
      start = time.perf_counter()
      run()
      if i:
        took[name].append((time.perf_counter() - start) * 1e3 / STEPS / n)
  result = {name: statistics.median(ms) for name, ms in took.items()}
  result["aggregation, a round"] *= STEPS
  print(f"{'':30}{'ms a client-step':>18}{'of the step':>14}")
  for name, ms in result.items():
    print(f"{name:30}{ms:18.2f}{ms / result['step']:14.2f}")
  print(json.dumps({"ms": result, **settings.machine(), **vars(given)}))


if __name__ == "__main__":
  main()
