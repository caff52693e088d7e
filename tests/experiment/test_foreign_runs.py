"""Folders of another run, or of somebody else."""

import pytest
from refusals import refused
from runs import config

import splitjax
from splitjax import UserError, experiment


def test_a_workdir_of_another_config_is_refused(runs, tmp_path):
  other = config(batch_size=7)
  with refused("--workdir"):
    experiment.run(other, runs / "whole")
  facts = {"shape": [28, 28, 1]}
  with experiment.owned(tmp_path / "w", config(), facts):
    assert (tmp_path / "w" / ".lock").exists()
  new = pytest.raises(UserError, match="on other data: digits has changed")
  with new, experiment.owned(tmp_path / "w", config(), {"digest": "1"}):
    pass


@pytest.mark.parametrize(
  ("name", "text"),
  [("thesis.tex", ""), ("config.json", '{"name": "my-web-app"}')],
)
def test_a_folder_of_somebody_else_is_refused(name, text, tmp_path):
  (tmp_path / name).write_text(text)
  with refused("--workdir", str(tmp_path)):
    experiment.run(config(), tmp_path)
  assert (tmp_path / name).read_text() == text


def test_seeds_do_not_mix_with_a_single_run_or_another_config(runs, tmp_path):
  report = runs / "whole/numbers.csv"
  before = report.read_bytes()
  with refused("--workdir"):
    experiment.run_seeds(config(), runs / "whole", [1])
  assert report.read_bytes() == before
  (tmp_path / "report.md").touch()
  with refused("--workdir"):
    experiment.run_seeds(config(), tmp_path, [1])
  assert not (tmp_path / "seed1").exists()


def test_nothing_finished_is_said(tmp_path):
  with refused(f"--workdir={tmp_path}"):
    splitjax.report_again(tmp_path)
  facts = {"classes": 10}
  with experiment.owned(tmp_path / "w", config(), facts):
    pass
  with refused(f"--workdir={tmp_path}/w", f"{tmp_path}/w"):
    splitjax.report_again(tmp_path / "w")
  with refused(f"--workdir={tmp_path}/w", f"{tmp_path}/w"):
    splitjax.load(tmp_path / "w", "own")
