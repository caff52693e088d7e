"""Devices that programs are compiled for; see `Target`."""

import os
from typing import NamedTuple

import jax

from splitjax.types import UserError


class Target(NamedTuple):
  """The devices that programs are compiled for, over all processes."""

  platform: str  #: "cpu", "gpu" or "tpu"
  kind: str  #: the devices' name
  devices: tuple[jax.Device, ...]
  memory: int | None = None  #: bytes of a device; None: `capacity` asks it

  @property
  def local(self) -> tuple[jax.Device, ...]:
    """Returns this process's devices."""
    process = jax.process_index()
    return tuple(x for x in self.devices if x.process_index == process)

  @property
  def capacity(self) -> int:
    """Returns the bytes of one device, or its share of the machine's memory."""
    if self.memory is not None:
      return self.memory
    limit = (self.local[0].memory_stats() or {}).get("bytes_limit")
    if limit:
      return int(limit)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return total // len(self.local)


aimed_at = jax.make_user_context(None)
"""Sets the target: within `with aimed_at(target)`, `current` returns it.

The target is part of the keys of jax's caches, so a trace for one target is not
reused for another.
"""


def current() -> Target:
  """Returns the target that `aimed_at` set, else all devices of the run."""
  return aimed_at.value or of(jax.devices())


def of(devices: list[jax.Device]) -> Target:
  """Makes the target of devices of one kind."""
  device = devices[0]
  is_gpu = device.platform in ("gpu", "cuda", "rocm")  # as jax calls them
  platform = "gpu" if is_gpu else device.platform
  return Target(platform, device.device_kind, tuple(devices))


def host() -> jax.Device:
  """Returns a CPU of this process; UserError if JAX_PLATFORMS has none."""
  try:
    return jax.local_devices(backend="cpu")[0]
  except RuntimeError:
    text = "FLOPs are counted on a CPU, which JAX_PLATFORMS leaves out: add"
    raise UserError(f"{text} ',cpu' to it") from None
