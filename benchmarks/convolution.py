"""Local steps with per-client kernels: patches against XLA's own convolution.

  python -m benchmarks.convolution [--clients=4] [--batch=16] [--width=0.25]

One SplitGP round of cnn8 on random images, both formulations in turn, several
times; the ratio is pair by pair, so a machine whose speed drifts does not spoil
it. The last line is one JSON object.
"""

import argparse
import json
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from splitjax.data import feed
from splitjax.engine import fleet as fleets
from splitjax.engine import round as rounds
from splitjax.methods import METHODS, optimizer
from splitjax.models import BACKBONES
from splitjax.models import backbone as bb


def prepare(conv: str, clients: int, batch: int, steps: int, width: float):
  """A compiled round, and its arguments, with one formulation."""
  rng = np.random.default_rng(0)
  size = batch * steps
  image = rng.integers(0, 256, (clients * size, 28, 28, 1), np.uint8)
  label = rng.integers(0, 10, clients * size).astype(np.int32)
  net = BACKBONES["cnn8"]((28, 28, 1), 10, depths=(3,), width=width, conv=conv)
  fleet_ = fleets.assign_depths(clients, net.cuts, 0)
  method = METHODS["splitgp"](net, optimizer.sgd(0.025))
  plan = feed.plan([size] * clients, batch, 1, *feed.statistics(image))
  parts = np.split(np.arange(clients * size), clients)
  data = feed.shards(
    jnp.asarray(image), jnp.asarray(label), parts, 10, range(clients)
  )
  full = bb.init(net, jax.random.key(0))
  state = method.init(jax.random.key(1), fleet_, full)
  state = jax.tree.map(jnp.copy, state)
  step = rounds.make_round(method, (plan,), fleet_)
  start = time.monotonic()
  compiled = step.lower(state, (data,)).compile()
  return compiled, state, (data,), time.monotonic() - start


def main() -> None:
  """Measures and prints a table."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--clients", type=int, default=4)
  parser.add_argument("--batch", type=int, default=16)
  parser.add_argument("--steps", type=int, default=3)
  parser.add_argument("--width", type=float, default=0.25)
  parser.add_argument("--pairs", type=int, default=3)
  options = parser.parse_args()
  sizes = (options.clients, options.batch, options.steps, options.width)
  runs = {
    conv: prepare(conv, *sizes) for conv in ("in_turn", "patches", "native")
  }
  states = {conv: run[1] for conv, run in runs.items()}
  seconds: dict[str, list[float]] = {conv: [] for conv in runs}
  for _ in range(options.pairs + 1):  # the first pair warms up
    for conv, (step, _, data, _) in runs.items():
      start = time.monotonic()
      states[conv], metrics = step(states[conv], data)
      jax.block_until_ready((states[conv], metrics))
      seconds[conv].append(time.monotonic() - start)
  each = 1e3 / (options.clients * options.steps)
  result = {
    conv: {
      "ms_per_client_step": each * statistics.median(seconds[conv][1:]),
      "compile_s": runs[conv][3],
    }
    for conv in runs
  }
  pairs = zip(seconds["native"][1:], seconds["patches"][1:], strict=True)
  ratios = sorted(a / b for a, b in pairs)
  print(f"{'':10}{'ms per client-step':>20}{'compile [s]':>14}")
  for conv, row in result.items():
    print(f"{conv:10}{row['ms_per_client_step']:20.1f}{row['compile_s']:14.1f}")
  print(f"native / patches: {ratios[0]:.1f} to {ratios[-1]:.1f}")
  device = jax.devices()[0].device_kind
  print(
    json.dumps({**result, "ratios": ratios, "device": device, **vars(options)})
  )


if __name__ == "__main__":
  main()
