"""Tables whose data cannot be had everywhere: a round on files in their form.

What trains on noise proves nothing of a method: that the config, the files'
format, the network and the report go together is all that is asked here.
"""

import importlib

import official_pictures as op
import pytest

from splitjax.config import sweep
from splitjax.data.official import prepare
from splitjax.experiment import grid, runner
from splitjax.reports import report

# Those with MobileNet-V2 and ResNet-50 take many minutes to compile.
TABLES = {
  "harmony_table5_cinic10": (
    "cinic10", lambda folder: op.cinic10(folder, times=400), {"min_samples": 5},
  ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_a_round_of_the_table(table, tmp_path, quick_compile):
  del quick_compile
  data, write, options = TABLES[table]
  write(tmp_path)
  prepare.prepare(data, tmp_path, tmp_path, allow_modified=True)
  given = importlib.import_module(f"configs.{table}").get_config("small")
  tree = given.to_dict()
  tree["rounds"] = tree["eval"]["every"] = tree["local_epochs"] = 1
  tree["data"]["dir"] = str(tmp_path)
  tree["data"]["train_samples"] = tree["data"]["test_samples"] = None
  tree["data"]["partition"] |= options
  tree["sweep"]["seed"] = [0]
  tree["methods"] = {
    "splitgp_09": tree["methods"]["splitgp_09"]
  }  # compiles soon
  plan = sweep.plan(tree)
  # A grid over alpha has two equal cells: the first stands for both.
  cell = plan.cells[0]
  workdir = tmp_path / "run"
  if cell.values:
    grid.run([cell], workdir, plan.seeds)
    workdir = workdir / cell.name
  else:
    runner.run_seeds(cell.config, workdir, plan.seeds)
  found = report.read(workdir)
  labels = {spec.label for spec in cell.config.methods.values()}
  assert {row["label"].removesuffix("+FT") for row in found["rows"]} == labels
  for row in found["rows"]:
    assert all(0 <= share <= 1 for share in row["summary"]["accuracy"])
  assert "not the official ones" in (workdir / "report.md").read_text()
  # The whole table, of a grid the one over its cells.
  text = (tmp_path / "run" / "report.md").read_text()
  assert ", paper |" in text and "- Paper: HARMONY Table" in text
