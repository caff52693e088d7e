"""Grids of runs, from Python and from the command line."""

import shutil

import numpy as np
import pandas as pd
import pytest
import tiny
from launched import command
from refusals import refused

import splitjax
from splitjax import cli, experiment, files

FIGURES = "blank"
FIELD = "data.partition.k"


def given(*values, **changes):
  """A one-round run of one method, swept over shards per client."""
  c = tiny.tiny(own="local")
  c.rounds = 1
  if values:
    splitjax.vary(c, {FIELD: values})
  return tiny.changed(c, **changes)


def cells(*values, **changes):
  return splitjax.config.plan(given(*values, **changes)).cells


def launch(mode, workdir, config=None, **options):
  if config is not None:
    options["plan"] = splitjax.config.plan(config)
  return cli.launch(command(mode, workdir=workdir, **options))


@pytest.fixture(scope="module")
def done(tmp_path_factory):
  """A finished grid of two cells: its workdir and results."""
  workdir = tmp_path_factory.mktemp("grid") / "w"
  return workdir, experiment.run_grid(cells(1, 2), workdir)


def test_a_cell_is_an_ordinary_workdir_and_a_key_of_the_report(done):
  workdir, results = done
  assert results.axes == [FIELD]
  assert [run.keys for run in results.runs] == [{FIELD: 1}, {FIELD: 2}]
  table = pd.read_csv(workdir / "report.csv")
  table = table[table.metric.eq("accuracy") & table.set.astype(str).eq("0.8")]
  for run in results.runs:
    k = run.keys[FIELD]
    alone = experiment.collect(workdir / f"k={k}")
    part = results.numbers[results.numbers[FIELD] == k]
    np.testing.assert_array_equal(part.value, alone.numbers.value)
    assert run.settings["data"]["partition"]["k"] == k
    assert splitjax.load(run.folder, "own").config.seed == 0
    (mean,) = table.value[table[FIELD] == k]
    accuracy = results.value("own", "accuracy", "0.8", k=k)
    assert mean == pytest.approx(accuracy)
  assert "(accuracy_over_field.png)" in (workdir / "report.md").read_text()
  assert (workdir / "accuracy_over_field.png").exists()
  assert not (workdir / "k=1/learning_curves.png").exists()


def test_another_config_is_refused(done, tmp_path):
  workdir, _ = done
  before = (workdir / "grid.json").read_text()
  for k in (1, 3):
    with refused("--workdir"):
      experiment.run_grid(cells(k, batch_size=7), workdir)
  other = splitjax.config.plan(given(), ["optimizer.lr=1,2"]).cells
  with refused("--workdir"):
    experiment.run_grid(other, workdir)
  assert (workdir / "grid.json").read_text() == before
  assert not (workdir / "k=3").exists()
  (tmp_path / "notes").write_text("mine")
  with refused("--workdir"):
    experiment.run_grid(cells(1), tmp_path)


def test_all_cells_are_checked_before_the_first_trains(tmp_path):
  # 13 shards for each of six clients, of twelve in all.
  with refused("k"):
    experiment.run_grid(cells(1, 13), tmp_path / "w")
  assert not (tmp_path / "w").exists()


def change_grid(workdir, **changes):
  """Writes a grid's file with other fields, cells or seeds."""
  grid = {**experiment.read_run(workdir, experiment.GRID), **changes}
  files.write_sealed(workdir / experiment.GRID, grid)


def missing(workdir):
  """What a new report of a grid says to be missing."""
  assert launch("report", workdir) == 0
  remarks = experiment.collect(workdir).remarks
  page = (workdir / "report.md").read_text()
  assert all(f"- {remark}" in page for remark in remarks)
  start = f"not finished: {workdir}/"
  return [remark.removeprefix(start) for remark in remarks]


@pytest.mark.slow
def test_a_stopped_grid_over_seeds_resumes_and_grows(tmp_path, capsys):
  workdir = tmp_path / "w"

  def stop():
    return "SIGTERM" if (workdir / "k=1/report.md").exists() else None

  with pytest.raises(experiment.Stopped):
    experiment.run_grid(cells(1, 2), workdir, [5], stop=stop)
  assert missing(workdir) == ["k=2/seed5 own"]  # which had begun
  again = experiment.collect(workdir)
  assert [run.keys for run in again.runs] == [{FIELD: 1}]
  assert again.seeds == [5]
  capsys.readouterr()
  results = experiment.run_grid(cells(2), workdir, [5])
  assert [run.keys[FIELD] for run in results.runs] == [1, 2]
  assert not results.remarks
  change_grid(workdir, seeds=[5, 6])
  assert missing(workdir) == ["k=1/seed6", "k=2/seed6"]
  with refused("--workdir"):
    experiment.run_grid(cells(3, batch_size=7), workdir, [5])


def test_unfinished_cells_and_methods_are_reported_missing(done, tmp_path):
  workdir = shutil.copytree(done[0], tmp_path / "w")
  saved = experiment.read_run(workdir / "k=2")
  methods = saved["config"]["methods"]
  methods["later"] = methods["own"]  # not trained
  files.write_sealed(workdir / "k=2/config.json", saved)
  more = {"name": "k=3", "values": {FIELD: 3}}
  known = [{"name": f"k={k}", "values": {FIELD: k}} for k in (1, 2)]
  change_grid(workdir, cells=[*known, more])
  assert missing(workdir) == ["k=2 later", "k=3"]


@pytest.mark.slow
def test_each_evaluation_has_a_folder_in_every_cell(done, capsys):
  workdir = done[0]
  changes = {"eval.rhos": (0.0, 0.5)}
  assert launch("evaluate", workdir, changes=changes, evaluation="half") == 0
  said = capsys.readouterr().out
  assert "ρ=0.5" in said and f"{workdir}/half/report.md" in said
  for k in (1, 2):
    place = workdir / f"k={k}/half"
    assert experiment.collect(place).sets == ["0.0", "0.5"]
  assert "- Hardware: " in (workdir / "half/report.md").read_text()
  assert experiment.collect(workdir / "half").sets == ["0.0", "0.5"]
  assert not (workdir / "evaluate").exists()
  assert launch("evaluate", workdir, changes={"rounds": 9}) == 2
  only = "evaluate can change config.eval and privacy.delta"
  said = capsys.readouterr().err
  assert f"(rounds is 1 there and 9 here): {only} alone" in said
  assert launch("evaluate", workdir, evaluation="k=1") == 2
  assert "--evaluation='k=1'" in capsys.readouterr().err
  # One cell is evaluated by its own folder.
  assert launch("evaluate", workdir / "k=2", changes=changes) == 0
  assert not (workdir / "k=1/evaluate").exists()


def test_finished_workdirs_side_by_side(done, tmp_path, capsys):
  grid_, _ = done
  alone = shutil.copytree(grid_ / "k=1", tmp_path / "alone")
  out = tmp_path / "both"
  runs = str(alone), str(grid_)
  assert launch("report", out, folders=runs) == 0
  said = capsys.readouterr().out
  assert f"report   {out}/report.md" in said
  whole = experiment.collect(*runs)
  assert whole.axes == ["run", FIELD]
  cells = [(run.keys["run"], run.keys[FIELD]) for run in whole.runs]
  assert cells == [(runs[0], 1), (runs[1], 1), (runs[1], 2)]
  same = [whole.value("own", "accuracy", "0.8", run=run, k=1) for run in runs]
  assert same[0] == same[1]
  page = (out / "report.md").read_text()
  assert "not finished" not in page and runs[0] in page
  assert set(pd.read_csv(out / "report.csv").run) == set(runs)
  # Without a workdir nothing is written.
  assert cli.launch(command("report", folders=runs)) == 0
  assert "--workdir=FOLDER writes it" in capsys.readouterr().out


def test_a_run_that_is_given_twice_is_refused(done, monkeypatch):
  place, _ = done
  monkeypatch.chdir(place)
  for again in (str(place), "k=2/../k=1"):
    with refused(f"{place}/k=1 is given twice", f"{again} is given twice"):
      experiment.collect("k=1", again)
