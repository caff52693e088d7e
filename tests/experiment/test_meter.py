"""Energy counters of accelerators, with a driver that is made up."""

import sys
from types import SimpleNamespace

import jax
import pytest

from splitjax.experiment.meter import Meter


@pytest.fixture(name="nvml")
def made_up_driver(monkeypatch):
  """Two devices, of which CUDA shows the second first."""
  counted = {0: 5_000, 1: 7_000}

  def read(handle):
    counted[handle] += 1_500
    return counted[handle]

  driver = SimpleNamespace(
    nvmlInit=lambda: None,
    nvmlDeviceGetHandleByIndex=lambda place: place,
    nvmlDeviceGetHandleByUUID={"GPU-x": 1}.__getitem__,
    nvmlDeviceGetTotalEnergyConsumption=read,
  )
  monkeypatch.setitem(sys.modules, "pynvml", driver)
  device = SimpleNamespace(platform="gpu", local_hardware_id=0)
  monkeypatch.setattr(jax, "local_devices", lambda: [device])
  return driver


@pytest.mark.parametrize(
  ("visible", "first"), [(None, 6.5), ("1,0", 8.5), ("GPU-x", 8.5)]
)
def test_joules_of_the_device_that_computes(nvml, visible, first, monkeypatch):
  monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
  if visible is not None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
  meter = Meter()
  assert meter.joules() == first and meter.joules() == first + 1.5


def test_a_driver_that_goes_ends_the_measurement_alone(nvml):
  meter = Meter()
  assert meter.joules() is not None

  def gone(handle):
    raise RuntimeError("driver unloaded")

  nvml.nvmlDeviceGetTotalEnergyConsumption = gone
  assert meter.joules() is None and meter.joules() is None


def test_nothing_to_read(nvml, monkeypatch):
  def old(handle):
    raise RuntimeError("Not Supported")

  nvml.nvmlDeviceGetTotalEnergyConsumption = old
  assert Meter().joules() is None
  monkeypatch.setitem(sys.modules, "pynvml", None)  # not installed
  assert Meter().joules() is None
  monkeypatch.undo()
  assert Meter().joules() is None  # a CPU
