"""The device and the installed versions, as one JSON object.

  python -m benchmarks.device

A process of its own, so that the caller holds none of the device's memory.
"""

import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
from typing import Any

import jax

PACKAGES = "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "flax", "optax"
QUERY = "--query-gpu=name,driver_version,memory.total"


def machine() -> dict[str, Any]:
  """Device, cores and version of jax."""
  return {
    "device": jax.devices()[0].device_kind,
    "cores": len(os.sched_getaffinity(0)),
    "jax": jax.__version__,
  }


def versions() -> dict[str, str]:
  """Package -> version, of those that are installed."""
  result = {}
  for name in PACKAGES:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      result[name] = importlib.metadata.version(name)
  return result


def driver() -> str | None:
  """Asks the NVIDIA driver about the devices."""
  if shutil.which("nvidia-smi") is None:
    return None
  command = ["nvidia-smi", QUERY, "--format=csv,noheader"]
  return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def other() -> dict[str, Any]:
  """PyTorch's version, and whether it can use a CUDA device."""
  try:
    import torch
  except ImportError:
    return {"torch": None, "torch_cuda": False}
  return {"torch": torch.__version__, "torch_cuda": torch.cuda.is_available()}


def main() -> None:
  """Prints it."""
  stats = jax.devices()[0].memory_stats() or {}
  about = {
    **machine(),
    **versions(),
    **other(),
    "backend": jax.default_backend(),
    "devices": len(jax.devices()),
    "memory_mb": stats.get("bytes_limit", 0) / 1e6 or None,
    "driver": driver(),
    "python": platform.python_version(),
  }
  print(json.dumps(about))


if __name__ == "__main__":
  main()
