"""Devices, how programs for CPUs are compiled, and flags of processes."""

import os

import jax
import joblib
import pytest
from launched import python
from marks import slow
from refusals import refused

from splitjax.engine import devices
from splitjax.experiment import machine


def test_flags_of_processes_go_together():
  machine.connect(None, None, None)
  assert machine.is_first_process() and not machine.is_distributed()
  with refused("--coordinator_address"):
    machine.connect("here:1", None, None)


def test_a_cpu_has_a_device_per_core_up_to_a_limit(monkeypatch):
  """Unless JAX_NUM_CPU_DEVICES, or XLA_FLAGS, says how many."""
  chosen = []
  monkeypatch.setattr(
    jax.config, "update", lambda name, count: chosen.append((name, count))
  )
  monkeypatch.setenv("XLA_FLAGS", "")
  monkeypatch.delenv("JAX_NUM_CPU_DEVICES", raising=False)
  for cores in (3, 200):
    monkeypatch.setattr(joblib, "cpu_count", lambda count=cores: count)
    machine.use_cores()
  assert chosen == [("jax_num_cpu_devices", n) for n in (3, 8)]
  monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "5")
  machine.use_cores()
  assert len(chosen) == 2


@pytest.mark.parametrize(
  ("given", "flag", "expected"),
  [("3", "", 3), *slow(("", "--xla_force_host_platform_device_count=5", 5))],
)
def test_cpu_devices(given, flag, expected, monkeypatch):
  monkeypatch.setenv("XLA_FLAGS", flag)
  monkeypatch.setenv("JAX_PLATFORMS", "cpu")
  twice = f"s.set_up({given}); s.set_up({given})"
  program = f"import jax, splitjax as s; {twice}; print(jax.device_count())"
  done = python("-c", program)
  assert done.returncode == 0, done.stderr
  assert int(done.stdout) == expected


def test_invalid_cpu_devices(monkeypatch):
  for count in (0, 257):
    with refused("--cpu_devices"):
      machine.use_cores(count)
  flag = "--xla_force_host_platform_device_count=5"
  monkeypatch.setenv("XLA_FLAGS", flag)
  with refused("--cpu_devices"):
    machine.use_cores(2)


def test_programs_for_a_cpu_compile_quickly(monkeypatch):
  # Not where the user has options of their own.
  mine = "--xla_backend_extra_options=xla_cpu_optimize_for_size"
  monkeypatch.setenv("XLA_FLAGS", mine)
  machine.compile_quickly()
  assert os.environ["XLA_FLAGS"] == mine
  assert devices.quick_options() is None

  extra = "--xla_backend_extra_options=xla_cpu_disable_loop_unrolling"
  monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=x")
  for _ in range(2):
    machine.compile_quickly()
    assert os.environ["XLA_FLAGS"] == f"--xla_dump_to=x {extra}"
  quick = devices.quick_options()
  assert quick == devices.OLDER_EMITTERS or (
    quick is None and jax.__version_info__ >= (0, 11)
  )
  # A version of XLA without those emitters compiles as it does by default.
  monkeypatch.setitem(devices.OLDER_EMITTERS, "xla_no_such_option", True)
  assert devices.quick_options() is None


def test_a_platform_without_its_plugin_is_one_line(monkeypatch):
  def devices():
    raise RuntimeError("no tpu")

  monkeypatch.setattr(jax, "devices", devices)
  with refused("JAX_PLATFORMS") as told:
    machine.connect(None, None, None)
  assert "no tpu" in str(told.value) and "\n" not in str(told.value)


@pytest.mark.slow
def test_on_eight_devices(monkeypatch):
  """A process of its own, which runs the tests of on_eight_devices.py."""
  # Beside the flags of all tests: the process inherits that they were tried.
  flags = os.environ["XLA_FLAGS"], "--xla_force_host_platform_device_count=8"
  monkeypatch.setenv("XLA_FLAGS", " ".join(flags))
  plugins = "-p", "no:xdist", "-p", "no:cacheprovider"
  module = "tests/engine/on_eight_devices.py"
  done = python("-m", "pytest", "-q", *plugins, module)
  assert done.returncode == 0, done.stdout[-6000:]
  assert " passed" in done.stdout and "skipped" not in done.stdout
