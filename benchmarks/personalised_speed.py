"""A round of every method with the whole network on the client, as FedAvg's.

  python -m benchmarks.personalised_speed [--methods fedrep ...] [--quick]

With --torch, FedAvg's own round is compared with `torch_rounds.py`'s, too.
20 clients, the 4-layer CNN on 28x28 images of noise, batch 64, five epochs of
the body; FedRep and FedPAC have one of the head besides, PGFedSplit five on
embeddings. Methods run in turn with FedAvg, so a machine whose speed drifts
does not spoil the ratio. Two rounds come first: what a method does in its first
rounds alone (FedALA's mixing) does not count. The last line is one JSON object.
"""

import argparse
import json
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import round_speed
from benchmarks import setting as settings
from splitjax.data import feed
from splitjax.engine import distributed, sharding
from splitjax.engine import fleet as fleets
from splitjax.engine import round as rounds
from splitjax.methods import METHODS, optimizer
from splitjax.models import BACKBONES
from splitjax.models import backbone as bb

OPTIONS: dict[str, dict] = {"fedrep": {"head_epochs": 1}}
NAMES = (
  "fedprox", "fedper", "fedrep", "fedbabu", "fedamp", "fedgh", "fedpac",
  "fedala", "fedfomo", "pgfedsplit",
)  # fmt: skip
LR = 0.005
BEFORE = 2
"""Rounds that do not count."""


def noise(
  given: argparse.Namespace,
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
  """Images [Z, 28, 28, 1] uint8, labels [Z] int32, rows of every client."""
  rng, count = np.random.default_rng(0), given.clients * given.samples
  image = rng.integers(0, 256, (count, 28, 28, 1), np.uint8)
  label = rng.integers(0, 10, count).astype(np.int32)
  return image, label, np.split(np.arange(count), given.clients)


class Rounds:
  """A method's compiled round and its state; a call runs one round."""

  def __init__(self, name: str, given: argparse.Namespace):
    net = BACKBONES["cnn4"]((28, 28, 1), 10, width=given.width)
    self.net = net
    sgd = optimizer.sgd(LR, momentum=0.0)
    method = METHODS[name](net, sgd, **OPTIONS.get(name, {}))
    fleet = fleets.assign_depths(given.clients, (1,), 0)
    fleet = fleets.with_full_depth(fleet, net.length)
    devices = fleets.useful_devices(fleet, len(jax.devices()))
    mesh = sharding.make(devices)
    alone = 1 if jax.default_backend() == "cpu" else None
    fleet = fleets.divide(fleet, devices, [alone], exact=False)
    (cohort,) = fleet.cohorts

    # A tenth of a client's own images serves for validation.
    image, label, parts = noise(given)
    sizes = [given.samples] * given.clients
    stats = feed.statistics(image)
    plan = feed.plan(sizes, given.batch, given.epochs, *stats)
    self.steps = plan.steps * plan.epochs
    mine = [parts[i] for i in cohort.places]
    shard = feed.shards(
      jnp.asarray(image), jnp.asarray(label), mine, 10, cohort.places
    )
    if method.traits.validates:
      held = jnp.asarray(np.stack(mine)[:, : max(1, given.samples // 10)])
      shard = shard._replace(held=held.astype(jnp.int32))
    own = sharding.put(mesh, tuple(shard[2:]), sharding.DIVIDED)
    self.shards = (type(shard)(*sharding.put(mesh, tuple(shard[:2])), *own),)

    # The state in buffers that may be donated, and the program.
    full = bb.init(net, jax.random.key(0))
    copied = sharding.sharding(mesh, sharding.state_specs(1))
    self.state = jax.jit(
      lambda: method.init(jax.random.key(1), fleet, full), out_shardings=copied
    )()
    step = rounds.make_round(method, (plan,), fleet, mesh=mesh)
    start = time.perf_counter()
    self.step = step.lower(self.state, self.shards).compile()
    self.compile_s = time.perf_counter() - start

  def __call__(self) -> float:
    """Runs a round; returns its seconds."""
    start = time.perf_counter()
    self.state, metrics = self.step(self.state, self.shards)
    jax.block_until_ready((self.state, metrics))
    return time.perf_counter() - start


def against_torch(plain: Rounds, given: argparse.Namespace) -> dict:
  """FedAvg's rounds in turn with PyTorch's: seconds and their ratios."""
  same = ("samples", "batch", "width", "epochs")
  other = round_speed.Torch(
    depths=[1] * given.clients, lr=LR, **{k: vars(given)[k] for k in same}
  )
  pairs = [
    (plain(), other.ask(method="fedavg")["seconds"])
    for _ in range(given.repeats + 1)
  ][1:]  # the first warms up
  other.close()
  ratios = sorted(b / a for a, b in pairs)
  print(
    f"FedAvg: PyTorch's seconds over ours {statistics.median(ratios):.2f}"
    f" ({ratios[0]:.2f}-{ratios[-1]:.2f}), torch {other.version}",
    flush=True,
  )
  return {"ratios": ratios, "pairs": pairs, "torch": other.version}


def main() -> None:
  """Measures and prints a table."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--methods", nargs="+", choices=NAMES, default=NAMES)
  parser.add_argument("--clients", type=int, default=20)
  parser.add_argument("--samples", type=int, default=256)
  parser.add_argument("--batch", type=int, default=64)
  parser.add_argument("--epochs", type=int, default=5)
  parser.add_argument("--width", type=float, default=1.0)
  parser.add_argument("--repeats", type=int, default=3)
  parser.add_argument("--torch", action="store_true", help="against PyTorch")
  parser.add_argument("--quick", action="store_true", help="3 clients, narrow")
  given = parser.parse_args()
  if given.quick:
    given.clients, given.samples, given.batch = 3, 24, 8
    given.epochs, given.width, given.repeats = 1, 0.1, 1
  distributed.use_cores()  # as launch.py does
  plain, result = Rounds("fedavg", given), {}
  plain()
  if given.torch:
    result["PyTorch"] = against_torch(plain, given)
  print(f"{'':12}{'of FedAvg':>10}{'range':>14}{'[s]':>8}{'compile [s]':>13}")
  for name in given.methods:
    method = Rounds(name, given)
    for _ in range(BEFORE):
      method()
    pairs = [(plain(), method()) for _ in range(given.repeats)]
    ratios = sorted(b / a for a, b in pairs)
    result[name] = {
      "ratio": statistics.median(ratios),
      "ratios": ratios,
      "seconds": statistics.median(b for _, b in pairs),
      "fedavg_seconds": statistics.median(a for a, _ in pairs),
      "compile_s": method.compile_s,
    }
    row = result[name]
    span = f"{ratios[0]:.2f}-{ratios[-1]:.2f}"
    print(
      f"{name:12}{row['ratio']:10.2f}{span:>14}{row['seconds']:8.2f}"
      f"{row['compile_s']:13.1f}",
      flush=True,
    )
  about = {**settings.machine(), **vars(given)}
  print(json.dumps({"rounds": result, **about}))


if __name__ == "__main__":
  main()
