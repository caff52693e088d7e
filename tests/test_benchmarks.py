"""The benchmarks run, and end with what they promise."""

import argparse
import importlib.util
import json
import sys

import numpy as np
import pytest

from benchmarks import (
  gpu,
  long_run,
  measure_one,
  peers,
  scaling,
  subprocesses,
)

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
  one = found["clients"]["points"]["3"]
  assert one["client_ms"] > 0 and one["client_cpu_ms"] > 0
  assert one["own_peak_mb"] > one["program_mb"] > 0


@pytest.mark.slow
def test_methods_are_compared_with_fedavg():
  found = last(
    subprocesses.module("round_speed", "--quick", "--whole", "--methods=fedper")
  )
  (row,) = found["rounds"].values()
  assert row["ratio"] > 0 and row["seconds"] > 0


@pytest.mark.parametrize(
  ("name", "python", "why"),
  [
    ("PyTorch, loop", "", "no --torch=INTERPRETER"),
    ("FedJAX, jit", "/none", "[Errno 2] No such file or directory: '/none'"),
    ("Flower", sys.executable, "ModuleNotFoundError: No module named 'flwr'"),
  ],
)
def test_a_peer_that_is_not_installed_is_skipped(name, python, why, tmp_path):
  if name == "Flower" and importlib.util.find_spec("flwr"):
    pytest.skip("flwr is installed")
  given = argparse.Namespace(**{peers.PEERS[name][0]: python})
  ours = argparse.Namespace(given=given)
  assert peers.measure(name, ours, tmp_path) == {"skipped": why}


@pytest.mark.slow
def test_peers_do_our_work(tmp_path):
  """In --quick no order of samples matters: the losses are equal."""
  out = tmp_path / "peers.json"
  torch = importlib.util.find_spec("torch") is not None
  flags = ["--quick", f"--out={out}", *([] if torch else ["--torch="])]
  found = last(subprocesses.module("peers", *flags))
  assert found == json.loads(out.read_text())
  rows = found["peers"]
  assert rows.keys() == peers.PEERS.keys()
  for name, row in rows.items():
    if torch and "PyTorch" in name:
      assert row["ratio"] > 0 and row["steps"] == 2
      assert row["loss_fall"] == pytest.approx(1, abs=1e-3)
    else:
      assert row.keys() == {"skipped"}


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


def test_a_peer_that_does_other_work_is_named():
  ours = argparse.Namespace(
    params=[np.zeros((2, 3)), np.zeros(4)],
    rounds=argparse.Namespace(steps=5),
    given=argparse.Namespace(clients=2),
    losses=[2.0, 1.9, 1.8],
  )
  hello = {"parameters": 10, "loss": 2.0}
  rounds = [{"steps": [5, 5], "loss": 1.9}, {"steps": [5, 5], "loss": 1.801}]
  assert peers.check(ours, hello, rounds, False) == pytest.approx(0.995)
  wrong = [
    ({**hello, "parameters": 9}, rounds, False, "9 parameters, ours 10"),
    ({**hello, "loss": 2.1}, rounds, False, "before training"),
    (hello, [rounds[0], {**rounds[1], "steps": [5, 4]}], False, "local steps"),
    (hello, rounds, True, "fell by 0.9950 of what ours did"),
    (hello, [rounds[0], {**rounds[1], "loss": 1.9}], False, "fell by 0.5"),
  ]
  for *told, why in wrong:
    with pytest.raises(RuntimeError, match=why):
      peers.check(ours, *told)


def test_a_process_that_ends_says_why():
  other = subprocesses.Asked([sys.executable, "-c", "raise ValueError('no')"])
  with pytest.raises(RuntimeError, match="ValueError: no"):
    other.answer()
  other.close()


@pytest.mark.slow
def test_records_of_checkpoints_do_not_grow_with_rounds(tmp_path):
  given = argparse.Namespace(clients=[4], participants=4, rounds=20)
  *_, one, two, end = long_run.measure(given, str(tmp_path)).values()
  assert 0 <= two["record_bytes"] - one["record_bytes"] < 100
  assert one["log_bytes"] < two["log_bytes"] and end["about_bytes"] > 0


@pytest.mark.slow
def test_devices_and_processes_exchange_the_sums():
  small = "--quick", "--depths=2", "--devices=2"
  found = last(subprocesses.module("scaling", "weak", *small), 600)
  assert {"device", "cores", "jax", "width"} <= found.keys()
  two, processes = found["points"].values()
  assert two["client_ms"] > 0 and two["client_cpu_ms"] > 0
  assert two["own_peak_mb"] > two["program_mb"] > 0
  assert list(two["exchanged"]) == ["all-reduce"]
  assert two["exchanged"] == processes["exchanged"]
  assert two["losses"] == pytest.approx(processes["losses"], abs=1e-4)


def test_bytes_that_devices_exchange_are_counted():
  """Against a text by hand, in the form of XLA's CPU programs."""
  text = """
  %all-reduce = (f32[10]{0}, bf16[3,4]{1,0}, pred[7]{0}) all-reduce(%a, %b, %c)
  ROOT %all-reduce.1 = f64[] all-reduce(%d), channel_id=2
  %all-gather.3 = s32[2,5]{1,0} all-gather(%e), dimensions={0}
  %x = f32[9]{0} add(%all-reduce.1, %f)
  """
  assert measure_one.exchanged(text) == {
    "all-reduce": {"count": 2, "bytes": 40 + 24 + 7 + 8},
    "all-gather": {"count": 1, "bytes": 40},
  }


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
