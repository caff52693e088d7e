"""The benchmarks run, and end with what they promise."""

import argparse
import json
import sys
import time

import launched
import pytest

from benchmarks import gpu, subprocesses


def printed(name, *arguments, seconds=600):
  """The JSON objects that a benchmark prints, joined."""
  command = subprocesses.module(name, *arguments)
  text, why = subprocesses.run(command, seconds, subprocesses.HASTY)
  assert not why, text
  return subprocesses.merged(text)


def part(name, text, seconds=0.1):
  """A part that runs a line of Python."""
  return gpu.Part(name, seconds, [sys.executable, "-c", text])


def test_a_queue_keeps_what_is_finished(tmp_path, capsys):
  options = argparse.Namespace(out=tmp_path, data_dir=None)
  queue = [
    part("done", "print('{\"a\": 1}')"),
    part("fails", "raise ValueError('no')"),
    part("large", "print('{}')", seconds=99),
    part(
      "slow", "import time; print('{\"b\": 2}', flush=True); time.sleep(60)"
    ),
  ]
  start = time.monotonic()
  gpu.serve(queue, options, start + 3)
  assert time.monotonic() - start < 20
  assert [p.name for p in tmp_path.glob("*.json")] == ["done.json"]
  assert json.loads((tmp_path / "done.json").read_text())["a"] == 1
  lines = capsys.readouterr().out.splitlines()
  assert "ValueError: no" in lines[1] and "99 s are not there" in lines[2]
  assert '"b": 2' in lines[3] and "stopped after" in lines[3]

  gpu.serve(queue[:2], options, time.monotonic() + 3)
  lines = capsys.readouterr().out.splitlines()
  assert lines[0] == "done: finished before" and "no" in lines[1]


def test_every_training_of_the_queue_is_a_command_of_one_run():
  trainings = [*gpu.trainings(), gpu.toys()[-1]]
  assert len({row.name for row in trainings}) == len(trainings)
  for row in trainings:
    plan = launched.parsed(*row.command[2:], "--workdir=w").plan
    (cell,) = plan.cells
    assert len(cell.config.methods) == 1, row.name


@pytest.mark.slow
def test_the_queue_of_a_gpu_is_rehearsed(tmp_path):
  command = ("--toy", "--minutes=10", f"--out={tmp_path}")
  text, why = subprocesses.run(subprocesses.module("gpu", *command), 900)
  assert not why, text
  assert {"device", "jax", "jaxlib"} <= json.loads(text.splitlines()[0]).keys()
  files = {p.stem: json.loads(p.read_text()) for p in tmp_path.glob("*.json")}
  assert files["golden"]["local"] < 1e-9
  (forms,) = files["layers"]["vgg11"].values()
  assert forms["splitjax"] > 0 and forms["XLA"] > 0
  assert files["bound"]["bound_s"] > 0 and files["bound"]["rounds_s"]
  (accuracy,) = files["quickstart_multi_exit_0"]["accuracy"].values()
  assert 0 <= accuracy["0.8"] <= 1


@pytest.mark.slow
def test_points_of_a_table_are_measured(tmp_path):
  sizes = "clients=[3, 6]", "width=0.03125", "samples=20", "rounds=2"
  table = printed("scaling", "clients", *sizes, f"--out={tmp_path}/t.json")
  assert table == json.loads((tmp_path / "t.json").read_text())
  point = table["points"]["cnn8, splitgp, 3"]
  assert point["client_ms"] > 0 and point["client_cpu_ms"] > 0
  assert point["own_peak_mb"] > point["program_mb"] > 0
