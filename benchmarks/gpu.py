"""All benchmarks of splitjax on one CUDA device, in one command.

  python -m benchmarks.gpu --out=gpu.json [--minutes=12] [--parts clients ...]
      [--quick]

Device and versions; rounds against PyTorch; time and memory over the number of
clients; compile times. Every part is a process of its own with a share of the
minutes, and is skipped, with the reason, when they are over. What was done is
in --out after each part. --quick runs on a CPU, too, and measures nothing of
use. The last line is one JSON object.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from benchmarks import subprocesses

LEAST = 10
"""Seconds below which no part starts."""

PARTS = {
  "device": 0.1,
  "round_speed": 0.3,
  "clients": 0.15,
  "compile": 0.15,
}
"""Part -> its share of all minutes, if so much is left."""


def command(name: str, given, about: dict, seconds: float) -> list[str] | str:
  """Returns the command of a part, or the reason why there is none.

  `about` is what `device` said.
  """
  quick = ["--quick"] if given.quick else []
  # A part is to end by itself, before it is stopped.
  soft = f"--minutes={max(seconds - LEAST, 0) / 60:.3f}"
  if name == "device":
    return subprocesses.module("device")
  if name == "round_speed":
    if about.get("torch") is None:
      return "PyTorch is not installed"
    if about["backend"] == "gpu" and not about["torch_cuda"]:
      return f"PyTorch {about['torch']} is without CUDA"
    sizes = ["--batch=50", "--clients=50", "--samples=400", "--repeats=3"]
    return subprocesses.module("round_speed", *(quick or sizes))
  sizes = {
    "clients": ["--width=1", "--chunk=50"],
    "compile": ["--backbones", "cnn8", "vgg11", "mobilenet_v2", "vit_s16"],
  }[name]
  return subprocesses.module("scaling", name, soft, *(quick or sizes))


def measure(name: str, given, about: dict, seconds: float) -> dict:
  """Runs a part and shows what it printed; its JSON object."""
  words = command(name, given, about, seconds)
  if isinstance(words, str):
    return {"skipped": words}
  if seconds < LEAST:
    return {"skipped": f"{max(seconds, 0):.0f} s were left"}
  start = time.monotonic()
  text, why = subprocesses.run(words, seconds)
  result = {}
  for part in (text, *text.splitlines()[-1:]):
    try:
      result = json.loads(part)
    except json.JSONDecodeError:
      print(part, flush=True)
  result["part_s"] = time.monotonic() - start
  return {**result, "failed": why} if why else result


def options() -> argparse.Namespace:
  """The command line."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--minutes", type=float, default=12)
  parser.add_argument("--out", type=Path, help="file for the JSON object")
  parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
  parser.add_argument("--quick", action="store_true", help="a smoke test")
  return parser.parse_args()


def main() -> None:
  """Runs the parts one after another."""
  given = options()
  subprocesses.stoppable()
  if given.quick:
    os.environ |= subprocesses.HASTY
  total = 60 * given.minutes
  end = time.monotonic() + total
  result: dict[str, dict] = {}
  for name in ("device", *(p for p in given.parts if p != "device")):
    seconds = min(PARTS[name] * total, end - time.monotonic() - 1)
    print(f"== {name}, {max(seconds, 0):.0f} s", flush=True)
    about = result.get("device", {})
    result[name] = measure(name, given, about, seconds)
    for key in ("skipped", "failed"):
      if key in result[name]:
        print(f"{name} {key}: {result[name][key]}", flush=True)
    if name == "device" and "backend" not in result[name]:
      sys.exit("no device could be used")
    if given.out is not None:
      given.out.write_text(json.dumps(result, indent=1) + "\n")
  print(json.dumps(result))


if __name__ == "__main__":
  main()
