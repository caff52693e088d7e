"""What one short lease of a GPU should answer, in the order of its worth.

  python -m benchmarks.gpu --minutes 15 --out DIR [--data_dir DATA]
      [--wheels WHEELS] [--toy]

A queue of parts. A finished part is a small file DIR/NAME.json, and a later
start with the same DIR skips it. A part is started only if the seconds that it
is expected to take are there; one that takes longer is ended a minute before
the time is over, and a training run then goes on from its checkpoint when it is
started again. Nothing needs a network: `--wheels` installs the packages of a
folder, and DATA holds prepared data, arrays of `python -m splitjax.data`. The
first line says what the device is. `--toy` rehearses the queue on a CPU.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from benchmarks import subprocesses

SPARE = 60
"""Seconds before the end at which all work has ended."""

GOLDEN = [sys.executable, "-m", "tests.helpers.golden", "check"]
ROUNDS = {
  "clients": 50, "samples": 400, "batch": 50, "chunk": 50, "rounds": 4,
}  # fmt: skip


class Part(NamedTuple):
  """A process whose outcome is a file.

  The seconds of all but HARMONY's and SplitGP's rounds are guesses by the
  number of steps.
  """

  name: str  #: of its file
  seconds: float  #: expected on an H200, with compilation
  command: list[str]  #: prints JSON objects, or trains
  run: str = ""  #: the folder in which it trains, if it does
  seed: int = 0  #: of the run


def measurements(out: Path) -> Iterator[Part]:
  """Lists what is no training; a round of each kind is profiled in `out`."""
  module = subprocesses.module
  yield Part("layers", 120, module("layers"))
  yield Part("golden", 180, GOLDEN)
  fifty = ("--batch=50", "--clients=50", "--samples=400", "--repeats=3")
  for method, seconds in (("splitgp", 70), ("harmony", 150)):
    command = module("round_speed", *fifty, f"--methods={method}")
    yield Part(f"torch_{method}", seconds, command)
  for method in ("splitgp", "harmony"):
    profile = str(out / f"profile_{method}")
    point = json.dumps({**ROUNDS, "method": method, "profile": profile})
    yield Part(f"bound_{method}", 40, module("rounds", point))


def trainings() -> Iterator[Part]:
  """Lists the tables and figures at their papers' scale."""
  figure2 = {"harmony": 250, "splitgp_02": 130, "splitgp_09": 100,
             "multi_exit": 90}  # fmt: skip
  for seed in (1, 2):
    for row, seconds in figure2.items():
      yield training("figure2", seconds, "harmony.py:figure2", row, seed)
  for seed in (0, 1, 2):  # why 83.0 and not the printed 77.3
    slow = ("--config.optimizer.lr=0.01", "--config.optimizer.momentum=0.0")
    yield training(
      "plain_sgd", 120, "harmony.py:figure2", "splitgp_02", seed, *slow
    )
  for seed in (0, 1, 2):
    for row in ("splitgp", "multi_exit", "general", "personal"):
      yield training("splitgp", 90, "splitgp.py:table2", row, seed)
  alpha = "--sweep=data.partition.alpha=0.1"
  for row in ("pgfedsplit", "fedper", "fedala", "fedpac", "fedavg"):
    yield training("pgfedsplit", 400, "pgfedsplit.py:table2", row, 0, alpha)
  for row in ("supersfl", "dfl", "sfl"):
    yield training("supersfl", 600, "supersfl.py:table1,vgg11", row, 0)
  cell = ("--sweep=order.name=cyclic", "--sweep=num_clients=10")
  yield training("hydra", 700, "hydra.py:table1", "sfl", 0, *cell)


def training(
  run: str, seconds: float, config: str, row: str, seed: int, *flags: str
) -> Part:
  """Makes a part that trains one row of a config with one seed."""
  command = [
    sys.executable, "launch.py", f"--config=configs/{config},{row}",
    f"--sweep=seed={seed}", "--figures=none", *flags,
  ]  # fmt: skip
  return Part(f"{run}_{row}_{seed}", seconds, command, run, seed)


def toys() -> list[Part]:
  """Lists parts of all kinds, each of a few seconds on a CPU."""
  point = {"method": "fedavg", "backbone": "cnn4", "clients": 2, "samples": 20,
           "batch": 10, "width": 0.03125, "rounds": 1}  # fmt: skip
  small = [
    "--config.rounds=1", "--config.num_clients=2", "--config.backbone.name=toy",
    "--config.backbone.depths=1", "--config.data.partition.num_shards=4",
  ]  # fmt: skip
  return [
    Part("layers", 10, subprocesses.module("layers", "--toy")),
    Part("golden", 10, [*GOLDEN, "local"]),
    Part("bound", 10, subprocesses.module("rounds", json.dumps(point))),
    training("quickstart", 20, "quickstart.py:", "multi_exit", 0, *small),
  ]


def accuracies(run: Path, seed: int) -> dict[str, dict[str, float]]:
  """Reads a run's numbers after its last round: row -> test set -> accuracy."""
  table = pd.read_csv(run / "numbers.csv", dtype={"set": str})
  narrower = ["part", "round", "client", "class", "threshold"]
  means = table[narrower].isna().all(axis=1) & (table["metric"] == "accuracy")
  of_seed = table[means & (table["seed"] == seed)]
  return {
    str(row): dict(zip(lines["set"], lines["value"], strict=True))
    for row, lines in of_seed.groupby("row")
  }


def work(
  part: Part, flags: argparse.Namespace, seconds: float
) -> dict[str, Any]:
  """Runs a part; returns what it found, or with "failed" why it did not."""
  command = part.command
  cache = flags.out / "programs"
  if part.run:
    command = [
      *command, f"--workdir={flags.out / part.run}",
      f"--compilation_cache={cache}",
    ]  # fmt: skip
    if flags.data_dir:
      command.append(f"--data_dir={flags.data_dir}")
  start = time.monotonic()
  text, why = subprocesses.run(
    command, seconds, subprocesses.cached(str(cache))
  )
  result = subprocesses.merged(text)
  if part.run and not why:
    result["accuracy"] = accuracies(flags.out / part.run, part.seed)
  result["seconds"] = time.monotonic() - start
  return {**result, "failed": why} if why else result


def serve(queue: list[Part], flags: argparse.Namespace, end: float) -> None:
  """Runs parts one after another until a time of the monotonic clock."""
  for part in queue:
    file, rest = flags.out / f"{part.name}.json", end - time.monotonic()
    if file.exists():
      print(f"{part.name}: finished before", flush=True)
    elif rest < part.seconds:
      print(f"{part.name}: {part.seconds} s are not there", flush=True)
    else:
      result = work(part, flags, rest)
      if "failed" not in result:  # otherwise a later start tries it again
        file.write_text(json.dumps(result) + "\n")
      print(f"{part.name}: {json.dumps(result)[:300]}", flush=True)


def main() -> None:
  """Installs, says what the device is, and runs the queue."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--minutes", type=float, required=True)
  parser.add_argument("--out", type=Path, required=True)
  parser.add_argument("--data_dir", type=Path, help="prepared data")
  parser.add_argument("--wheels", type=Path, help="packages to install")
  parser.add_argument("--toy", action="store_true", help="rehearse on a CPU")
  flags = parser.parse_args()
  end = time.monotonic() + 60 * flags.minutes - SPARE
  subprocesses.stoppable()
  flags.out.mkdir(parents=True, exist_ok=True)
  if flags.wheels:
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps"]
    subprocess.run([*pip, *flags.wheels.glob("*.whl")], check=True)
  if flags.toy:
    os.environ |= subprocesses.HASTY
  device, why = subprocesses.run(subprocesses.module("rounds"), SPARE)
  print(device.strip() or why, flush=True)
  if why:
    sys.exit("no device could be used")
  (flags.out / "device.json").write_text(device)
  serve(
    toys() if flags.toy else [*measurements(flags.out), *trainings()],
    flags,
    end,
  )


if __name__ == "__main__":
  main()
