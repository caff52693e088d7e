"""Two processes of one run, on this machine."""

import contextlib
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import tiny

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """
import sys
sys.path.insert(0, {helpers!r})
import processes, undrawn
undrawn.draw_nothing()
get_config = processes.draft
"""

QUICK = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
"""What `quick_compile` does, for a process of its own."""


def draft():
  """The ConfigDict of that file."""
  c = tiny.tiny(splitgp="splitgp")
  c.num_clients = 7
  c.data.partition.num_shards = 14
  return c


def config_text() -> str:
  """A config file for `both`."""
  return CONFIG.format(helpers=str(ROOT / "tests/helpers"))


def free_port() -> int:
  """A free port of the 4,096 highest, from which jax chooses with Slurm."""
  for port in random.sample(range(65535 - 2**12 + 2, 65535), 50):
    with socket.socket() as open_socket:
      with contextlib.suppress(OSError):
        open_socket.bind(("127.0.0.1", port))
        return port
  raise OSError("no free port found")


def of_slurm(number, port):
  """What Slurm tells the task `number` of two, with jax's rule for the port."""
  return {
    "SLURM_JOB_ID": str(port - (65535 - 2**12 + 1)),
    "SLURM_STEP_NODELIST": "127.0.0.1",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": str(number),
    "SLURM_LOCALID": str(number),
  }


def start(number, port, *arguments):
  """Starts process `number` of two, each with two devices."""
  flags = os.environ.get("XLA_FLAGS", "")
  flags += " --xla_force_host_platform_device_count=2"
  slurm = "--distributed" in arguments
  place = [
    f"--coordinator_address=127.0.0.1:{port}",
    "--num_processes=2",
    f"--process_id={number}",
  ]
  return subprocess.Popen(
    [
      *(sys.executable, "launch.py", *map(str, arguments)),
      *([] if slurm else place),
      f"--compilation_cache={ROOT / '.jax_cache'}",
    ],
    cwd=ROOT,
    env={
      **os.environ,
      **(of_slurm(number, port) if slurm else {}),
      "XLA_FLAGS": flags,
      "PYTHONUTF8": "1",
      **QUICK,
    },
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def both(*arguments, other=None):
  """Starts two processes; (exit status, stdout, stderr) of each.

  Args:
    arguments: of both.
    other: of the second, instead of these.
  """
  port = free_port()
  pair = [start(0, port, *arguments), start(1, port, *(other or arguments))]
  ended = [process.communicate(timeout=500) for process in pair]
  return [(p.returncode, *s) for p, s in zip(pair, ended, strict=True)]
