"""Time and memory of a round over clients, participants and networks.

  python -m benchmarks.scaling TABLE [--out=FILE.json] [SIZE=JSON ...]

A TABLE is one of these; `clients` and `participants` train SplitGP on a narrow
`cnn8`. Sizes are changed as in clients=[1000] width=1.

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
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tabulate import tabulate

from benchmarks import subprocesses
from benchmarks.rounds import INPUTS

SIZES: dict[str, Any] = {
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
"""Table -> sizes that differ from SIZES."""

COLUMNS = (
  "client_ms", "client_cpu_ms", "trace_s", "compile_s", "again_s", "round_s",
  "round_cpu_s", "own_peak_mb", "program_mb", "device_peak_mb",
  "failed",
)  # fmt: skip
"""Those of the printed table, if a point has any: times by clock and of the
CPU, compilation with a cache (again), the peak without JAX's own memory."""


def points(sizes: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
  """Lists the points of a table: name, and the argument of `rounds`."""
  common = {
    size: sizes[size] for size in SIZES if size not in ("methods", "backbones")
  }
  rows = itertools.product(
    sizes["backbones"], sizes["methods"], sizes["clients"]
  )
  for backbone, method, clients in rows:
    names = {"backbone": backbone, "method": method, "clients": clients}
    yield f"{backbone}, {method}, {clients}", {**common, **names}


def measure(point: dict, seconds: float, folder: str) -> dict[str, Any]:
  """Measures a point with a compilation cache in a folder; "": with none."""
  env = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
  command = subprocesses.module("rounds", json.dumps(point))
  text, why = subprocesses.run(
    command, seconds, subprocesses.cached(folder) if folder else env
  )
  result = subprocesses.merged(text)
  return {**result, "failed": why} if why else result


def digest(table: str, point: dict, seconds: float) -> dict[str, Any]:
  """Measures a point; adds medians and the memory of its own.

  For `compile` it is measured again with the cache that it left.
  """
  with tempfile.TemporaryDirectory() as folder:
    cache = folder if table == "compile" else ""
    result = measure(point, seconds, cache)
    if cache and "compile_s" in result:
      again = measure({**point, "rounds": 0}, seconds, cache)
      result["again_s"] = again.get("compile_s")
  for kind, name in (("s", "client_ms"), ("cpu_s", "client_cpu_ms")):
    if took := result.get(f"rounds_{kind}"):
      middle = statistics.median(took[1:] or took)
      trained = point["participants"] or point["clients"]
      result |= {f"round_{kind}": middle, name: 1e3 * middle / trained}
  if "peak_mb" in result:  # where Linux tells
    result["own_peak_mb"] = result["peak_mb"] - result["baseline_mb"]
  return result


def main() -> None:
  """Measures and prints a table."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("table", choices=TABLES)
  parser.add_argument("sizes", nargs="*", metavar="SIZE=JSON")
  parser.add_argument("--seconds", type=float, default=1200, help="of a point")
  parser.add_argument("--out", type=Path, help="a file for the JSON object")
  flags = parser.parse_args()
  sizes = SIZES | TABLES[flags.table]
  for size in flags.sizes:
    name, _, value = size.partition("=")
    sizes[name] = json.loads(value)
  subprocesses.stoppable()
  measured: dict[str, dict] = {}
  for name, point in points(sizes):
    print(f"{name} ...", flush=True)
    measured[name] = digest(flags.table, point, flags.seconds)
  rows = [
    {"": name, **{c: row[c] for c in COLUMNS if row.get(c)}}
    for name, row in measured.items()
  ]
  print(tabulate(rows, "keys", "github", floatfmt=".4g"))
  result = json.dumps({"table": flags.table, "points": measured, **sizes})
  if flags.out:
    flags.out.write_text(result + "\n")
  print(result)


if __name__ == "__main__":
  main()
