"""Several seeds of one config become means and intervals, or are refused."""

import copy
import json

import numpy as np
import pytest
from example_results import example, set_accuracy, strict
from refusals import refused

from splitjax import reports


def test_combine_three_seeds(tmp_path):
  runs = [example(seed) for seed in range(3)]
  for run, value in zip(runs, (0.90, 0.91, 0.92), strict=True):
    set_accuracy(run, [(value, 0.5, 0.4)] * 5)
  before = copy.deepcopy(runs[0])
  combined = reports.combine(runs)
  np.testing.assert_equal(runs[0], before)
  assert combined["seeds"] == [0, 1, 2] and "seed" not in combined["config"]
  first = combined["rows"][1]
  # mean 0.91, s = 0.01: 4.303 * 0.01 / sqrt(3) = 0.02484
  assert first["summary"]["accuracy"][0] == pytest.approx(0.91)
  half = first["interval"]["summary"]["accuracy"]
  assert half == pytest.approx([0.02484, 0, 0], abs=1e-5)
  assert first["summary"]["ood"][0] is None
  assert first["seconds"]["train"] == 13
  assert "per_client" not in first["summary"]
  pooled = first["pooled"]["accuracy"]
  assert [len(each) for each in pooled] == [18] * 3  # 3 seeds of 6 clients
  assert pooled[0] == sorted(pooled[0])
  curve = combined["learning"]["SplitGP"]
  assert curve["round"] == [5, 10, 15, 20]
  # 0.01 apart again
  spread = curve["interval"]["accuracy"]["0.0"]
  assert spread == pytest.approx([0.02484] * 4, abs=1e-5)
  page = reports.write_report(tmp_path, combined).read_text(encoding="utf-8")
  assert (
    "91.00 ± 2.48" in page and "3 seeds" in page and "seed `0, 1, 2`" in page
  )
  assert reports.read_report(tmp_path) == strict(json.dumps(combined))


def test_one_seed_has_no_interval():
  combined = reports.combine([example()])
  assert combined["rows"][0]["interval"]["summary"]["accuracy"] == [None] * 3
  assert "±" not in reports.table(combined)


def test_combine_refuses_other_configs():
  other = example(1)
  other["config"]["data"]["partition"]["k"] = 3
  with refused("config.data.partition.k"):
    reports.combine([example(), other])
  longer = example(1)
  longer["rows"][2]["rounds"] = 40
  with refused("rows"):
    reports.combine([example(), longer])
  with refused("seeds"):
    reports.combine([example(1), example(1)])
  with refused("no report"):
    reports.combine([])


def test_combine_does_not_mind_where_files_lie():
  runs = [example(0), example(1)]
  for run, where in zip(runs, "ab", strict=True):
    config = run["config"]
    config["data"] |= {"name": f"npz:{where}.npz", "dir": where}
    config["backbone"]["pretrained"] = f"{where}.npz"
  combined = reports.combine(runs)
  assert combined["config"]["backbone"]["pretrained"] == "a.npz"
  runs[1]["config"]["data"]["name"] = "digits"
  with refused("config.data.name"):
    reports.combine(runs)
