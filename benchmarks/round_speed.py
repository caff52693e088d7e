"""Rounds of methods in turn with the same in PyTorch, or with another method's.

  python -m benchmarks.round_speed [--batch=50] [--width=1] [--quick]
  python -m benchmarks.round_speed --methods supersfl --against splitgp
  python -m benchmarks.round_speed --whole

SplitGP and HARMONY on `cnn8`, cuts 2, 3 and 4, against plain PyTorch, a process
of its own that waits meanwhile. `--whole`: methods with the whole network on
the client against FedAvg, `cnn4`, batch 64, five epochs of the body; FedRep and
FedPAC have one of the head besides, PGFedSplit five on embeddings. The ratio is
pair by pair, so a machine whose speed drifts does not spoil it; first rounds do
not count, nor what a method does in its first rounds alone. The last line is
one JSON object.
"""

import argparse
import json
import statistics

import jax

from benchmarks import subprocesses
from benchmarks.device import machine
from benchmarks.rounds import Rounds, Setting
from splitjax.machine import use_cores

BEFORE = 2
"""Rounds that do not count."""

WHOLE = (
  "fedprox", "fedper", "fedrep", "fedbabu", "fedamp", "fedgh", "fedpac",
  "fedala", "fedfomo", "pgfedsplit",
)  # fmt: skip


class Torch(subprocesses.Asked):
  """The PyTorch side: `torch_rounds.py` in a process of its own."""

  def __init__(self, setting: Setting, method: str):
    self.method = method
    flags = {k: getattr(setting, k) for k in ("samples", "batch", "width")}
    flags |= {"threads": machine()["cores"], "depths": setting.depths}
    options = [f"--{name}={value}" for name, value in flags.items()]
    if jax.default_backend() == "gpu":
      options += ["--device=cuda"]
    super().__init__(subprocesses.module("torch_rounds", *options))
    self.version = self.answer()["torch"]

  def __call__(self) -> float:
    """Runs a round; returns its seconds."""
    return self.ask(method=self.method)["seconds"]


def compare(ours: Rounds, other: Rounds | Torch, repeats: int) -> dict:
  """Seconds of both in turn; ratios PyTorch/ours, or ours/another method's."""
  pairs = [(ours(), other()) for _ in range(BEFORE + repeats)][BEFORE:]
  up = isinstance(other, Torch)
  ratios = sorted(b / a if up else a / b for a, b in pairs)
  mine, theirs = (statistics.median(x) for x in zip(*pairs, strict=True))
  return {
    "ratio": statistics.median(ratios),
    "ratios": ratios,
    "seconds": mine,
    "other_seconds": theirs,
    "compile_s": ours.compile_s,
    "devices": ours.devices,
  }


def options() -> argparse.Namespace:
  """The command line."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--width", type=float, default=1.0)
  parser.add_argument("--batch", type=int, nargs="+")
  for name, size in {"clients": 20, "samples": 200, "repeats": 5}.items():
    parser.add_argument(f"--{name}", type=int, default=size)
  parser.add_argument("--methods", nargs="+")
  parser.add_argument("--against", help="a method, instead of PyTorch")
  parser.add_argument("--whole", action="store_true", help="against FedAvg")
  parser.add_argument("--quick", action="store_true", help="3 clients, narrow")
  given = parser.parse_args()
  given.batch = given.batch or ([64] if given.whole else [50, 16])
  given.methods = given.methods or (WHOLE if given.whole else None)
  given.methods = given.methods or ["splitgp", "harmony"]
  given.against = given.against or ("fedavg" if given.whole else None)
  if given.quick:
    given.clients, given.samples, given.width, given.repeats = 3, 48, 0.125, 2
  return given


def main() -> None:
  """Measures and prints a table."""
  given, result = options(), {}
  use_cores()  # as launch.py does
  name = given.against or "PyTorch"
  ratio = f"ours/{name}" if given.against else f"{name}/ours"
  columns = (ratio, "range", "ours [s]", f"{name} [s]")
  print(f"{'':16}" + "".join(f"{c:>16}" for c in columns))
  about = machine()
  for batch in given.batch:
    setting = Setting(
      clients=given.clients, samples=given.samples, batch=batch,
      width=given.width,
    )  # fmt: skip
    if given.whole:
      whole = {"backbone": "cnn4", "lr": 0.005, "momentum": 0.0}
      setting = setting._replace(**whole, epochs=1 if given.quick else 5)
    other = Rounds(setting, given.against) if given.against else None
    for method in given.methods:
      side = other or Torch(setting, method)
      key = f"{method}, {batch}"
      result[key] = row = compare(Rounds(setting, method), side, given.repeats)
      if isinstance(side, Torch):
        about["torch"] = side.version
        side.close()
      span = f"{row['ratios'][0]:.2f}-{row['ratios'][-1]:.2f}"
      print(
        f"{key:16}{row['ratio']:16.2f}{span:>16}{row['seconds']:16.2f}"
        f"{row['other_seconds']:16.2f}",
        flush=True,
      )
  print(json.dumps({"rounds": result, **about, **vars(given)}))


if __name__ == "__main__":
  main()
