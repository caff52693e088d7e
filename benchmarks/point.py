"""One point of a benchmark, measured in a process of its own.

  python -m benchmarks.point '{"clients": 4, "data": "npz:images.npz"}'

The argument is a `Point`. The run is set up as by `launch.py`, traced, compiled
and trained for some rounds. Every part prints one JSON object when it ends, so
that a stopped process has reported its earlier parts.
"""

import dataclasses
import json
import math
import re
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import splitjax
from benchmarks.setting import machine
from splitjax import BACKBONES, METHODS, PARTITIONS, SHIFTS, Config
from splitjax.engine import distributed
from splitjax.engine.fleet import without_padding
from splitjax.experiment import on_host, programs, training_setup
from splitjax.experiment import task as tasks
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
    alpha: of a Dirichlet partition in place of that; None: equal clients.
    batch: B.
    samples: of each client, the first of its part; None: all.
    chunk: clients that a device trains at a time; None: as many as fit.
    devices: number of devices; None: all that there are.
    process: address and number of this of two processes; None: one process.
    participants: of a round; None: all clients.
    clients_on: `config.system.clients_on`.
    rounds: to run, one epoch each.
    keep: file for the final parameters, one vector; None: not saved.
  """

  data: str
  data_dir: str | None = None
  backbone: str = "cnn8"
  options: dict[str, Any] = dataclasses.field(default_factory=dict)
  method: str = "splitgp"
  clients: int = 10
  alpha: float | None = None
  batch: int = 20
  samples: int | None = None
  chunk: int | None = None
  devices: int | None = 1
  process: tuple[str, int] | None = None
  participants: int | None = None
  clients_on: str = "device"
  rounds: int = 3
  keep: str | None = None


def resolved(point: Point) -> Config:
  """The run as a Config; it is never evaluated."""
  c = splitjax.default()
  c.data.name, c.data.dir = point.data, point.data_dir
  c.data.partition = splitjax.spec(PARTITIONS, "iid")
  if point.alpha is not None:
    options = {"alpha": point.alpha, "min_samples": point.batch}
    c.data.partition = splitjax.spec(PARTITIONS, "dirichlet", **options)
  c.backbone = splitjax.spec(BACKBONES, point.backbone, **point.options)
  splitjax.compare(c, {"only": splitjax.spec(METHODS, point.method)})
  c.num_clients, c.batch_size = point.clients, point.batch
  c.eval.shift, c.eval.rhos = splitjax.spec(SHIFTS, "global"), None
  c.participants_per_round = point.participants
  c.system.devices, c.system.clients_on = point.devices, point.clients_on
  c.system.clients_per_chunk = "auto" if point.chunk is None else point.chunk
  return Config.from_dict(c.to_dict())


def set_up(point: Point) -> tuple[tasks.Task, training_setup.Federation, State]:
  """As launch.py, except that clients may use only their first samples.

  Clients of the state lie on the host if the point says so.
  """
  task = tasks.build(resolved(point))
  parts = [part[: point.samples] for part in task.test_sets.parts]
  task = task._replace(test_sets=task.test_sets._replace(parts=parts))
  federation = training_setup.make_federation(task, "only")
  module = on_host if point.clients_on == "host" else programs
  state = module.fresh_state(task, federation, tasks.fresh_network(task))
  jax.block_until_ready((state, federation.shards))
  return task, federation, state


def peak_mb() -> float:
  """Peak memory of this process, 10^6 bytes.

  On Linux `getrusage` inherits the peak of the parent process; VmHWM does not.
  """
  status = Path("/proc/self/status")
  if status.exists():
    lines = dict(x.split(":", 1) for x in status.read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024 / 1e6
  most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  return most / 1e6 if sys.platform == "darwin" else most * 1024 / 1e6


def anonymous_mb() -> dict[str, float]:
  """Memory of this process now that is no part of a file, where Linux tells."""
  status = Path("/proc/self/status")
  text = status.read_text() if status.exists() else ""
  lines = dict(x.split(":", 1) for x in text.splitlines())
  if "RssAnon" not in lines:
    return {}
  return {"anonymous_mb": int(lines["RssAnon"].split()[0]) * 1024 / 1e6}


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


def run_rounds(rounds: int, advance: Callable, state: Any) -> Any:
  """Runs rounds and prints their times; returns the last state.

  `advance` maps a state to the next and the metrics of its round.
  """
  wall, cpu, metrics = [], [], None
  for _ in range(rounds):
    watch = Watch()
    state, metrics = advance(state)
    jax.block_until_ready((state, metrics))
    took = watch("round")
    wall.append(took["round_s"])
    cpu.append(took["round_cpu_s"])
    memory = {"peak_mb": peak_mb(), **anonymous_mb()}
    report(rounds_s=wall, rounds_cpu_s=cpu, **memory)
  if metrics is not None:
    report(losses={name: float(x) for name, x in metrics.losses.items()})
  return state


def prepare(
  point: Point,
  task: tasks.Task,
  federation: training_setup.Federation,
  state: State,
) -> tuple[Any, tuple, Callable]:
  """A jitted round and its arguments.

  And a function from the compiled one to what `run_rounds` starts with and its
  `advance`.
  """
  if point.clients_on == "host":
    run = on_host.HostRun(task, federation, state)
    given: tuple = run.inputs()

    def at_host(compiled):
      run.step = compiled
      return run, lambda run: (run, run.advance())

    return run.make_round(task, federation), given, at_host
  shards = federation.shards

  def on_device(compiled):
    return state, lambda state: compiled(state, shards)

  return programs.make_round(task, federation), (state, shards), on_device


COLLECTIVE = re.compile(
  r" = (.*?) (all-reduce|all-gather|all-to-all|collective-permute"
  r"|reduce-scatter)\("
)
SHAPE = re.compile(r"([a-z]+)(\d*)\[([\d,]*)\]")


def exchanged(text: str) -> dict[str, dict[str, int]]:
  """What devices exchange in a compiled CPU program, by kind of operation.

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


def steps(
  task: tasks.Task, federation: training_setup.Federation
) -> dict[str, int]:
  """Local steps of a round: real ones, and with padding steps.

  Padding fills every client's steps up to those of the largest of its cohort.
  """
  batch = task.config.batch_size
  own = sum(-(-len(part) // batch) for part in task.test_sets.parts)
  cohorts = zip(federation.plans, federation.fleet.cohorts, strict=True)
  return {
    "steps": own,
    "steps_of_longest": sum(p.steps * len(c.ids) for p, c in cohorts),
  }


def vector(
  task: tasks.Task, federation: training_setup.Federation, state: Any
) -> np.ndarray:
  """All parameters of clients and server."""
  clients = without_padding(federation.fleet, state.clients)
  halves = jax.device_get([*clients, state.server])
  params = jax.tree.leaves([half.segment.params for half in halves])
  return np.concatenate([*map(np.ravel, params)])


def main() -> None:
  """Measures a point."""
  point = Point(**json.loads(sys.argv[1]))
  if point.process is not None:
    address, number = point.process
    distributed.initialize(address, 2, number)
  jax.block_until_ready(jnp.zeros(1) + 1)  # the backend has started
  report(baseline_mb=peak_mb(), **machine())
  watch = Watch()
  task, federation, state = set_up(point)
  memory = {f"setup_{k}": x for k, x in anonymous_mb().items()}
  report(**watch("setup"), **memory, samples=len(task.test_sets.parts[0]))
  report(
    chunks=[c.chunk for c in federation.fleet.cohorts],
    **steps(task, federation),
  )
  watch = Watch()
  jitted, given, advancing = prepare(point, task, federation, state)
  del state
  lowered = jitted.lower(*given)
  report(**watch("trace"))
  watch = Watch()
  compiled = lowered.compile()
  report(**watch("compile"), **needs(compiled), peak_mb=peak_mb())
  report(exchanged=exchanged(compiled.as_text()))
  report(**{f"compiled_{k}": x for k, x in anonymous_mb().items()})
  start, advance = advancing(compiled)
  del given
  state = run_rounds(point.rounds, advance, start)
  stats = jax.local_devices()[0].memory_stats() or {}
  if "peak_bytes_in_use" in stats:
    report(device_peak_mb=stats["peak_bytes_in_use"] / 1e6)
  if point.keep is not None:
    if isinstance(state, on_host.HostRun):
      state = state.state()
    np.save(point.keep, vector(task, federation, state))


if __name__ == "__main__":
  main()
