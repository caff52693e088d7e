"""One point of a benchmark, measured in a process of its own.

  python -m benchmarks.measure_one '{"clients": 4, "data": "npz:images.npz"}'

The argument is a `Point`. The run is set up as by `launch.py`, traced, compiled
and trained for some rounds. Every part prints one JSON object when it ends, so
that a stopped process has reported its earlier parts.
"""

import dataclasses
import json
import math
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import splitjax
from benchmarks.device import machine
from splitjax import BACKBONES, METHODS, PARTITIONS, SHIFTS, Config
from splitjax.engine.round import run_round
from splitjax.experiment.setup import tasks, training_setup
from splitjax.experiment.trainers.trainer import Trainer
from splitjax.machine import initialize
from splitjax.types import State


@dataclasses.dataclass(frozen=True)
class Point:
  """The configuration of one measurement.

  Attributes:
    data: `config.data.name`.
    data_dir: folder of prepared data.
    backbone: key of BACKBONES.
    options: of the backbone.
    method: key of METHODS.
    clients: N, each with as many samples of every class.
    batch: B.
    samples: of each client, the first of its part; None: all.
    chunk: clients that a device trains at a time; None: as many as fit.
    devices: number of devices; None: all that there are.
    process: address and number of this of two processes; None: one process.
    participants: of a round; None: all clients.
    rounds: to run, one epoch each.
  """

  data: str
  data_dir: str | None = None
  backbone: str = "cnn8"
  options: dict[str, Any] = dataclasses.field(default_factory=dict)
  method: str = "splitgp"
  clients: int = 10
  batch: int = 20
  samples: int | None = None
  chunk: int | None = None
  devices: int | None = 1
  process: tuple[str, int] | None = None
  participants: int | None = None
  rounds: int = 3


def resolved(point: Point) -> Config:
  """The run as a Config; it is never evaluated."""
  c = splitjax.default()
  c.data.name, c.data.dir = point.data, point.data_dir
  c.data.partition = splitjax.spec(PARTITIONS, "iid")
  c.backbone = splitjax.spec(BACKBONES, point.backbone, **point.options)
  splitjax.compare(c, {"only": splitjax.spec(METHODS, point.method)})
  c.num_clients, c.batch_size = point.clients, point.batch
  c.eval.shift, c.eval.rhos = splitjax.spec(SHIFTS, "global"), None
  c.participants_per_round = point.participants
  c.system.devices = point.devices
  c.system.clients_per_chunk = "auto" if point.chunk is None else point.chunk
  return Config.from_dict(c.to_dict())


def set_up(point: Point) -> tuple[Trainer, State]:
  """As launch.py, except that clients may use only their first samples."""
  task = tasks.build(resolved(point))
  parts = [part[: point.samples] for part in task.test_sets.parts]
  task = task._replace(test_sets=task.test_sets._replace(parts=parts))
  setup = training_setup.make_setup(task, "only")
  trainer = Trainer(setup)
  state = trainer.init(tasks.fresh_network(task))
  jax.block_until_ready((state.server, setup.shards))
  return trainer, state


def memory() -> dict[str, float]:
  """Peak of this process, and what is no part of a file now, 10^6 bytes.

  Linux tells; its `getrusage` would inherit the peak of the parent process.
  """
  status = Path("/proc/self/status")
  text = status.read_text() if status.exists() else ""
  lines = dict(x.split(":", 1) for x in text.splitlines())
  keys = {"VmHWM": "peak_mb", "RssAnon": "anonymous_mb"}
  return {
    name: int(lines[key].split()[0]) * 1024 / 1e6
    for key, name in keys.items()
    if key in lines
  }


def report(**facts: Any) -> None:
  """Prints results as a JSON object."""
  print(json.dumps(facts), flush=True)


class Watch:
  """Wall-clock and CPU seconds since its creation."""

  def __init__(self):
    self.start = time.perf_counter(), time.process_time()

  def __call__(self, name: str) -> dict[str, float]:
    """Both, as {name_s, name_cpu_s}."""
    now = time.perf_counter(), time.process_time()
    wall, cpu = (b - a for a, b in zip(self.start, now, strict=True))
    return {f"{name}_s": wall, f"{name}_cpu_s": cpu}


def needs(compiled: Any) -> dict[str, float]:
  """XLA's own account of a program on one device, 10^6 bytes."""
  result = compiled.memory_analysis()
  if result is None:
    return {}
  parts = "argument", "output", "temp", "alias"
  sizes = {p: getattr(result, f"{p}_size_in_bytes") / 1e6 for p in parts}
  total = sum(sizes.values()) - 2 * sizes["alias"]
  return {"program_mb": total, "temp_mb": sizes["temp"]}


def run_rounds(rounds: int, advance: Callable, state: Any) -> None:
  """Runs rounds and prints their times.

  `advance` maps a state to the next and the metrics of its round.
  """
  wall, cpu, metrics = [], [], None
  for _ in range(rounds):
    watch = Watch()
    state, metrics = advance(state)
    took = watch("round")
    wall.append(took["round_s"])
    cpu.append(took["round_cpu_s"])
    report(rounds_s=wall, rounds_cpu_s=cpu, **memory())
  if metrics is not None:
    report(losses={name: float(x) for name, x in metrics.losses.items()})


COLLECTIVE = re.compile(
  r" = (.*?) (all-reduce|all-gather|all-to-all|collective-permute"
  r"|reduce-scatter)\("
)
SHAPE = re.compile(r"([a-z]+)(\d*)\[([\d,]*)\]")


def exchanged(text: str) -> dict[str, dict[str, int]]:
  """Counts the data that devices exchange in a compiled CPU program, by kind.

  Its "count" in the text, and the "bytes" of its results on one device. A
  number of bits stands in the name of a type, but pred takes a byte.
  """
  found: dict[str, dict[str, int]] = {}
  for shapes, kind in COLLECTIVE.findall(text):
    each = found.setdefault(kind, {"count": 0, "bytes": 0})
    each["count"] += 1
    each["bytes"] += sum(
      int(bits or 8) // 8 * math.prod(int(n) for n in size.split(",") if n)
      for _, bits, size in SHAPE.findall(shapes)
    )
  return found


def main() -> None:
  """Measures a point."""
  point = Point(**json.loads(sys.argv[1]))
  if point.process is not None:
    initialize(point.process[0], 2, point.process[1])
  jax.block_until_ready(jnp.zeros(1) + 1)  # the backend has started
  report(baseline_mb=memory().get("peak_mb"), **machine())
  watch = Watch()
  trainer, state = set_up(point)
  report(**watch("setup"))
  measure(point, trainer, state)


def measure(point: Point, trainer: Trainer, state: State) -> None:
  """Traces and compiles the round, and trains."""
  setup = trainer.setup
  statics = {
    "layout": setup.layout,
    "plans": setup.plans,
    "mesh": setup.task.mesh,
  }
  watch = Watch()
  lowered = run_round.lower(
    trainer.method, state, setup.shards, setup.task.faults, **statics
  )
  report(**watch("trace"))
  watch = Watch()
  compiled = lowered.compile()
  report(**watch("compile"), **needs(compiled), **memory())
  report(exchanged=exchanged(compiled.as_text()))

  def advance(state):
    state, metrics = compiled(
      trainer.method, state, setup.shards, setup.task.faults
    )
    return state, jax.device_get(metrics)  # waits for the round

  run_rounds(point.rounds, advance, state)
  stats = jax.local_devices()[0].memory_stats() or {}
  if "peak_bytes_in_use" in stats:
    report(device_peak_mb=stats["peak_bytes_in_use"] / 1e6)


if __name__ == "__main__":
  main()
