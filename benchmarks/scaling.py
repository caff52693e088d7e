"""Time and memory of a round over clients, participants and networks.

  python -m benchmarks.scaling TABLE [--out=FILE.json] [--quick] [...]

A TABLE is one of these; `clients` and `participants` train SplitGP, or
--methods, on a narrow `cnn8`.

  clients       ever more clients, ten at a time: each should cost the same
  participants  100 of ever more clients: the time is to depend on the 100 alone
  compile       seconds until the first round of real networks, with an empty
                compilation cache and with the one that it left

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
from pathlib import Path
from typing import Any

from benchmarks import subprocesses

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
}
"""Backbone -> images and classes of the paper that cuts it."""

USUAL: dict[str, Any] = {
  "methods": ["splitgp"], "backbones": ["cnn8"], "participants": None,
  "width": 0.25, "samples": 60, "batch": 20, "chunk": 1, "rounds": 6,
}  # fmt: skip
TABLES: dict[str, dict[str, Any]] = {
  "clients": {
    "clients": [10, 30, 100, 300, 1000], "width": 0.125, "chunk": 10,
    "rounds": 4,
  },
  "participants": {"clients": [1000, 10_000], "participants": 100},
  "compile": {
    "clients": [4], "backbones": list(INPUTS), "width": None,
    "methods": ["harmony", "splitgp"], "samples": 8, "batch": 8,
    "chunk": None, "rounds": 1,
  },
}  # fmt: skip
"""Table -> sizes that differ from USUAL."""

QUICK: dict[str, dict[str, Any]] = {
  "clients": {"clients": [3, 6]},
  "participants": {"clients": [4, 8], "participants": 4},
  "compile": {"backbones": ["cnn4"], "methods": ["splitgp"]},
}

COLUMNS = {
  "ms a client": "client_ms",
  "CPU ms a client": "client_cpu_ms",
  "trace [s]": "trace_s",
  "compile [s]": "compile_s",
  "from cache [s]": "again_s",
  "round [s]": "round_s",
  "CPU s a round": "round_cpu_s",
  "peak [MB]": "own_peak_mb",
  "anonymous [MB]": "anonymous_mb",
  "program [MB]": "program_mb",
  "on device [MB]": "device_peak_mb",
  "not finished": "failed",
}
"""Columns -> keys of points; a table has those of which a point has any."""

Point = tuple[str, dict[str, Any]]
"""Its name, and the argument of `measure_one`."""


def points(given: argparse.Namespace) -> Iterator[Point]:
  """Lists the points of a table."""
  sizes = "participants", "width", "samples", "batch", "chunk", "rounds"
  common = {name: getattr(given, name) for name in sizes}
  every = itertools.product(given.backbones, given.methods, given.clients)
  for backbone, method, clients in every:
    shape, classes = INPUTS[backbone]
    network = {"backbone": backbone, "shape": shape, "classes": classes}
    name = f"{backbone}, {method}, {clients}"
    yield name, {**common, **network, "method": method, "clients": clients}


def measure(given: argparse.Namespace, point: dict[str, Any]) -> dict[str, Any]:
  """Measures a point; for `compile` again with the cache that it left."""
  left = min(given.seconds, given.end - time.monotonic())
  if given.table != "compile":
    return digest(point, subprocesses.measure(point, left))
  with tempfile.TemporaryDirectory() as folder:
    cache = subprocesses.cached(folder)
    result = subprocesses.measure(point, left, cache)
    if "compile_s" in result:
      again = subprocesses.measure({**point, "rounds": 0}, left, cache)
      result["again_s"] = again.get("compile_s")
  return digest(point, result)


def digest(point: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
  """Adds the median of the rounds but the first, and the memory of its own."""
  for kind, name in (("s", "client_ms"), ("cpu_s", "client_cpu_ms")):
    if took := result.get(f"rounds_{kind}"):
      middle = statistics.median(took[1:] or took)
      trained = point["participants"] or point["clients"]
      result |= {f"round_{kind}": middle, name: 1e3 * middle / trained}
  if "peak_mb" in result:  # where Linux tells
    result["own_peak_mb"] = result["peak_mb"] - result["baseline_mb"]
  return result


def options() -> argparse.Namespace:
  """The command line."""
  parser = argparse.ArgumentParser(
    "python -m benchmarks.scaling",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument("table", choices=TABLES)
  parser.add_argument("--clients", type=int, nargs="+")
  for name in ("participants", "samples", "batch", "chunk", "rounds"):
    parser.add_argument(f"--{name}", type=int)
  parser.add_argument("--width", type=float)
  parser.add_argument("--methods", nargs="+")
  parser.add_argument("--backbones", nargs="+", choices=INPUTS)
  parser.add_argument("--seconds", type=float, default=1200, help="of a point")
  parser.add_argument("--minutes", type=float, default=1e9, help="of them all")
  parser.add_argument("--out", type=Path, help="JSON; a table is put beside it")
  parser.add_argument("--quick", action="store_true", help="toys, in a minute")
  given = parser.parse_args()
  sizes = USUAL | TABLES[given.table]
  if given.quick:
    small = {"width": 1 / 32, "samples": 20, "rounds": 2}
    sizes |= small | QUICK[given.table]
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
  for name, point in points(given):
    print(f"{name} ...", flush=True)
    found[name] = measure(given, point)
  text = subprocesses.table_of(COLUMNS, found)
  print(text)
  sizes = {key: getattr(given, key) for key in ("clients", *USUAL)}
  about = subprocesses.about(list(found.values()))
  result = {"table": given.table, "points": found, **sizes, **about}
  subprocesses.keep(given.out, text, result)
  print(json.dumps(result))


if __name__ == "__main__":
  main()
