"""The benchmarks run, and end with what they promise."""

import argparse
import json
import sys

import pytest

from benchmarks import gpu, scaling, subprocesses

GIVEN = argparse.Namespace(quick=True)


def last(command, seconds=300):
  """The JSON object that a benchmark ends with."""
  text, why = subprocesses.run(command, seconds, subprocesses.HASTY)
  assert not why, text
  return json.loads(text.splitlines()[-1])


@pytest.mark.slow
def test_gpu_ends_with_its_parts(tmp_path):
  """The quicker ones; `python -m benchmarks.gpu --quick` runs them all."""
  out = tmp_path / "gpu.json"
  some = ["--parts", "clients", "--minutes=20"]
  module = subprocesses.module("gpu", "--quick", *some, f"--out={out}")
  found = last(module, 1200)
  assert found == json.loads(out.read_text())
  assert found.keys() == {"device", "clients"}
  assert all("failed" not in part for part in found.values())
  assert {"device", "jax", "jaxlib", "torch"} <= found["device"].keys()
  assert {"device", "cores", "jax", "width"} <= found["clients"].keys()
  one = found["clients"]["points"]["cnn8, splitgp, 3"]
  assert one["client_ms"] > 0 and one["client_cpu_ms"] > 0
  assert one["own_peak_mb"] > one["program_mb"] > 0


@pytest.mark.slow
def test_methods_are_compared_with_fedavg():
  found = last(
    subprocesses.module("round_speed", "--quick", "--whole", "--methods=fedper")
  )
  (row,) = found["rounds"].values()
  assert row["ratio"] > 0 and row["seconds"] > 0


def test_parts_that_are_tables_have_commands_of_scaling(monkeypatch):
  given = argparse.Namespace(quick=False)
  for name in ("clients", "compile"):
    _, _, *words = gpu.command(name, given, {}, 99.0)
    monkeypatch.setattr(sys, "argv", words)
    assert scaling.options().table == name


def test_numbers_of_a_table_keep_three_digits():
  points = {"big": {"a": 1234.5, "b": None}, "small": {"a": 0.01234, "b": None}}
  _, _, *rows = subprocesses.table_of({"A": "a", "B": "b"}, points).split("\n")
  found = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
  assert found == [["big", "1234"], ["small", "0.0123"]]


def test_a_process_that_ends_says_why():
  other = subprocesses.Asked([sys.executable, "-c", "raise ValueError('no')"])
  with pytest.raises(RuntimeError, match="ValueError: no"):
    other.answer()
  other.close()


def test_what_has_no_time_or_no_torch_is_skipped_with_the_reason():
  found = gpu.measure("clients", GIVEN, {}, 3.0)
  assert found == {"skipped": "3 s were left"}
  found = gpu.measure("round_speed", GIVEN, {"torch": None}, 99.0)
  assert found == {"skipped": "PyTorch is not installed"}


def test_a_process_that_takes_too_long_has_told_what_it_knew():
  lines = "print('{\"a\": 1}', flush=True); import time; time.sleep(60)"
  text, why = subprocesses.run([sys.executable, "-c", lines], 2)
  assert (subprocesses.objects(text), why) == ([{"a": 1}], "stopped after 2 s")
  _, why = subprocesses.run(
    [sys.executable, "-c", "raise ValueError('no')"], 60
  )
  assert why == "exit status 1 ValueError: no"
