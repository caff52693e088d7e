"""Time and memory of a round over clients, devices, rounds and networks.

  python -m benchmarks.scaling TABLE [--out=FILE.json] [--quick] [...]

A TABLE is one of these; `clients`, `participants` and `weak` train SplitGP, or
--methods, on a narrow `cnn8`.

  clients       ever more clients, ten at a time: each should cost the same
  participants  100 of ever more clients: the time is to depend on the 100 alone
  weak          12 clients on each of ever more forced devices, and on two
                processes: the collective operations of the program, and the
                bytes of their results, which each device gets in a round
  rounds        a whole run, ten of 1,400 clients a round: memory and the size
                of a checkpoint's record are not to grow
  compile       seconds until the first round of real networks, with an empty
                compilation cache and with the one that it left; --toy has every
                method on the toy backbone

Every point is a process of its own; memory is its peak less what it had when
JAX had started. The last line is one JSON object.
"""

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import long_run, subprocesses
from benchmarks.device import machine

INPUTS: dict[str, tuple[tuple[int, int, int], int]] = {
  "cnn8": ((28, 28, 1), 10),
  "cnn4": ((28, 28, 1), 10),
  "vgg11": ((32, 32, 3), 10),
  "mobilenet_v1": ((32, 32, 3), 10),
  "mobilenet_v2": ((32, 32, 3), 100),
  "resnet18": ((64, 64, 3), 200),
  "resnet50": ((64, 64, 3), 200),
  "resnet101": ((32, 32, 3), 10),
  "vit_s16": ((32, 32, 3), 100),
  "vit_b16": ((32, 32, 3), 10),
  "toy": ((28, 28, 1), 10),
}
"""Backbone -> images and classes of the paper that cuts it."""

USUAL: dict[str, Any] = {
  "methods": ["splitgp"], "backbones": None, "depths": [2, 3, 4],
  "clients": [12], "devices": [1, 2, 4, 8], "participants": None,
  "width": 0.25, "samples": 60, "batch": 20, "chunk": 1, "rounds": 6,
}  # fmt: skip
TABLES: dict[str, dict[str, Any]] = {
  "clients": {
    "clients": [10, 30, 100, 300, 1000], "width": 0.125, "chunk": 10,
    "rounds": 4,
  },
  "participants": {"clients": [1000, 10_000], "participants": 100},
  "weak": {},
  "rounds": {"clients": [1400], "participants": 10, "rounds": 2000},
  "compile": {
    "methods": ["harmony", "splitgp"], "clients": [4], "batch": 8,
    "samples": 8, "chunk": None, "rounds": 1,
    "backbones": [name for name in INPUTS if name != "toy"],
  },
}  # fmt: skip
"""Table -> sizes that differ from USUAL."""

QUICK: dict[str, dict[str, Any]] = {
  **dict.fromkeys(TABLES, {"clients": [3, 6], "rounds": 2}),
  "participants": {"clients": [4, 8], "participants": 4, "rounds": 2},
  "weak": {"clients": [3], "rounds": 2},
  "rounds": {"clients": [4], "participants": 4, "rounds": 20},
  "compile": {
    "clients": [4], "backbones": ["toy"], "methods": ["splitgp"], "rounds": 1,
  },
}  # fmt: skip

COLUMNS = {
  "ms a client": "client_ms",
  "CPU ms a client": "client_cpu_ms",
  "trace [s]": "trace_s",
  "compile [s]": "compile_s",
  "from cache [s]": "again_compile_s",
  "compile [CPU s]": "compile_cpu_s",
  "round [s]": "round_s",
  "CPU s a round": "round_cpu_s",
  "peak [MB]": "own_peak_mb",
  "anonymous [MB]": "anonymous_mb",
  "program [MB]": "program_mb",
  "on device [MB]": "device_peak_mb",
  "exchanged": "said",
  "not finished": "failed",
}
"""Columns -> keys of points; a table has those of which a point has any."""

COLD = {"JAX_ENABLE_COMPILATION_CACHE": "false"}

Point = tuple[str, dict[str, Any], dict[str, str]]
"""Its name, the fields of a `measure_one.Point`, changes to its environment."""


def narrow(given: argparse.Namespace, folder: str, clients: int) -> dict:
  """The point of so many clients."""
  count = clients * given.samples
  data = given.data or subprocesses.images(folder, *INPUTS["cnn8"], count)
  return {
    "data": data,
    "data_dir": given.data_dir,
    "options": {"width": given.width, "depths": tuple(given.depths)},
    "method": given.methods[0],
    "clients": clients,
    "participants": given.participants,
    "batch": given.batch,
    "chunk": given.chunk,
    "rounds": given.rounds,
  }


def points(given: argparse.Namespace, folder: str) -> Iterator[Point]:
  """Lists the points of a table."""
  if given.table in ("clients", "participants"):
    for n in given.clients:
      yield str(n), narrow(given, folder, n), COLD
  elif given.table == "weak":
    for n in given.devices:
      point = narrow(given, folder, n * given.clients[0])
      yield str(n), {**point, "devices": n}, COLD | forced(n)
    point = narrow(given, folder, 2 * given.clients[0])
    yield "2 processes", {**point, "devices": None}, COLD | forced(1)
  else:
    yield from networks(given, folder)


def networks(given: argparse.Namespace, folder: str) -> Iterator[Point]:
  """Real networks, for `compile` each with a compilation cache of its own."""
  chosen = list(itertools.product(given.backbones, given.methods))
  if given.toy:
    from splitjax import METHODS

    chosen += [("toy", method) for method in METHODS]
  for number, (backbone, method) in enumerate(chosen):
    shape, classes = INPUTS[backbone]
    count = max(given.clients[0] * given.samples, classes)
    point = narrow(given, folder, given.clients[0]) | {
      "data": subprocesses.images(folder, shape, classes, count),
      "backbone": backbone,
      "options": {},
      "method": method,
      "samples": given.samples,
    }
    env = subprocesses.cached(f"{folder}/cache{number}")
    yield f"{backbone}, {method}", point, env


def forced(devices: int) -> dict[str, str]:
  """Environment of a process with so many devices of a CPU."""
  flag = f"--xla_force_host_platform_device_count={devices}"
  return {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flag}


def measure(given: argparse.Namespace, point: Point) -> dict[str, Any]:
  """Measures a point: twice with a cache, or in two processes."""
  name, fields, env = point
  left = min(given.seconds, given.end - time.monotonic())
  if name == "2 processes":  # CPU seconds are of the first
    address = f"127.0.0.1:{subprocesses.free_port()}"
    with ThreadPoolExecutor() as pool:
      first, second = pool.map(
        lambda number: subprocesses.measure(
          {**fields, "process": [address, number]}, left, env
        ),
        range(2),
      )
    result = {**second, **first}
  else:
    result = subprocesses.measure(fields, left, env)
  if given.table == "compile" and "compile_s" in result:
    again = subprocesses.measure({**fields, "rounds": 0}, left, env)
    keys = "trace_s", "compile_s", "compile_cpu_s"
    result |= {f"again_{k}": again[k] for k in keys if k in again}
  return digest({"clients": fields["clients"], **result})


def digest(result: dict[str, Any]) -> dict[str, Any]:
  """Adds what is asked of a point: of its rounds the median but the first."""
  for kind in ("s", "cpu_s"):
    took = result.get(f"rounds_{kind}", [])
    if took:
      middle = statistics.median(took[1:] or took)
      result[f"round_{kind}"] = middle
      each = f"client_{kind.removesuffix('s')}ms"
      result[each] = 1e3 * middle / result["clients"]
  if "peak_mb" in result:  # where Linux tells
    result["own_peak_mb"] = result["peak_mb"] - result["baseline_mb"]
  result["said"] = ", ".join(
    f"{each['count']} {kind} {each['bytes'] / 1e6:.3f} MB"
    for kind, each in result.get("exchanged", {}).items()
  )
  return result


def options() -> argparse.Namespace:
  """The command line."""
  parser = argparse.ArgumentParser(
    "python -m benchmarks.scaling",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument("table", choices=TABLES)
  for name in ("clients", "devices", "depths"):
    parser.add_argument(f"--{name}", type=int, nargs="+")
  for name in ("participants", "samples", "batch", "chunk", "rounds"):
    parser.add_argument(f"--{name}", type=int)
  parser.add_argument("--width", type=float)
  parser.add_argument("--methods", nargs="+")
  parser.add_argument("--backbones", nargs="+", choices=INPUTS)
  parser.add_argument("--toy", action="store_true", help="every method, toy")
  parser.add_argument("--seconds", type=float, default=1200, help="of a point")
  parser.add_argument("--minutes", type=float, default=1e9, help="of them all")
  parser.add_argument("--data", help="config.data.name; else noise")
  parser.add_argument("--data_dir", help="where prepared data lie")
  parser.add_argument("--out", type=Path, help="JSON; a table is put beside it")
  parser.add_argument("--quick", action="store_true", help="toys, in minutes")
  given = parser.parse_args()
  sizes = USUAL | TABLES[given.table]
  if given.quick:
    sizes |= {"width": 1 / 32, "samples": 20, "devices": [1, 2]}
    sizes |= QUICK[given.table]
    os.environ |= subprocesses.HASTY
  for name, value in sizes.items():
    if getattr(given, name) is None:
      setattr(given, name, value)
  given.end = time.monotonic() + 60 * given.minutes
  return given


def main() -> None:
  """Measures and prints a table."""
  given = options()
  subprocesses.stoppable()
  found: dict[str, dict] = {}
  text, about = "", {}
  with tempfile.TemporaryDirectory() as folder:
    if given.table == "rounds":
      found, about = long_run.measure(given, folder), machine()
    else:
      for point in points(given, folder):
        print(f"{point[0]} ...", flush=True)
        found[point[0]] = measure(given, point)
      text = subprocesses.table_of(COLUMNS, found)
      about = subprocesses.about(list(found.values()))
  print(text)
  sizes = {key: getattr(given, key) for key in USUAL}
  result = {"table": given.table, "points": found, **sizes, **about}
  subprocesses.keep(given.out, text, result)
  print(json.dumps(result))


if __name__ == "__main__":
  main()
