"""One point of a benchmark, measured in a process of its own.

  python -m benchmarks.measure_one '{"method": "splitgp", "rounds": 2}'

The argument has the fields of a `rounds.Setting`, a method and the number of
rounds. Every part prints one JSON object when it ends, so that a stopped
process has reported its earlier parts.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.device import machine
from benchmarks.rounds import Rounds, Setting


def memory() -> dict[str, float]:
  """Peak of this process, and what is no part of a file now, 10^6 bytes.

  Linux tells; its `getrusage` would inherit the peak of the parent process.
  """
  status = Path("/proc/self/status")
  text = status.read_text() if status.exists() else ""
  lines = dict(x.split(":", 1) for x in text.splitlines())
  keys = {"VmHWM": "peak_mb", "RssAnon": "anonymous_mb"}
  return {
    name: int(lines[key].split()[0]) * 1024 / 1e6
    for key, name in keys.items()
    if key in lines
  }


def report(**facts: Any) -> None:
  """Prints results as a JSON object."""
  print(json.dumps(facts), flush=True)


def needs(compiled: Any) -> dict[str, float]:
  """XLA's own account of a program on one device, 10^6 bytes."""
  account = compiled.memory_analysis()
  if account is None:
    return {}
  parts = "argument", "output", "temp", "alias"
  sizes = {p: getattr(account, f"{p}_size_in_bytes") / 1e6 for p in parts}
  total = sum(sizes.values()) - 2 * sizes["alias"]
  return {"program_mb": total, "temp_mb": sizes["temp"]}


def main() -> None:
  """Measures a point: set-up, compilation, rounds."""
  point = json.loads(sys.argv[1])
  method, count = point.pop("method"), point.pop("rounds")
  point["shape"] = tuple(
    point.get("shape", Setting().shape)
  )  # JSON has lists alone
  jax.block_until_ready(jnp.zeros(1) + 1)  # the backend has started
  report(baseline_mb=memory().get("peak_mb"), **machine())
  start = time.perf_counter(), time.process_time()
  rounds = Rounds(Setting(**point), method)
  report(
    setup_s=time.perf_counter() - start[0],
    setup_cpu_s=time.process_time() - start[1],
    trace_s=rounds.trace_s,
    compile_s=rounds.compile_s,
    **needs(rounds.compiled),
    **memory(),
  )
  wall, cpu = [], []
  for _ in range(count):
    before = time.process_time()
    wall.append(rounds())
    cpu.append(time.process_time() - before)
    report(rounds_s=wall, rounds_cpu_s=cpu, **memory())
  stats = jax.local_devices()[0].memory_stats() or {}
  if "peak_bytes_in_use" in stats:
    report(device_peak_mb=stats["peak_bytes_in_use"] / 1e6)


if __name__ == "__main__":
  main()
