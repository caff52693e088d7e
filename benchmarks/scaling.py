"""Time and memory of a round over the number of clients, and over devices.

  python -m benchmarks.scaling [--clients 10 30 100 300 1000] \
      [--devices 1 2 4 8] [--quick] [--out=FILE.json]
  python -m benchmarks.scaling --method splitfed_v2 --depths 3 --devices
  python -m benchmarks.scaling --ragged
  python -m benchmarks.scaling --big [--data=fashion_mnist]

SplitGP, or --method, on a narrow `cnn8`, clients in chunks of a fixed size: a
client should cost the same however many there are. The devices are forced ones
of a CPU (XLA_FLAGS), no faster than its cores, and are to end with one device's
numbers. `--big` is one round of 1,000 clients of the whole `cnn8`, four at a
time, which is to fit into 8 GB. `--ragged` is fifty clients of which all have
as many samples, or as a Dirichlet partition gives them: a local step should
cost the same. Every point is a process of its own; memory is its peak less what
it had when JAX had started. The last line is one JSON object.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import apart

SHAPE, CLASSES = (28, 28, 1), 10
LIMIT_MB = 8000
"""What `--big` may take."""

HEADS = (
  "ms a client",
  "CPU ms a client",
  "round [s]",
  "peak [MB]",
  "program [MB]",
  "on device [MB]",
  "compile [s]",
  "not finished",
)


def digest(result: dict) -> dict:
  """Adds what is asked of a point: of its rounds the median but the first."""
  for kind in ("s", "cpu_s"):
    took = result.get(f"rounds_{kind}", [])
    if took:
      middle = statistics.median(took[1:] or took)
      result[f"round_{kind}"] = middle
      result[f"client_{kind}"] = middle / result["clients"]
  if "peak_mb" in result:
    result["own_peak_mb"] = result["peak_mb"] - result["baseline_mb"]
  return result


def measure(point: dict, given, env: dict[str, str] | None = None) -> dict:
  """Measures and digests a point."""
  cold = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
  left = min(given.seconds, given.end - time.monotonic())
  result = apart.measure(point, left, {**cold, **(env or {})})
  return digest({"clients": point["clients"], **result})


def row(name: object, result: dict) -> list:
  """Of a table."""
  keys = "round_s", "own_peak_mb", "program_mb", "device_peak_mb", "compile_s"
  each = (result.get(key) for key in ("client_s", "client_cpu_s"))
  return [
    name,
    *(None if s is None else 1e3 * s for s in each),
    *map(result.get, keys),
    result.get("failed", ""),
  ]


def narrow(given: argparse.Namespace, folder: str, clients: int) -> dict:
  """The point of so many clients."""
  count = clients * given.samples
  return {
    "data": apart.images(folder, SHAPE, CLASSES, count),
    "options": {"width": given.width, "depths": tuple(given.depths)},
    "method": given.method,
    "clients": clients,
    "batch": given.batch,
    "chunk": given.chunk,
    "rounds": given.rounds,
  }


def over_clients(given: argparse.Namespace, folder: str) -> dict:
  """N -> a point; and by how much the dearest client exceeds the cheapest."""
  points: dict = {}
  print(apart.table(("clients", *HEADS), []), flush=True)
  for n in given.clients:
    points[n] = measure(narrow(given, folder, n), given)
    print(apart.line(row(n, points[n])), flush=True)
  result = {"points": points}
  for kind in ("s", "cpu_s"):
    key = f"client_{kind}"
    each = [p[key] for p in points.values() if key in p]
    if len(each) > 1:
      result[f"spread_{kind}"] = max(each) / min(each) - 1
      print(f"spread of {key}: {100 * result[f'spread_{kind}']:.0f} %")
  return result


def over_devices(given: argparse.Namespace, folder: str) -> dict:
  """Devices -> a point, with how far its parameters are from the first's."""
  points: dict = {}
  first = None
  print(apart.table(("devices", *HEADS[:-1], "off", HEADS[-1]), []), flush=True)
  for n in given.devices:
    keep = Path(folder) / f"{n}.npy"
    point = narrow(given, folder, given.device_clients)
    env = {
      "JAX_PLATFORMS": "cpu",
      "XLA_FLAGS": f"--xla_force_host_platform_device_count={n}",
    }
    point |= {"devices": n, "keep": str(keep)}
    points[n] = result = measure(point, given, env)
    if keep.exists():
      params = np.load(keep)
      first = params if first is None else first
      result["off"] = float(np.linalg.norm(params - first))
      result["off"] /= float(np.linalg.norm(first))
    cells = row(n, result)
    print(apart.line([*cells[:-1], result.get("off"), cells[-1]]), flush=True)
  return {"points": points}


def ragged(given: argparse.Namespace, folder: str) -> dict:
  """Clients of one size, and of very different ones, one at a time."""
  points: dict = {}
  heads = "clients", "steps", "of the longest", "round [CPU s]", "CPU ms a step"
  print(apart.table(heads, []), flush=True)
  for name, alpha in (("alike", None), ("Dirichlet 0.1", 0.1)):
    point = narrow(given, folder, given.ragged_clients)
    point |= {"chunk": 1, "alpha": alpha}
    points[name] = result = measure(point, given)
    each = result.get("round_cpu_s", float("nan")) / result.get("steps", 1)
    counts = map(result.get, ("steps", "steps_of_longest", "round_cpu_s"))
    print(apart.line([name, *counts, 1e3 * each]), flush=True)
  return {"points": points}


def big(given: argparse.Namespace, folder: str) -> dict:
  """1,000 clients of the whole network, a round."""
  n, samples = 1000, 60
  data = given.data or apart.images(folder, SHAPE, CLASSES, n * samples)
  point = {
    "data": data,
    "data_dir": given.data_dir,
    "clients": n,
    "batch": 30,
    "chunk": 4,
    "rounds": 1,
  }
  result = measure(point, given)
  print(apart.table(("clients", *HEADS), [row(n, result)]))
  if "rounds_s" in result:
    result["fits"] = result["peak_mb"] < LIMIT_MB
    print(f"peak of the process {result['peak_mb']:.0f} MB, limit {LIMIT_MB}")
  return {"data": given.data or "random images", **result}


def options() -> argparse.Namespace:
  """The command line."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--clients", type=int, nargs="*")
  parser.add_argument("--devices", type=int, nargs="*")
  parser.add_argument("--device_clients", type=int, default=48)
  parser.add_argument("--method", default="splitgp")
  parser.add_argument(
    "--depths", type=int, nargs="+", default=[2, 3, 4], help="cuts of cnn8"
  )
  parser.add_argument("--width", type=float, default=0.125)
  parser.add_argument("--samples", type=int, default=60, help="of a client")
  parser.add_argument("--batch", type=int, default=20)
  parser.add_argument("--chunk", type=int, default=10)
  parser.add_argument("--rounds", type=int, default=4)
  parser.add_argument("--seconds", type=float, default=1200, help="of a point")
  parser.add_argument("--minutes", type=float, default=1e9, help="of them all")
  parser.add_argument("--ragged", action="store_true")
  parser.add_argument("--ragged_clients", type=int, default=50)
  parser.add_argument("--big", action="store_true")
  parser.add_argument("--data", help="of --big, config.data.name; else noise")
  parser.add_argument("--data_dir", help="where prepared data lie")
  parser.add_argument("--out", type=Path, help="file for the JSON object")
  parser.add_argument("--quick", action="store_true", help="3, 6; no devices")
  given = parser.parse_args()
  given.end = time.monotonic() + 60 * given.minutes
  clients, devices = [10, 30, 100, 300, 1000], [1, 2, 4, 8]
  if given.quick:
    clients, devices, given.device_clients = [3, 6], [], 6
    given.ragged_clients = 6
    given.width, given.samples, given.rounds = 1 / 32, 20, 2
    os.environ |= apart.HASTY
  given.clients = clients if given.clients is None else given.clients
  given.devices = devices if given.devices is None else given.devices
  return given


def main() -> None:
  """Measures and prints tables."""
  given = options()
  apart.stoppable()
  result: dict = {}
  with tempfile.TemporaryDirectory() as folder:
    if given.big:
      result["big"] = big(given, folder)
    elif given.ragged:
      result["ragged"] = ragged(given, folder)
    else:
      result["clients"] = over_clients(given, folder)
      if given.devices:
        result["devices"] = over_devices(given, folder)
  points = (
    [result["big"]]
    if given.big
    else [
      point for part in result.values() for point in part["points"].values()
    ]
  )
  keys = "width", "samples", "batch", "chunk", "rounds"
  if not given.big:
    result |= {key: getattr(given, key) for key in keys}
  result |= apart.about(points)
  if given.out is not None:
    given.out.write_text(json.dumps(result, indent=1) + "\n")
  print(json.dumps(result))


if __name__ == "__main__":
  main()
