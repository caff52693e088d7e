"""A few participants of many clients: more clients, more devices, more rounds.

  python -m benchmarks.participants [--clients 1000 10000] [--quick]
  python -m benchmarks.participants --weak [--devices 1 2 4 8]
  python -m benchmarks.participants --long [--rounds 2000]

The first: `--participants` of a round, a hundred, of ever more clients, which
lie on the host (system.clients_on) and, for comparison, on the device. Images
are memory-mapped. Time and memory of a round are to depend on the participants
alone; anonymous memory is that of the process without mapped files.

`--weak`: `--each` clients on each of ever more forced devices of a CPU, and on
two processes with a device each. Devices share the machine's cores, so a round
cannot stay as short; what is read are the collective operations of the compiled
text, and the bytes of their results, which each device gets in a round.
`--participants` are those of each device, all by default.

SplitGP on a narrow `cnn8`, one client at a time; every point is a process of
its own. The last line is one JSON object.

`--long`: a whole run, with log, evaluations and checkpoints, of a network of
dense blocks and `--clients`, 1,400, of whom ten take part in a round. Memory
and the size of a checkpoint's record are not to grow with the rounds.
"""

import argparse
import itertools
import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import splitjax
from benchmarks import apart, point, scaling
from benchmarks.setting import machine
from splitjax import METHODS, PARTITIONS, SHIFTS, Config


def over_clients(given: argparse.Namespace, folder: str) -> dict:
  """Place and number of the clients -> a point."""
  points: dict = {}
  heads = "clients", *scaling.HEADS[2:5], "anonymous [MB]", "CPU s a round"
  print(apart.table((*heads, "rounds an hour", "not finished"), []), flush=True)
  for where in given.clients_on:
    for n in given.clients:
      one = scaling.narrow(given, folder, n)
      one |= {"participants": given.participants, "clients_on": where}
      name = f"{n} on the {where}"
      points[name] = result = scaling.measure(one, given)
      keys = "round_s", "own_peak_mb", "program_mb", "anonymous_mb"
      cells = [*map(result.get, keys), result.get("round_cpu_s")]
      hourly = 3600 / result["round_s"] if "round_s" in result else None
      why = result.get("failed", "")
      print(
        apart.line([f"{n} on the {where}", *cells, hourly, why]), flush=True
      )
  return points


def over_devices(given: argparse.Namespace, folder: str) -> dict:
  """Devices -> a point with `given.each` clients on each."""
  points: dict = {}
  heads = "devices", "clients", "round [s]", "round [CPU s]", "exchanged"
  print(apart.table((*heads, "not finished"), []), flush=True)
  most = given.participants
  for name in [*map(str, given.devices), "2 processes"]:
    n = int(name.split()[0])
    one = scaling.narrow(given, folder, n * given.each)
    one |= {"devices": n, "participants": most and most * n}
    if name == "2 processes":
      result = in_two_processes({**one, "devices": None}, given)
    else:
      result = scaling.measure(one, given, forced(n))
    points[name] = result
    said = ", ".join(
      f"{each['count']} {kind} {each['bytes'] / 1e6:.3f} MB"
      for kind, each in result.get("exchanged", {}).items()
    )
    took = map(result.get, ("round_s", "round_cpu_s"))
    why = result.get("failed", "")
    cells = [name, result["clients"], *took, said or "nothing", why]
    print(apart.line(cells), flush=True)
  return points


def over_rounds(given: argparse.Namespace, folder: str) -> dict:
  """Rounds that are done -> memory [MB], bytes of log and newest record."""
  n, rounds = given.clients[0], given.rounds
  c = splitjax.default(backbone="toy")
  c.data.name = apart.images(folder, (8, 8, 1), 10, 6 * n, tests=200)
  shards = {"k": 1, "num_shards": n}
  c.data.partition = splitjax.spec(PARTITIONS, "shard", **shards)
  c.eval.shift, c.eval.rhos = splitjax.spec(SHIFTS, "global"), None
  c.num_clients, c.participants_per_round = n, given.participants
  c.rounds, c.batch_size, c.eval.every = rounds, 6, max(rounds // 4, 1)
  c.backbone.depths, c.backbone.width, c.backbone.length = (1, 2), 16, 3
  c.checkpoint.every = max(rounds // 20, 1)
  splitjax.compare(c, {"splitgp": splitjax.spec(METHODS, "splitgp")})
  points: dict = {}
  workdir, place = Path(folder) / "w", Path(folder) / "w/methods/splitgp"
  asked = itertools.count(-1)  # twice before the first round

  def look() -> None:
    done = next(asked)
    if done <= 0 or done % c.checkpoint.every:
      return
    records = place.glob("checkpoints/*/record.json")
    newest = max(records, key=lambda path: int(path.parent.name), default=None)
    points[str(done)] = {
      "memory_mb": point.anonymous_mb().get("anonymous_mb"),
      "log_bytes": (workdir / "metrics.jsonl").stat().st_size,
      "record_bytes": newest and newest.stat().st_size,
    }
    print(apart.line([done, *points[str(done)].values()]), flush=True)

  heads = "rounds", "anonymous [MB]", "log [bytes]", "record [bytes]"
  print(apart.table(heads, []), flush=True)
  splitjax.run(Config.from_dict(c.to_dict()), workdir, stop=look)
  points["end"] = {
    "about_bytes": (place / "about.json").stat().st_size,
    "report_bytes": (workdir / "report.json").stat().st_size,
  }
  return points


def forced(devices: int) -> dict[str, str]:
  """Environment of a process with so many devices of a CPU."""
  flag = f"--xla_force_host_platform_device_count={devices}"
  return {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flag}


def in_two_processes(point: dict, given: argparse.Namespace) -> dict[str, Any]:
  """A point on two processes of this machine; CPU seconds are of the first."""
  address = f"127.0.0.1:{apart.free_port()}"
  with ThreadPoolExecutor() as pool:
    first, second = pool.map(
      lambda number: scaling.measure(
        {**point, "process": [address, number]}, given, forced(1)
      ),
      range(2),
    )
  return {**second, **first}


def options() -> argparse.Namespace:
  """The command line."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--clients", type=int, nargs="*")
  parser.add_argument("--clients_on", nargs="+", default=["host", "device"])
  parser.add_argument("--participants", type=int, help="of a round")
  parser.add_argument("--weak", action="store_true")
  parser.add_argument("--long", action="store_true")
  parser.add_argument("--devices", type=int, nargs="*")
  parser.add_argument("--each", type=int, default=12, help="clients a device")
  parser.add_argument("--width", type=float, default=0.25)
  parser.add_argument("--samples", type=int, default=60, help="of a client")
  parser.add_argument("--rounds", type=int)
  parser.add_argument("--seconds", type=float, default=1200, help="of a point")
  parser.add_argument("--out", type=Path, help="file for the JSON object")
  parser.add_argument("--quick", action="store_true", help="toys, in minutes")
  given = parser.parse_args()
  clients, devices, rounds = [1000, 10_000], [1, 2, 4, 8], 6
  if given.long:
    clients, rounds = [1400], 2000
  if given.quick:
    clients, devices, given.each = [4, 8], [1, 2], 3
    given.width, given.samples, rounds = 1 / 32, 20, 20 if given.long else 2
    if given.weak:  # host and device are compared bit for bit
      os.environ |= apart.HASTY
  given.rounds = given.rounds or rounds
  given.clients = clients if given.clients is None else given.clients
  given.devices = devices if given.devices is None else given.devices
  if not given.weak and given.participants is None:
    most = 10 if given.long else 100
    given.participants = min(most, *given.clients)
  given.method, given.depths, given.batch, given.chunk = (
    "splitgp", [2, 3, 4], 20, 1,
  )  # fmt: skip
  given.end = float("inf")
  return given


def main() -> None:
  """Measures and prints a table."""
  given = options()
  apart.stoppable()
  with tempfile.TemporaryDirectory() as folder:
    if given.long:
      points = over_rounds(given, folder)
    else:
      points = (over_devices if given.weak else over_clients)(given, folder)
  keys = "participants", "each", "width", "samples", "batch", "chunk", "rounds"
  result = {"weak": given.weak, "points": points}
  result |= {key: getattr(given, key) for key in keys}
  result |= machine() if given.long else apart.about(list(points.values()))
  if given.out is not None:
    given.out.write_text(json.dumps(result, indent=1) + "\n")
  print(json.dumps(result))


if __name__ == "__main__":
  main()
