"""Seconds until the first round: tracing, compiling, and from a cache again.

  python -m benchmarks.compile_time [--backbones cnn8 ...] [--methods ...] \
      [--toy] [--quick] [--out=benchmarks/results/compile_time_cpu.json]

Every backbone of BACKBONES at its real size and the input of its paper, its
usual cuts, 4 clients, one local step of 8 images, HARMONY and SplitGP; `--toy`
has every method of METHODS on the toy backbone. A point is a fresh process with
an empty compilation cache, which also plays a round; then another process with
the cache that it left. One that does not end in `--seconds` is listed with
what it got to. The last line is one JSON object.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

from benchmarks import apart
from splitjax import METHODS

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

CLIENTS = 4

HEADS = (
  "",
  "trace [s]",
  "compile [s]",
  "from cache [s]",
  "compile [CPU s]",
  "round [s]",
  "peak [MB]",
  "not finished",
)


def measure(
  backbone: str, method: str, batch: int, seconds: float
) -> dict[str, object]:
  """A point, cold and from its cache; "again_s" is tracing and loading."""
  shape, classes = INPUTS[backbone]
  with tempfile.TemporaryDirectory() as folder:
    point = {
      "data": apart.images(
        folder, shape, classes, max(CLIENTS * batch, classes)
      ),
      "backbone": backbone,
      "method": method,
      "clients": CLIENTS,
      "batch": batch,
      "samples": batch,
      "rounds": 1,
    }
    env = apart.cached(f"{folder}/cache")
    result = apart.measure(point, seconds, env)
    if "compile_s" in result:
      second = apart.measure({**point, "rounds": 0}, seconds, env)
      result |= {
        f"again_{key}": second[key]
        for key in ("trace_s", "compile_s", "compile_cpu_s")
        if key in second
      }
  return result


def row(name: str, result: dict) -> list:
  """Of the table."""
  return [
    name,
    result.get("trace_s"),
    result.get("compile_s"),
    result.get("again_compile_s"),
    result.get("compile_cpu_s"),
    result.get("rounds_s", [None])[0],
    result.get("peak_mb"),
    result.get("failed", ""),
  ]


def chosen(given: argparse.Namespace) -> list[tuple[str, str]]:
  """Backbone and method of every point."""
  points = [(b, m) for b in given.backbones for m in given.methods]
  return points + [("toy", m) for m in METHODS if given.toy]


def options() -> argparse.Namespace:
  """The command line."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  usual = [name for name in INPUTS if name != "toy"]
  parser.add_argument("--backbones", nargs="*", default=usual, choices=INPUTS)
  parser.add_argument("--methods", nargs="+", default=["harmony", "splitgp"])
  parser.add_argument("--toy", action="store_true", help="every method, toy")
  parser.add_argument("--batch", type=int, default=8)
  parser.add_argument("--seconds", type=float, default=300, help="of a process")
  parser.add_argument("--minutes", type=float, default=1e9, help="of them all")
  parser.add_argument("--out", type=Path, help="JSON; a table is put beside it")
  parser.add_argument("--quick", action="store_true", help="SplitGP on toy")
  given = parser.parse_args()
  if given.quick:
    given.backbones, given.methods, given.toy = ["toy"], ["splitgp"], False
    os.environ |= apart.HASTY
  return given


def main() -> None:
  """Measures and prints a table."""
  given = options()
  apart.stoppable()
  end = time.monotonic() + 60 * given.minutes
  points: dict[str, dict] = {}
  result: dict = {"clients": CLIENTS, "batch": given.batch, "points": points}
  print(apart.table(HEADS, []), flush=True)
  for backbone, method in chosen(given):
    name = f"{backbone}, {method}"
    left = min(given.seconds, end - time.monotonic())
    points[name] = measure(backbone, method, given.batch, left)
    print(apart.line(row(name, points[name])), flush=True)
    result |= apart.about(list(points.values()))
    text = apart.table(HEADS, [row(*item) for item in points.items()])
    apart.keep(given.out, text, result)
  print(json.dumps(result))


if __name__ == "__main__":
  main()
