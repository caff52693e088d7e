"""Rounds of SplitGP and HARMONY against the same rounds in plain PyTorch.

  python -m benchmarks.round_speed [--batch=50] [--width=1] [--quick]

`cnn8`, cuts 2, 3 and 4. Both sides run a round in turn, PyTorch in a process of
its own that waits meanwhile; the ratio is pair by pair, so a machine whose
speed drifts does not spoil it. The last line is one JSON object.

  python -m benchmarks.round_speed --methods supersfl --against splitgp

compares with another method's round of ours instead.
"""

import argparse
import json
import statistics

import jax

from benchmarks import apart
from benchmarks import setting as settings
from splitjax.engine import distributed


class Torch(apart.Asked):
  """The PyTorch side: `torch_rounds.py` in a process of its own."""

  def __init__(self, **flags):
    flags["threads"] = settings.machine()["cores"]
    options = [f"--{name}={value}" for name, value in flags.items()]
    if jax.default_backend() == "gpu":
      options += ["--device=cuda"]
    super().__init__(apart.module("torch_rounds", *options))
    self.version = self.answer()["torch"]


def compare(
  setting: settings.Setting, other: Torch, name: str, repeats: int
) -> dict:
  """Seconds of both sides in turn, their ratios and flops."""
  program = settings.Program(setting, name)
  ours, theirs, top, top_torch = [], [], [], []
  for i in range(repeats + 1):  # the first pair warms up
    pair = program(), other.ask(method=name)["seconds"]
    tops = settings.ceiling(), other.ask(ceiling=True)["gflops"]
    if i:
      for place, value in zip(
        (ours, theirs, top, top_torch), (*pair, *tops), strict=True
      ):
        place.append(value)
  ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
  mid = {"ours": statistics.median(ours), "torch": statistics.median(theirs)}
  work, best = settings.flops(setting, name) / 1e9, statistics.median(top)
  return {
    "ratio": statistics.median(ratios),
    "ratios": sorted(ratios),
    "seconds": mid["ours"],
    "torch_seconds": mid["torch"],
    "compile_s": program.compile_s,
    "devices": program.devices,
    "gflop": work,
    "ceiling_gflops": best,
    "torch_ceiling_gflops": statistics.median(top_torch),
    "fraction": work / mid["ours"] / best,
    "torch_fraction": work / mid["torch"] / best,
  }


def against(
  setting: settings.Setting, name: str, other: str, repeats: int
) -> dict:
  """Seconds of the rounds of two methods in turn, and their ratios."""
  programs = [settings.Program(setting, each) for each in (name, other)]
  pairs = [[program() for program in programs] for _ in range(repeats + 1)][1:]
  ratios = [ours / theirs for ours, theirs in pairs]
  mine, base = (statistics.median(x) for x in zip(*pairs, strict=True))
  return {
    "ratio": statistics.median(ratios),
    "ratios": sorted(ratios),
    "seconds": mine,
    "other_seconds": base,
  }


def main() -> None:
  """Measures and prints a table."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--width", type=float, default=1.0)
  parser.add_argument("--batch", type=int, nargs="+", default=[50, 16])
  parser.add_argument("--clients", type=int, default=20)
  parser.add_argument("--samples", type=int, default=200)
  parser.add_argument("--repeats", type=int, default=5)
  parser.add_argument("--methods", nargs="+", default=list(settings.OPTIONS))
  parser.add_argument(
    "--quick", action="store_true", help="3 clients, 48 samples, an 8th as wide"
  )
  parser.add_argument("--against", help="a method, in place of PyTorch")
  given = parser.parse_args()
  if given.quick:
    given.clients, given.samples, given.width, given.repeats = 3, 48, 0.125, 2
  distributed.use_cores()  # as launch.py does
  result: dict[str, dict] = {}
  if given.against:
    for batch in given.batch:
      setting = settings.make(given.clients, given.samples, batch, given.width)
      for name in given.methods:
        row = against(setting, name, given.against, given.repeats)
        result[f"{name}, {batch}"] = row
        low, *_, high = row["ratios"]
        print(
          f"{name}, batch {batch}: {row['ratio']:.2f} ({low:.2f}-{high:.2f})"
          f" times the {row['other_seconds']:.2f} s of {given.against}",
          flush=True,
        )
    print(json.dumps({"rounds": result, **settings.machine(), **vars(given)}))
    return
  columns = ("PyTorch/ours", "range", "ours [s]", "PyTorch [s]", "of ceiling")
  print(f"{'':14}" + "".join(f"{c:>15}" for c in columns))
  for batch in given.batch:
    setting = settings.make(given.clients, given.samples, batch, given.width)
    other = Torch(
      depths=list(setting.depths),
      samples=setting.samples,
      batch=setting.batch,
      width=given.width,
    )
    for name in given.methods:
      row = result[f"{name}, {batch}"] = compare(
        setting, other, name, given.repeats
      )
      low, *_, high = row["ratios"]
      print(
        f"{name + ', ' + str(batch):14}{row['ratio']:15.2f}"
        f"{f'{low:.2f}-{high:.2f}':>15}{row['seconds']:15.2f}"
        f"{row['torch_seconds']:15.2f}{row['fraction']:15.2f}",
        flush=True,
      )
    other.close()
  about = {**settings.machine(), "torch": other.version, **vars(given)}
  print(json.dumps({"rounds": result, **about}))


if __name__ == "__main__":
  main()
