"""Each convolution of real networks in every formulation, on this device.

  python -m benchmarks.formulations [--backbones cnn8 ...] [--clients=12]
      [--batch=50] [--minutes=9] [--quick]

What a run with system.conv=measured, and "auto" on an accelerator, chooses
from: microseconds of a step of all clients side by side, forward and both
gradients, in a loop. The last line is one JSON object.
"""

import argparse
import json
import time

from benchmarks.device import machine
from benchmarks.scaling import INPUTS
from splitjax import BACKBONES
from splitjax.engine import tuning
from splitjax.experiment.trainers.measured import in_words


def options() -> argparse.Namespace:
  """The command line."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  networks = ["cnn8", "vgg11", "mobilenet_v2"]
  parser.add_argument("--backbones", nargs="+", default=networks)
  parser.add_argument("--clients", type=int, default=12)
  parser.add_argument("--batch", type=int, default=50)
  parser.add_argument("--minutes", type=float, default=9)
  parser.add_argument("--quick", action="store_true", help="a smoke test")
  return parser.parse_args()


def main() -> None:
  """Times layers until the minutes are over."""
  given = options()
  end = time.monotonic() + 60 * given.minutes
  size = {"clients": given.clients, "images": given.batch}
  narrow = {}
  if given.quick:
    size, given.backbones = {"clients": 2, "images": 2}, ["cnn8"]
    narrow = {"width": 0.03125}
  tables: dict[str, dict] = {}
  late = []
  for name in given.backbones:
    shape, classes = INPUTS[name]
    for dtype in ("float32", "bfloat16"):
      net = BACKBONES[name](shape, classes, dtype=dtype, **narrow)
      table = tables.setdefault(f"{name}, {dtype}", {})
      for layer in tuning.layers(net, size["images"]):
        if time.monotonic() > end:
          late.append(f"{name}: {layer.name}")
          continue
        table[layer.name] = each = tuning.microseconds(layer, **size)
        print(f"{name}, {layer.name}: {in_words(each)}", flush=True)
  print(json.dumps({**machine(), **size, "microseconds": tables, "late": late}))


if __name__ == "__main__":
  main()
