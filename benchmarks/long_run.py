"""The table `rounds` of `scaling.py`: a whole run, looked at on its way."""

import argparse
import itertools
from pathlib import Path

import splitjax
from benchmarks import measure_one, subprocesses
from splitjax import METHODS, PARTITIONS, SHIFTS, Config


def measure(given: argparse.Namespace, folder: str) -> dict[str, dict]:
  """Rounds that are done -> memory [MB], bytes of log and newest record."""
  n, rounds = given.clients[0], given.rounds
  c = splitjax.default(backbone="toy")
  c.data.name = subprocesses.images(folder, (8, 8, 1), 10, 6 * n, tests=200)
  shards = {"k": 1, "num_shards": n}
  c.data.partition = splitjax.spec(PARTITIONS, "shard", **shards)
  c.eval.shift, c.eval.rhos = splitjax.spec(SHIFTS, "global"), None
  c.num_clients, c.participants_per_round = n, given.participants
  c.rounds, c.batch_size, c.eval.every = rounds, 6, max(rounds // 4, 1)
  c.backbone.depths, c.backbone.width, c.backbone.length = (1, 2), 16, 3
  c.checkpoint.every = max(rounds // 20, 1)
  splitjax.compare(c, {"splitgp": splitjax.spec(METHODS, "splitgp")})
  found: dict[str, dict] = {}
  workdir, place = Path(folder) / "w", Path(folder) / "w/methods/splitgp"
  asked = itertools.count(-1)  # twice before the first round

  def look() -> None:
    done = next(asked)
    if done <= 0 or done % c.checkpoint.every:
      return
    records = place.glob("checkpoints/*/record.json")
    newest = max(records, key=lambda path: int(path.parent.name), default=None)
    found[str(done)] = {
      "memory_mb": measure_one.memory().get("anonymous_mb"),
      "log_bytes": (workdir / "metrics.jsonl").stat().st_size,
      "record_bytes": newest and newest.stat().st_size,
    }
    print(done, found[str(done)], flush=True)

  splitjax.run(Config.from_dict(c.to_dict()), workdir, stop=look)
  found["end"] = {
    "about_bytes": (place / "about.json").stat().st_size,
    "report_bytes": (workdir / "report.json").stat().st_size,
  }
  return found
