"""Rounds of Hydra in waves of several sizes against turns, client by client.

  python -m benchmarks.waves [--backbone=mobilenet_v1] [--cut=15] [--waves 2 5]
  taskset -c 0 python -m benchmarks.waves --cut=23    # one core

The network of the configs' scale small, random images, order cyclic. All sides
run a round in turn, and the ratio is pair by pair. Ratios of CPU time hold on a
busy machine, too. The last line is one JSON object.
"""

import argparse
import json
import statistics
import tempfile

import jax

import splitjax
from benchmarks import apart
from benchmarks.point import Watch
from benchmarks.setting import machine
from splitjax import BACKBONES, METHODS, PARTITIONS, SHIFTS, Config
from splitjax.experiment import programs, training_setup
from splitjax.experiment import task as tasks
from splitjax.types import State


def resolved(given: argparse.Namespace, data: str, wave: int) -> Config:
  """The run as a Config; it is never evaluated."""
  c = splitjax.default()
  c.data.name, c.data.augment = data, "crop_flip"
  c.data.partition = splitjax.spec(PARTITIONS, "iid")
  options = {"width": given.width, "depths": (given.cut,)}
  c.backbone = splitjax.spec(BACKBONES, given.backbone, **options)
  splitjax.compare(c, {"only": splitjax.spec(METHODS, "hydra")})
  c.num_clients, c.batch_size = given.clients, given.batch
  c.order.name, c.optimizer.momentum = "cyclic", 0.0
  c.eval.shift, c.eval.rhos = splitjax.spec(SHIFTS, "global"), None
  c.system.devices, c.system.wave = 1, wave
  return Config.from_dict(c.to_dict())


class Rounds:
  """Rounds with waves of one size, each from the same state."""

  def __init__(self, config: Config):
    self.task = tasks.build(config)
    self.federation = training_setup.make_federation(self.task, "only")
    shards = self.federation.shards
    made = programs.make_round(self.task, self.federation)
    watch = Watch()
    self.compiled = made.lower(self.state(), shards).compile()
    self.compile_s = watch("compile")["compile_cpu_s"]
    self.temp_mb = self.compiled.memory_analysis().temp_size_in_bytes / 1e6

  def state(self) -> State:
    """A state to be donated."""
    full = tasks.fresh_network(self.task)
    return jax.block_until_ready(
      programs.fresh_state(self.task, self.federation, full)
    )

  def __call__(self) -> dict[str, float]:
    """Wall-clock and CPU seconds of a round."""
    state, watch = self.state(), Watch()
    jax.block_until_ready(self.compiled(state, self.federation.shards))
    return watch("round")


def measure(given: argparse.Namespace, folder: str) -> dict:
  """Size of a wave -> its row."""
  steps = given.clients * given.steps
  shape, count = (32, 32, 3), steps * given.batch
  data = apart.images(folder, shape, 10, count)
  sizes = [1, *given.waves]
  sides = [Rounds(resolved(given, data, size)) for size in sizes]
  took = [[side() for side in sides] for _ in range(given.repeats + 1)][1:]
  result: dict = {}
  for place, (size, side) in enumerate(zip(sizes, sides, strict=True)):
    row = {"temp_mb": side.temp_mb, "compile_cpu_s": side.compile_s}
    for kind in ("s", "cpu_s"):
      own = [each[place][f"round_{kind}"] for each in took]
      base = [each[0][f"round_{kind}"] for each in took]
      ratios = sorted(a / b for a, b in zip(base, own, strict=True))
      row[f"turn_{kind}"] = statistics.median(own) / steps
      row[f"ratio_{kind}"] = statistics.median(ratios)
      row[f"ratios_{kind}"] = ratios
    result[size] = row
  return result


def main() -> None:
  """Measures and prints a table."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--backbone", default="mobilenet_v1")
  parser.add_argument("--cut", type=int, default=15)
  parser.add_argument("--width", type=float, default=0.25)
  parser.add_argument("--clients", type=int, default=30)
  parser.add_argument("--steps", type=int, default=2, help="of a client")
  parser.add_argument("--batch", type=int, default=10)
  parser.add_argument("--waves", type=int, nargs="+", default=[2, 5, 10])
  parser.add_argument("--repeats", type=int, default=7)
  given = parser.parse_args()
  with tempfile.TemporaryDirectory() as folder:
    result = measure(given, folder)
  heads = "wave", "times as fast", "range", "by CPU time", "range", "temp [MB]"
  rows = [
    [
      size,
      *(
        cell
        for kind in ("s", "cpu_s")
        for cell in (
          row[f"ratio_{kind}"],
          f"{row[f'ratios_{kind}'][0]:.2f}-{row[f'ratios_{kind}'][-1]:.2f}",
        )
      ),
      row["temp_mb"],
    ]
    for size, row in result.items()
  ]
  print(apart.table(heads, rows), flush=True)
  print(json.dumps({"rounds": result, **machine(), **vars(given)}))


if __name__ == "__main__":
  main()
