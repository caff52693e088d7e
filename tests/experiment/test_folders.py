"""Whose a folder is, and what joins it later: methods, seeds, names."""

import dataclasses
import shutil

import numpy as np
import pytest
import runs as helper
import tiny
from refusals import refused
from runs import After, lines
from selected import timeless

import splitjax
from splitjax import METHODS, experiment, files
from splitjax.experiment import workdirs
from splitjax.reports import numbers


def config(rounds=1, **methods):
  """A config of few rounds with a checkpoint after each."""
  c = tiny.tiny(**methods)
  c.rounds, c.checkpoint.every = rounds, 1
  return tiny.resolved(c)


def methods(workdir):
  return list(experiment.read_run(workdir)["config"]["methods"])


# Whose it is.


def test_the_folder_of_all_data_is_found_from_any_other(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  made = config(a="local")
  made.data.dir = "data"
  with experiment.claimed(tmp_path / "run", made, {}):
    stored = experiment.read_run(tmp_path / "run")["config"]["data"]["dir"]
  assert stored == str(tmp_path / "data")


@pytest.mark.parametrize(
  ("changes", "field"),
  [
    ({"batch_size": 7}, "batch_size is 10 there and 7 here"),
    ({"optimizer__lr": 0.5}, "optimizer.lr"),
    ({"system__compute_dtype": "bfloat16"}, "system.compute_dtype"),
    ({"system__server_power": 50.0}, "system.server_power"),
    ({"rounds": 1}, "rounds is 4 there and 1 here"),
    ({"seed": 1}, "seed is 0 there and 1 here"),
    ({"rounds": 5, "optimizer__schedule": "cosine"}, "optimizer.schedule"),
  ],
)
def test_another_run_is_refused(changes, field, runs):
  before = (runs / "whole/config.json").read_bytes()
  with refused("--workdir") as caught:
    experiment.run(helper.config(**changes), runs / "whole")
  assert field in str(caught.value)
  assert (runs / "whole/config.json").read_bytes() == before


@pytest.mark.parametrize(
  "name",
  [
    "config.json",
    "grid.json",
    "report.md",
    "inside_a.npz",
    "tensorboard",
    "a/b",
  ],
)
def test_an_evaluation_takes_no_name_of_the_run(name, runs):
  with refused(f"--evaluation={name!r}"):
    experiment.evaluate_again(runs / "whole", name=name)


@pytest.mark.parametrize("name", ["thesis.tex", "config.json", "methods"])
def test_a_folder_of_somebody_else_is_refused(name, tmp_path):
  (tmp_path / name).write_text('{"name": "my-web-app"}')
  for call in (experiment.run, lambda c, w: experiment.run_seeds(c, w, [1])):
    with refused("--workdir", str(tmp_path)):
      call(helper.config(), tmp_path)
  left = {path.name for path in tmp_path.iterdir()} - {experiment.LOCK}
  assert left == {name}
  assert (tmp_path / name).read_text() == '{"name": "my-web-app"}'


def test_nothing_finished_is_said(runs, tmp_path):
  calls = (
    splitjax.report_again,
    splitjax.evaluate_again,
    lambda workdir: splitjax.load(workdir, "own"),
  )
  for call in calls:
    for workdir in (runs, runs / "three"):
      with refused("--workdir", str(runs)):
        call(workdir)
  with experiment.claimed(tmp_path, config(a="local"), {}, over_seeds=True):
    with refused(f"--workdir={tmp_path} "):
      splitjax.evaluate_again(tmp_path)
  with refused("--workdir"):  # a key that leads elsewhere is no method of it
    splitjax.load(runs / "whole", "../../whole/methods/own")


def test_a_method_is_loaded_without_the_others(runs, tmp_path):
  workdir = shutil.copytree(runs / "whole", tmp_path / "w")
  run = experiment.read_run(workdir)
  run["config"]["methods"]["mine"] = {"name": "mine"}
  files.write_sealed(workdir / "config.json", run)
  assert [*splitjax.load(workdir, "own").config.methods] == ["own"]
  with refused(str(workdir)) as caught:
    splitjax.load(workdir, "mine")
  assert "config=FILE" in str(caught.value)


# What joins, and what may be corrected.


def test_methods_join_a_folder_and_stay_in_it(tmp_path, capsys):
  with pytest.raises(experiment.Stopped):
    experiment.run(config(2, a="splitgp"), tmp_path, stop=After(tmp_path, 1))
  first = experiment.run(config(2, b="fedavg_ft"), tmp_path)
  assert methods(tmp_path) == ["b", "a"]
  assert set(first.runs[0].methods.values()) == {"fedavg_ft"}
  # One that was interrupted goes on beside the others.
  both = experiment.run(config(2, a="splitgp", b="fedavg_ft"), tmp_path)
  assert both.rows == [*first.rows, "a"]
  said = capsys.readouterr().out
  assert "a: resumes after round 1" in said
  assert "earlier start" not in said  # beside b it was not finished
  assert [len(lines(tmp_path, key)) for key in "ab"] == [2, 2]
  stays = both.numbers[both.numbers.row != "a"]
  np.testing.assert_array_equal(stays.value, first.numbers.value)
  assert timeless(splitjax.report_again(tmp_path)) == timeless(both)
  assert {path.name for path in (tmp_path / "tensorboard").iterdir()} == {*"ab"}
  assert splitjax.load(tmp_path, "a").thresholds
  # What a config leaves out stays.
  same = experiment.run(config(2, b="fedavg_ft"), tmp_path)
  assert timeless(same) == timeless(both) and methods(tmp_path) == ["b", "a"]
  said = capsys.readouterr().out
  assert "a: trained by an earlier start, stays in the report" in said
  assert "b: finished before" in said
  # A method is what it was, and labels differ.
  held = (tmp_path / "config.json").read_bytes()
  labelled = config(2, new="local")
  labelled.methods["new"] = splitjax.spec(METHODS, "local", label="a")
  for other in (config(2, b="local", new="local"), labelled):
    with refused("--workdir"):
      experiment.run(other, tmp_path)
    assert (tmp_path / "config.json").read_bytes() == held
  # Title and labels are corrected later.
  c = config(2, b="fedavg_ft")
  c.methods["b"] = splitjax.spec(METHODS, "fedavg_ft", label="FedAvg (ours)")
  named = dataclasses.replace(c, title="Corrected")
  second = experiment.run(named, tmp_path)
  assert second.title == "Corrected"
  assert second.rows == [x.replace("b", "FedAvg (ours)") for x in both.rows]
  np.testing.assert_array_equal(second.numbers.value, both.numbers.value)
  assert timeless(splitjax.report_again(tmp_path)) == timeless(second)
  assert "FedAvg (ours)" in (tmp_path / "report.csv").read_text()
  # Rows of fewer rounds are named.
  longer = experiment.run(dataclasses.replace(named, rounds=3), tmp_path)
  (said,) = (x for x in longer.runs[0].notes if "until now" in x)
  assert said.startswith("a was trained for 2 of 3 rounds")
  # An evaluation has no numbers of a method that is trained on since.
  again = splitjax.evaluate_again(tmp_path, figures="none")
  assert again.rows == longer.rows
  workdirs.reopen(experiment.folder(tmp_path, "a"))
  again = splitjax.evaluate_again(tmp_path, figures="none")
  assert again.rows == [row for row in longer.rows if row != "a"]


@pytest.mark.parametrize(
  ("done", "want"),
  [
    ([{"a": 1, "b": 1}, {"b": 1}, {}], ["ab", "b"]),
    # A mean is over seeds of equally many rounds: those of fewer wait.
    ([{"a": 1, "b": 2}, {"a": 1, "b": 1}], ["ab", "a"]),
    ([{"b": 1}, {"b": 2}], ["b"]),
  ],
)
def test_seeds_and_methods_that_a_report_has(done, want, tmp_path):
  """`done` has the finished methods of each seed's run, with their rounds."""
  for number, finished in enumerate(done):
    run = tmp_path / f"seed{number}"
    with experiment.claimed(run, config(a="local", b="fedavg"), {}):
      for key, rounds in finished.items():
        about = workdirs.About(rounds=rounds, methods={key: key})
        place = experiment.folder(run, key)
        workdirs.write_results(place, about, numbers.frame([], 0), {})
  results = experiment.collect(tmp_path)
  assert ["".join(run.methods) for run in results.runs] == want


@pytest.mark.slow
def test_seeds_and_their_methods_join(tmp_path):
  one, both = config(a="local"), config(b="fedavg", a="local")
  with pytest.raises(experiment.Stopped):
    experiment.run_seeds(one, tmp_path, [0, 1], stop=After(tmp_path, 1))
  done = [(tmp_path / f"seed{n}/numbers.csv").exists() for n in (0, 1)]
  assert done == [True, False]
  first = experiment.run_seeds(one, tmp_path, [0, 1])
  undisturbed = experiment.run_seeds(one, tmp_path / "one", [0, 1])
  assert timeless(first) == timeless(undisturbed)
  for n in (0, 1):
    assert lines(tmp_path / f"seed{n}") == lines(tmp_path / f"one/seed{n}")
  results = experiment.run_seeds(both, tmp_path, [1])
  assert (results.seeds, results.rows) == ([0, 1], ["a", "b"])
  assert results.table()["seeds"].tolist() == ["2", "1"]
  results = experiment.run_seeds(config(b="fedavg"), tmp_path, [0, 1])
  assert (results.seeds, results.rows) == ([0, 1], ["b", "a"])
  assert timeless(splitjax.report_again(tmp_path)) == timeless(results)
  again = splitjax.evaluate_again(tmp_path)
  assert (again.seeds, again.rows) == ([0, 1], ["b", "a"])
  with refused("--workdir"):
    splitjax.load(tmp_path, "a")  # of which seed?
  # Seeds of fewer rounds wait.
  place = tmp_path / "one"
  for seeds in ((0,), (0, 1)):
    longer = experiment.run_seeds(config(2, a="local"), place, seeds)
    assert longer.seeds == list(seeds)
    assert longer.numbers["round"].max() == 2
    assert splitjax.report_again(place).seeds == list(seeds)
