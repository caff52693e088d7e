"""All benchmarks of splitjax on one CUDA device, in one command.

  python -m benchmarks.gpu --out=gpu.json --workdir=runs/gpu [--minutes=9] \
      [--data=fashion_mnist --data_dir=DIR] [--parts layers ...] [--quick]

Device and versions; rounds against PyTorch; convolutions layer by layer in
every formulation, 32 and 16 bits; time and memory over the number of clients;
compile times; as many rounds of configs/harmony_figure2.py as the rest allows.
Every part is a process of its own with a share of the minutes, and is skipped,
with the reason, when they are over. What was done is in --out after each part;
the same command trains no finished method of --workdir again. --quick runs on a
CPU, too, and measures nothing of use. The last line is one JSON object.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import apart

LEAST = 10
"""Seconds below which no part starts."""

HARMONY = ["cnn8", "vgg11", "mobilenet_v2", "resnet50", "vit_s16"]

Part = Callable[[argparse.Namespace, dict, float], "list[str] | str"]
"""(options, output of `device`, seconds) -> command, or the reason for none."""


def quick(given: argparse.Namespace) -> list[str]:
  """The option, if it was given."""
  return ["--quick"] if given.quick else []


def soft(seconds: float) -> str:
  """A part is to end by itself, before it is stopped."""
  return f"--minutes={max(seconds - LEAST, 0) / 60:.3f}"


def device(given, about, seconds) -> list[str]:
  """Which device."""
  return apart.module("device")


def round_speed(given, about, seconds) -> list[str] | str:
  """Against PyTorch."""
  if about.get("torch") is None:
    return "PyTorch is not installed"
  if about["backend"] == "gpu" and not about["torch_cuda"]:
    return f"PyTorch {about['torch']} is without CUDA"
  sizes = ["--batch=50", "--clients=50", "--samples=400", "--repeats=3"]
  return apart.module("round_speed", *(quick(given) or sizes))


def layers(given, about, seconds) -> list[str]:
  """Formulations of convolutions."""
  return apart.module("layers", soft(seconds), *quick(given))


def scaling(given, about, seconds) -> list[str]:
  """Over clients; forced host devices are a CPU's."""
  sizes = quick(given) or ["--width=1", "--chunk=50"]
  return apart.module("scaling", *sizes, soft(seconds), "--devices")


def compile_time(given, about, seconds) -> list[str]:
  """HARMONY's backbones."""
  sizes = quick(given) or ["--backbones", *HARMONY]
  return apart.module("compile_time", *sizes, soft(seconds))


def paper_rounds(given, about, seconds) -> list[str]:
  """The paper's setting."""
  result = [f"--workdir={given.workdir}", soft(seconds), *quick(given)]
  for name in ("data", "data_dir"):
    value = getattr(given, name)
    result += [] if value is None else [f"--{name}={value}"]
  return apart.module("paper_rounds", *result)


PARTS: dict[str, tuple[Part, float]] = {
  "device": (device, 0.1),
  "round_speed": (round_speed, 0.15),
  "layers": (layers, 0.2),
  "scaling": (scaling, 0.15),
  "compile_time": (compile_time, 0.15),
  "paper_rounds": (paper_rounds, 1.0),
}
"""Part -> what it runs, and its share of all minutes, if so much is left."""

ENVIRONMENT = {"round_speed": {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5"}}
"""What differs in a part's: there PyTorch has the other half of the memory."""


def measure(name: str, given, about: dict, seconds: float) -> dict:
  """Runs a part and shows what it printed; its JSON object."""
  command = PARTS[name][0](given, about, seconds)
  if isinstance(command, str):
    return {"skipped": command}
  if seconds < LEAST:
    return {"skipped": f"{max(seconds, 0):.0f} s were left"}
  start = time.monotonic()
  text, why = apart.run(command, seconds, ENVIRONMENT.get(name))
  *lines, last = text.splitlines() or [""]
  result = (apart.objects(last) or [{}])[0]
  print("\n".join(lines if result else [*lines, last]), flush=True)
  result["part_s"] = time.monotonic() - start
  return {**result, "failed": why} if why else result


def options() -> argparse.Namespace:
  """The command line."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--minutes", type=float, default=9)
  parser.add_argument("--out", type=Path, help="file for the JSON object")
  parser.add_argument("--workdir", type=Path, default=Path("runs/gpu"))
  parser.add_argument("--data", help="config.data.name; else random images")
  parser.add_argument("--data_dir", help="where prepared data lie")
  parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
  parser.add_argument("--quick", action="store_true", help="a smoke test")
  return parser.parse_args()


def main() -> None:
  """Runs the parts one after another."""
  given = options()
  apart.stoppable()
  if given.quick:
    os.environ |= apart.HASTY
  total = 60 * given.minutes
  end = time.monotonic() + total
  result: dict[str, dict] = {}
  for name in ("device", *(p for p in given.parts if p != "device")):
    seconds = min(PARTS[name][1] * total, end - time.monotonic() - 1)
    print(f"== {name}, {max(seconds, 0):.0f} s", flush=True)
    about = result.get("device", {})
    result[name] = measure(name, given, about, seconds)
    for key in ("skipped", "failed"):
      if key in result[name]:
        print(f"{name} {key}: {result[name][key]}", flush=True)
    if name == "device":
      print(json.dumps(result[name]), flush=True)
      if "backend" not in result[name]:
        sys.exit("no device could be used")
    if given.out is not None:
      given.out.write_text(json.dumps(result, indent=1) + "\n")
  print(json.dumps(result))


if __name__ == "__main__":
  main()
