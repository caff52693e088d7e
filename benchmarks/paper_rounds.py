"""As many rounds of configs/harmony_figure2.py as fit into some minutes.

  python -m benchmarks.paper_rounds --workdir=runs/gpu --minutes=5 \
      [--methods harmony splitgp] [--data=fashion_mnist] [--data_dir=DIR]

A method's seconds a round are measured first, and what fits, 120 at most, is
trained and evaluated by launch.py in WORKDIR/METHOD. The same command again
leaves finished methods as they are; one that was interrupted keeps its number
of rounds and starts afresh. Without --data the images are random ones of the
same shape and number, whose accuracies mean nothing. The last line is one JSON
object.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import apart

ALL = 120
"""Rounds of the paper."""
CLIENTS, BATCH = 50, 50
KEYS = {
  "harmony": "harmony",
  "splitgp": "splitgp_02",
  "multi_exit": "multi_exit",
}
"""Name of a method -> its key in the config."""
SHARE = 0.7
"""Of the time that is there, what is planned with: evaluation comes on top."""


def planned(workdir: Path) -> int | None:
  """The number of rounds that a workdir was begun with."""
  config = workdir / "config.json"
  if not config.exists():
    return None
  return json.loads(config.read_text())["config"]["rounds"]


def rate(method: str, given, data: str, cache: str, seconds: float) -> dict:
  """Compiles the method's round and plays three."""
  point = {
    "data": data,
    "data_dir": given.data_dir,
    "method": method,
    "options": {"width": given.width},
    "clients": given.clients,
    "batch": BATCH,
    "rounds": 3,
  }
  return apart.measure(point, seconds, apart.cached(cache))


def fitting(result: dict, seconds: float) -> int:
  """Rounds that fit, 0 if none does."""
  if "failed" in result:
    return 0
  each = statistics.median(result["rounds_s"][1:])
  # Set up once more; compile an evaluation, and perhaps the round again.
  start = result["setup_s"] + 2 * (result["trace_s"] + result["compile_s"])
  return max(0, min(ALL, int((SHARE * seconds - start) / each)))


def launched(
  method: str, rounds: int, given, data: str, cache: str
) -> list[str]:
  """The command that trains."""
  command = [
    sys.executable,
    "launch.py",
    f"--config=configs/harmony_figure2.py:paper,{KEYS[method]}",
    "--seeds=0",
    f"--workdir={given.workdir / method}",
    f"--config.rounds={rounds}",
    f"--config.eval.every={rounds}",
    f"--config.num_clients={given.clients}",
    f"--config.backbone.width={given.width}",
    f"--config.data.name={data}",
    f"--compilation_cache={cache}",
  ]
  if given.data_dir is not None:
    command += [f"--config.data.dir={given.data_dir}"]
  return command


def outcome(workdir: Path) -> dict:
  """What a run left: its rounds and seconds, and its rows if it ended."""
  log, report = workdir / "seed0/metrics.jsonl", workdir / "report.json"
  lines = apart.objects(log.read_text()) if log.exists() else []
  result: dict = {"rounds": len(lines)}
  if lines:
    result["round_s"] = statistics.median(line["seconds"] for line in lines)
    result["loss"] = lines[-1]["loss"]
    result["accuracy"] = lines[-1].get("accuracy")
  return {**result, "finished": report.exists()}


def train(method: str, given, data: str, cache: str, seconds: float) -> dict:
  """Trains what fits of a method, unless it is finished."""
  end = time.monotonic() + seconds
  workdir = given.workdir / method
  if (workdir / "report.json").exists():
    return {**outcome(workdir), "before": True}
  rounds, result = planned(workdir), {}
  if rounds is None:
    result = rate(method, given, data, cache, seconds)
    rounds = fitting(result, end - time.monotonic())
  result["planned"] = rounds
  if not rounds:
    why = result.pop("failed", "")
    return {**result, "skipped": f"no round fits into {seconds:.0f} s; {why}"}
  command = launched(method, rounds, given, data, cache)
  _, why = apart.run(command, end - time.monotonic())
  result |= outcome(workdir)
  return {**result, "failed": why} if why else result


def main() -> None:
  """Measures and prints a line a method."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--workdir", type=Path, required=True)
  parser.add_argument("--minutes", type=float, default=5)
  both = ["harmony", "splitgp"]
  parser.add_argument("--methods", nargs="+", choices=[*KEYS], default=both)
  parser.add_argument("--data", help="config.data.name; else random images")
  parser.add_argument("--data_dir", help="where prepared data lie")
  parser.add_argument("--quick", action="store_true", help="6 clients, narrow")
  given = parser.parse_args()
  given.clients, given.width, count = CLIENTS, 1.0, 60_000
  if given.quick:
    given.clients, given.width, count = 6, 1 / 32, 600
    given.methods = given.methods[:1]
    os.environ |= apart.HASTY
  apart.stoppable()
  end = time.monotonic() + 60 * given.minutes
  result = {}
  with tempfile.TemporaryDirectory() as folder:
    data = given.data
    if data is None:
      data = apart.images(folder, (28, 28, 1), 10, count, count // 6)
      print("random images: accuracies mean nothing", flush=True)
    for i, method in enumerate(given.methods):
      share = (end - time.monotonic()) / (len(given.methods) - i)
      result[method] = train(method, given, data, f"{folder}/cache", share)
      print(f"{method}: {json.dumps(result[method])}", flush=True)
  summary = {"methods": result, "data": given.data or "random images"}
  print(json.dumps({**summary, **apart.about(list(result.values()))}))


if __name__ == "__main__":
  main()
