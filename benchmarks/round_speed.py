"""Rounds of SplitGP and HARMONY in turn with the same in PyTorch.

  python -m benchmarks.round_speed [--batch=50] [--width=1] [--clients=20] [...]

`cnn8`, cuts 2, 3 and 4, against plain PyTorch, a process of its own that waits
meanwhile. The ratio is pair by pair, so a machine whose speed drifts does not
spoil it; the first rounds do not count. The last line is one JSON object.
"""

import argparse
import json
import statistics
import subprocess

import jax

from benchmarks import subprocesses
from benchmarks.rounds import Rounds, Setting, machine
from splitjax.experiment.machine import use_cores

BEFORE = 2
"""Rounds that do not count."""


class Torch:
  """The PyTorch side: `torch_rounds.py` in a process of its own."""

  def __init__(self, setting: Setting, method: str):
    self.method = method
    sizes = {k: getattr(setting, k) for k in ("samples", "batch", "width")}
    point = {
      **sizes,
      "depths": setting.depths,
      "threads": machine()["cores"],
      "device": "cuda" if jax.default_backend() == "gpu" else "cpu",
    }
    self.process = subprocess.Popen(
      subprocesses.module("torch_rounds", json.dumps(point)),
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
      bufsize=1,
    )
    assert self.process.stdin and self.process.stdout
    self.questions = self.process.stdin
    self.answers = self.process.stdout
    self.version = self.answer()["torch"]

  def answer(self) -> dict:
    """Reads one answer; a process that has ended gives none."""
    line = self.answers.readline()
    if not line:
      raise RuntimeError(f"PyTorch's process ended: {self.process.wait()}")
    return json.loads(line)

  def __call__(self) -> float:
    """Runs a round; returns its seconds."""
    self.questions.write(json.dumps({"method": self.method}) + "\n")
    return self.answer()["seconds"]

  def close(self) -> None:
    """Lets the process end, which it does when no question can come."""
    self.questions.close()
    self.process.wait()


def compare(ours: Rounds, other: Torch, repeats: int) -> dict:
  """Seconds of both in turn, and ratios PyTorch/ours."""
  pairs = [(ours(), other()) for _ in range(BEFORE + repeats)][BEFORE:]
  ratios = sorted(theirs / seconds for seconds, theirs in pairs)
  return {
    "ratio": statistics.median(ratios),
    "ratios": ratios,
    "seconds": statistics.median(seconds for seconds, _ in pairs),
    "other_seconds": statistics.median(theirs for _, theirs in pairs),
    "devices": ours.devices,
  }


def main() -> None:
  """Measures and prints a table."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--width", type=float, default=1.0)
  parser.add_argument("--batch", type=int, nargs="+", default=[50, 16])
  for name, size in {"clients": 20, "samples": 200, "repeats": 5}.items():
    parser.add_argument(f"--{name}", type=int, default=size)
  parser.add_argument("--methods", nargs="+", default=["splitgp", "harmony"])
  flags = parser.parse_args()
  use_cores()  # as launch.py does
  columns = ("PyTorch/ours", "range", "ours [s]", "PyTorch [s]")
  print(f"{'':16}" + "".join(f"{c:>16}" for c in columns))
  result, about = dict[str, dict](), machine()
  for batch in flags.batch:
    setting = Setting(
      clients=flags.clients, samples=flags.samples, batch=batch,
      width=flags.width,
    )  # fmt: skip
    for method in flags.methods:
      torch = Torch(setting, method)
      about["torch"] = torch.version
      row = compare(Rounds(setting, method), torch, flags.repeats)
      torch.close()
      result[f"{method}, {batch}"] = row
      span = f"{row['ratios'][0]:.2f}-{row['ratios'][-1]:.2f}"
      print(
        f"{method:16}{row['ratio']:16.2f}{span:>16}{row['seconds']:16.2f}"
        f"{row['other_seconds']:16.2f}",
        flush=True,
      )
  print(json.dumps({"rounds": result, **about, **vars(flags)}))


if __name__ == "__main__":
  main()
