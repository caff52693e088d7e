"""Measured energy of NVIDIA accelerators, through NVML where it exists."""

import os
from typing import Any

import jax


class Meter:
  """The energy counters of the accelerators that this process computes on.

  They count from the start of the driver, and whatever else runs on a device.
  Without NVIDIA devices, without the package nvidia-ml-py, or where a device
  has no counter (before Volta), there is nothing to read.
  """

  def __init__(self) -> None:
    """Finds the counters."""
    self._nvml: Any = None
    self._handles = list[Any]()
    found = [d for d in jax.local_devices() if d.platform == "gpu"]
    if not found:
      return
    try:
      import pynvml

      pynvml.nvmlInit()
      self._nvml = pynvml
      self._handles = [_handle(pynvml, d.local_hardware_id) for d in found]
    except Exception:  # no package, no driver, another vendor, an old device
      self._handles = []

  def joules(self) -> float | None:
    """Joules counted so far on all devices together; None without counters."""
    if not self._handles:
      return None
    read = self._nvml.nvmlDeviceGetTotalEnergyConsumption
    try:
      return sum(read(handle) for handle in self._handles) / 1e3  # millijoules
    except Exception:  # the driver is gone: training goes on
      self._handles = []
      return None


def _handle(nvml: Any, place: int) -> Any:
  """NVML's handle of a device, which CUDA_VISIBLE_DEVICES may have renamed."""
  visible = [
    x for x in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if x
  ]
  name = visible[place].strip() if visible else str(place)
  if name.isdecimal():
    return nvml.nvmlDeviceGetHandleByIndex(int(name))
  return nvml.nvmlDeviceGetHandleByUUID(name)
