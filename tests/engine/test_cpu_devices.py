"""CPU devices, how programs for them are compiled, and flags of processes."""

import os
import subprocess
import sys

import jax
import pytest
from launched import ROOT
from marks import slow
from refusals import refused

from splitjax.engine import distributed, sharding


def test_flags_of_processes_go_together():
  distributed.initialize(None, None, None)
  assert distributed.is_first_process() and not distributed.is_distributed()
  with refused("--coordinator_address"):
    distributed.initialize("here:1", None, None)


def test_a_cpu_has_a_device_per_core_up_to_a_limit(monkeypatch, tmp_path):
  """Unless JAX_NUM_CPU_DEVICES, or XLA_FLAGS, says how many."""
  chosen = []
  monkeypatch.setattr(distributed, "compile_quickly", lambda: None)
  monkeypatch.setattr(
    jax.config, "update", lambda name, count: chosen.append((name, count))
  )
  monkeypatch.setenv("XLA_FLAGS", "")
  monkeypatch.delenv("JAX_NUM_CPU_DEVICES", raising=False)
  limit = tmp_path / "cpu.max"
  monkeypatch.setattr(distributed, "CGROUP", limit)
  for cores, quota in ((3, "max"), (200, "max"), (3, "150000")):
    affinity = lambda _, n=cores: range(n)  # noqa: E731
    monkeypatch.setattr(os, "sched_getaffinity", affinity, raising=False)
    limit.write_text(f"{quota} 100000")
    distributed.use_cores()
  assert chosen == [("jax_num_cpu_devices", n) for n in (3, 8, 2)]
  monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "5")
  distributed.use_cores()
  assert len(chosen) == 3


@pytest.mark.parametrize(
  ("given", "flag", "expected"),
  [
    ("3", "", 3),
    *slow(("", "--xla_force_host_platform_device_count=5", 5)),
  ],
)
def test_cpu_devices(given, flag, expected):
  twice = f"s.set_up({given}); s.set_up({given})"
  program = f"import jax, splitjax as s; {twice}; print(jax.device_count())"
  done = subprocess.run(
    [sys.executable, "-c", program],
    cwd=ROOT,
    env={**os.environ, "XLA_FLAGS": flag, "JAX_PLATFORMS": "cpu"},
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  assert int(done.stdout) == expected


def test_invalid_cpu_devices(monkeypatch):
  with refused("--cpu_devices"):
    distributed.use_cores(0)
  flag = "--xla_force_host_platform_device_count=5"
  monkeypatch.setenv("XLA_FLAGS", flag)
  with refused("--cpu_devices"):
    distributed.use_cores(2)


def test_programs_for_a_cpu_compile_quickly(monkeypatch):
  # Not where the user has options of their own.
  mine = "--xla_backend_extra_options=xla_cpu_optimize_for_size"
  monkeypatch.setenv("XLA_FLAGS", mine)
  distributed.compile_quickly()
  assert os.environ["XLA_FLAGS"] == mine
  assert sharding.quick_options() is None

  extra = f"--xla_backend_extra_options={distributed.NO_UNROLLING}"
  monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=x")
  for _ in range(2):
    distributed.compile_quickly()
    assert os.environ["XLA_FLAGS"] == f"--xla_dump_to=x {extra}"
  had = sharding._has_older_emitters()
  assert had or jax.__version_info__ >= (0, 11)
  assert sharding.quick_options() == (sharding.OLDER_EMITTERS if had else None)
  # A version of XLA without those emitters compiles as it does by default.
  sharding._has_older_emitters.cache_clear()
  monkeypatch.setattr(sharding, "OLDER_EMITTERS", {"xla_no_such_option": True})
  assert sharding.quick_options() is None
  sharding._has_older_emitters.cache_clear()


def test_a_platform_without_its_plugin_is_one_line(monkeypatch):
  def devices():
    raise RuntimeError("no tpu")

  monkeypatch.setattr(distributed.jax, "devices", devices)
  with refused("JAX_PLATFORMS") as told:
    distributed.check_platform()
  assert "no tpu" in str(told.value) and "\n" not in str(told.value)
