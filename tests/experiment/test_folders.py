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
from splitjax import METHODS, UserError, experiment, files
from splitjax.experiment import workdirs
from splitjax.reports import numbers


def config(*, lams=(), **methods):
  """A config of one round; `lams` are SplitGP's λ, a method each."""
  c = tiny.tiny(**methods)
  c.rounds = 1
  if lams:
    splitjax.compare(
      c,
      {
        f"own_lam_{lam}".replace(".", "_"): splitjax.spec(
          METHODS, "splitgp", label=f"own λ={lam}", lam=lam
        )
        for lam in lams
      },
    )
  return tiny.resolved(c)


def methods(workdir):
  return list(experiment.read_run(workdir)["config"]["methods"])


# Whose it is.


@pytest.mark.parametrize(
  ("changes", "field"),
  [
    ({"batch_size": 7}, "batch_size is 10 there and 7 here"),
    ({"optimizer__lr": 0.5}, "optimizer.lr"),
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


def test_other_data_are_refused(tmp_path):
  for digest in ("0", "1"):
    claim = experiment.claimed(tmp_path, helper.config(), {"digest": digest})
    if digest == "0":
      with claim:
        assert (tmp_path / experiment.LOCK).exists()
    else:
      with pytest.raises(UserError, match="on other data: digits"), claim:
        pass


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
  with refused(str(runs)):  # a key that leads elsewhere is no method of it
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


# What may be corrected.


def test_title_and_labels_are_corrected_later(tmp_path):
  c = helper.draft("fedavg_ft")
  first = experiment.run(tiny.resolved(c), tmp_path)
  assert first.rows == ["own"] or first.rows == ["own", "own+FT"]
  c.title = "Corrected"
  c.methods["own"] = splitjax.spec(METHODS, "fedavg_ft", label="FedAvg (ours)")
  second = experiment.run(tiny.resolved(c), tmp_path)
  assert second.title == "Corrected"
  assert second.rows == [
    row.replace("own", "FedAvg (ours)") for row in first.rows
  ]
  np.testing.assert_array_equal(second.numbers.value, first.numbers.value)
  assert timeless(splitjax.report_again(tmp_path)) == timeless(second)
  assert "FedAvg (ours)" in (tmp_path / "report.csv").read_text()


# What joins.


@pytest.fixture(scope="module")
def grown(tmp_path_factory, quick_compile_all):
  """A run of one λ to which another one was added."""
  del quick_compile_all
  workdir = tmp_path_factory.mktemp("grown") / "w"
  first = experiment.run(config(lams=(0.2,)), workdir)
  second = experiment.run(config(lams=(0.5, 0.2)), workdir)
  return workdir, first, second


@pytest.mark.slow
def test_values_of_an_option_are_added_later(grown, capsys):
  workdir, first, second = grown
  assert second.rows == ["own λ=0.5", "own λ=0.2"]
  stays = second.numbers[second.numbers.row == "own λ=0.2"]
  np.testing.assert_array_equal(stays.value, first.numbers.value)
  assert methods(workdir) == ["own_lam_0_5", "own_lam_0_2"]
  assert timeless(splitjax.report_again(workdir)) == timeless(second)
  logs = {path.name for path in (workdir / "tensorboard").iterdir()}
  assert logs == {"own_lam_0_2", "own_lam_0_5"}

  # What a config leaves out stays.
  third = experiment.run(config(lams=(0.2,)), workdir)
  assert timeless(third) == timeless(second)
  said = capsys.readouterr().out
  assert "own_lam_0_5: trained by an earlier start, stays in the report" in said
  assert "own_lam_0_2: finished before" in said
  assert methods(workdir) == ["own_lam_0_5", "own_lam_0_2"]
  assert splitjax.load(workdir, "own_lam_0_5").thresholds


def test_a_method_is_what_it_was(grown):
  workdir, *_ = grown
  held = (workdir / "config.json").read_bytes()
  other = config(own_lam_0_2="local", new="local")
  with pytest.raises(UserError, match="own_lam_0_2"):
    experiment.run(other, workdir)
  named = config(new="local")
  named.methods["new"] = splitjax.spec(METHODS, "local", label="own λ=0.5")
  with pytest.raises(UserError, match="w has methods of earlier starts: .*own"):
    experiment.run(named, workdir)
  assert (workdir / "config.json").read_bytes() == held


@pytest.mark.slow
def test_one_that_was_interrupted_goes_on_beside_others(tmp_path, capsys):
  def two(**methods):
    changed = dataclasses.replace(config(**methods), rounds=2)
    kept = dataclasses.replace(changed.checkpoint, every=1)
    return dataclasses.replace(changed, checkpoint=kept)

  with pytest.raises(experiment.Stopped):
    experiment.run(two(a="local"), tmp_path, stop=After(tmp_path, 1))
  results = experiment.run(two(b="fedavg"), tmp_path)
  assert results.rows == ["b"] and methods(tmp_path) == ["b", "a"]
  results = experiment.run(two(a="local", b="fedavg"), tmp_path)
  assert results.rows == ["b", "a"]
  assert "a: resumes after round 1" in capsys.readouterr().out
  assert [len(lines(tmp_path, key)) for key in "ab"] == [2, 2]


@pytest.mark.slow
def test_rows_of_fewer_rounds_are_named(tmp_path):
  two = tiny.resolved(one="local", two="fedavg")
  experiment.run(two, tmp_path / "w")
  one = {"one": two.methods["one"]}
  more = dataclasses.replace(two, rounds=3, methods=one)
  notes = experiment.run(more, tmp_path / "w").runs[0].notes
  (said,) = (x for x in notes if "until now" in x)
  assert said.startswith("two was trained for 2 of 3 rounds")


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
def test_methods_join_seeds(tmp_path):
  one, both = config(a="local"), config(b="fedavg", a="local")
  experiment.run_seeds(one, tmp_path, [0, 1])
  results = experiment.run_seeds(both, tmp_path, [1])
  assert (results.seeds, results.rows) == ([0, 1], ["a", "b"])
  assert results.table()["seeds"].tolist() == ["2", "1"]
  results = experiment.run_seeds(config(b="fedavg"), tmp_path, [0, 1])
  assert (results.seeds, results.rows) == ([0, 1], ["b", "a"])
  assert timeless(splitjax.report_again(tmp_path)) == timeless(results)
  again = splitjax.evaluate_again(tmp_path)
  assert (again.seeds, again.rows) == ([0, 1], ["b", "a"])
  with refused("--workdir") as caught:
    splitjax.load(tmp_path, "a")
  assert "holds one run per seed" in str(caught.value)
