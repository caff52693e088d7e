"""The benchmarks run, and end with what they promise."""

import argparse
import json
import sys

import pytest

from benchmarks import apart, gpu, layers, paper_rounds

GIVEN = argparse.Namespace(quick=True)


def last(command, seconds=300):
  """The JSON object that a benchmark ends with."""
  text, why = apart.run(command, seconds, apart.HASTY)
  assert not why, text
  return json.loads(text.splitlines()[-1])


@pytest.mark.slow
def test_gpu_ends_with_its_parts(tmp_path):
  """The quicker ones; `python -m benchmarks.gpu --quick` runs them all."""
  out = tmp_path / "gpu.json"
  some = ["--parts", "layers", "scaling", "--minutes=20"]
  found = last(apart.module("gpu", "--quick", *some, f"--out={out}"), 1200)
  assert found == json.loads(out.read_text())
  assert found.keys() == {"device", "layers", "scaling"}
  assert all("failed" not in part for part in found.values())
  assert {"device", "jax", "jaxlib", "torch"} <= found["device"].keys()
  (row,) = found["layers"]["milliseconds"]["cnn8, float32"]["layers"].values()
  assert row.keys() == {"count", "native", "patches", "in_turn"}
  assert {"device", "cores", "jax", "width"} <= found["scaling"].keys()
  point = found["scaling"]["clients"]["points"]["3"]
  assert point["client_s"] > 0
  assert point["own_peak_mb"] > point["program_mb"] > 0


@pytest.mark.slow
def test_methods_are_compared_with_fedavg():
  found = last(
    apart.module("personalised_speed", "--quick", "--methods=fedper")
  )
  (row,) = found["rounds"].values()
  assert row["ratio"] > 0 and row["seconds"] > 0


def test_what_has_no_time_or_no_torch_is_skipped_with_the_reason():
  found = gpu.measure("scaling", GIVEN, {}, 3.0)
  assert found == {"skipped": "3 s were left"}
  found = gpu.measure("round_speed", GIVEN, {"torch": None}, 99.0)
  assert found == {"skipped": "PyTorch is not installed"}


def test_a_process_that_takes_too_long_has_told_what_it_knew():
  lines = "print('{\"a\": 1}', flush=True); import time; time.sleep(60)"
  text, why = apart.run([sys.executable, "-c", lines], 2)
  assert (apart.objects(text), why) == ([{"a": 1}], "stopped after 2 s")
  _, why = apart.run([sys.executable, "-c", "raise ValueError('no')"], 60)
  assert why == "exit status 1 ValueError: no"


@pytest.mark.parametrize(
  ("name", "different", "all_of_them"),
  [("cnn8", 5, 5), ("vgg11", 7, 8)],
)
def test_every_convolution_of_a_backbone_is_found(name, different, all_of_them):
  found = layers.layers(name)
  assert (len(found), found.total()) == (different, all_of_them)


@pytest.mark.parametrize(
  ("seconds", "rounds"), [(10, 0), (100, 17), (10_000, 120)]
)
def test_as_many_rounds_as_fit(seconds, rounds):
  took = {"setup_s": 5, "trace_s": 5, "compile_s": 10, "rounds_s": [9, 2, 2]}
  assert paper_rounds.fitting(took, seconds) == rounds
  assert paper_rounds.fitting({**took, "failed": "why"}, seconds) == 0


def test_a_run_keeps_the_number_of_rounds_it_was_begun_with(tmp_path):
  assert paper_rounds.planned(tmp_path) is None
  (tmp_path / "config.json").write_text('{"config": {"rounds": 7}}')
  assert paper_rounds.planned(tmp_path) == 7
