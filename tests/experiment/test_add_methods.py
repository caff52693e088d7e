"""Methods and seeds that join a workdir later, and what stays of earlier ones.

No test here depends on what is learned: runs are of one round, or of none.
"""

import dataclasses
import json

import numpy as np
import pytest
import tiny
from runs import After
from selected import timeless

import splitjax
from splitjax import METHODS, UserError, experiment, files

pytestmark = pytest.mark.slow


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
  return list(experiment.read_saved(workdir)["config"]["methods"])


def logged(workdir):
  text = (workdir / "metrics.jsonl").read_text()
  return sorted(json.loads(line)["method"] for line in text.splitlines())


@pytest.fixture(scope="module")
def grown(tmp_path_factory, quick_compile_all):
  """A run of one λ to which another one was added."""
  del quick_compile_all
  workdir = tmp_path_factory.mktemp("grown") / "w"
  first = experiment.run(config(lams=(0.2,)), workdir)
  second = experiment.run(config(lams=(0.5, 0.2)), workdir)
  return workdir, first, second


def test_values_of_an_option_are_added_later(grown):
  workdir, first, second = grown
  assert second.rows == ["own λ=0.5", "own λ=0.2"]
  stays = second.numbers[second.numbers.row == "own λ=0.2"]
  np.testing.assert_array_equal(stays.value, first.numbers.value)
  assert methods(workdir) == ["own_lam_0_5", "own_lam_0_2"]
  assert timeless(splitjax.report_again(workdir)) == timeless(second)
  assert logged(workdir) == ["own_lam_0_2", "own_lam_0_5"]
  logs = {path.name for path in (workdir / "tensorboard").iterdir()}
  assert logs == {"own_lam_0_2", "own_lam_0_5"}


def test_what_a_config_leaves_out_stays(grown, capsys):
  workdir, _, second = grown
  held = (workdir / "config.json").read_bytes()
  third = experiment.run(config(lams=(0.2,)), workdir)
  assert timeless(third) == timeless(second)
  said = capsys.readouterr().out
  assert "own_lam_0_5: trained by an earlier start, stays in the report" in said
  assert "own_lam_0_2: finished before" in said
  assert logged(workdir) == ["own_lam_0_2", "own_lam_0_5"]
  assert (workdir / "config.json").read_bytes() == held
  assert splitjax.load(workdir, "own_lam_0_5").thresholds


def test_a_method_is_what_it_was(grown):
  workdir, *_ = grown
  held = (workdir / "config.json").read_bytes()
  other = config(own_lam_0_2="splitgp", new="local")
  with pytest.raises(UserError, match="own_lam_0_2.label is .* there and None"):
    experiment.run(other, workdir)
  named = config(new="local")
  spec = dataclasses.replace(named.methods["new"], label="own λ=0.5")
  named = dataclasses.replace(named, methods={"new": spec})
  with pytest.raises(UserError, match="w has methods of earlier starts: .*own"):
    experiment.run(named, workdir)
  fewer = dataclasses.replace(config(new="local"), batch_size=7)
  with pytest.raises(UserError, match="batch_size is 10 there and 7 here"):
    experiment.run(fewer, workdir)
  assert (workdir / "config.json").read_bytes() == held


def test_one_that_was_interrupted_goes_on_beside_others(tmp_path, capsys):
  def two(**methods):
    changed = dataclasses.replace(config(**methods), rounds=2)
    kept = dataclasses.replace(changed.checkpoint, every=1)
    return dataclasses.replace(changed, checkpoint=kept)

  with pytest.raises(experiment.Stopped):
    experiment.run(two(a="local"), tmp_path, stop=After(tmp_path, 1))
  found = experiment.run(two(b="fedavg"), tmp_path)
  assert found.rows == ["b"] and methods(tmp_path) == ["b", "a"]
  found = experiment.run(two(a="local", b="fedavg"), tmp_path)
  assert found.rows == ["b", "a"]
  assert "a: resumes after round 1" in capsys.readouterr().out
  assert logged(tmp_path) == ["a", "a", "b", "b"]


def test_which_methods_two_configs_share():
  one, two = config(a="local", b="fedavg"), config(c="splitgp", b="fedavg")
  assert experiment.unlike(one, two) is None
  assert experiment.unlike(one, config(a="local", b="splitfed_v1"))
  assert list(experiment.joined(two, one.to_dict()).methods) == ["c", "b", "a"]
  fewer = experiment.joined(config(b="fedavg"), one.to_dict())
  assert fewer == one and list(fewer.methods) == ["a", "b"]


def test_seeds_and_methods_that_can_be_compared(tmp_path):
  def left(done):
    """One run per seed, of which so much is finished."""
    place = tmp_path / "-".join(done)
    for number, keys in enumerate(done):
      run = place / f"seed{number}"
      with experiment.owned(run, config(a="local", b="fedavg"), {}):
        for key in keys:
          path = experiment.folder(run, key) / experiment.ABOUT
          path.parent.mkdir(parents=True)
          files.write_json(path, {"rows": []})
    runs, keys = experiment.comparable(experiment.seeds_of(place))
    return [run.name for run in runs], keys

  both, all = ["a", "b"], ["seed0", "seed1", "seed2"]
  assert left(["ab", "ab", "ab"]) == (all, both)
  assert left(["ab", "ab", "a"]) == (all[:2], both)
  assert left(["ab", "b", "b"]) == (all, ["b"]), "an added one waits"
  assert left(["ab", "b"]) == (all[:2], ["b"]), "intervals want seeds"
  assert left(["", "b"]) == (["seed1"], ["b"])
  assert left(["", ""])[1] == []


@pytest.mark.slow
def test_methods_join_seeds(tmp_path):
  one, both = config(a="local"), config(b="fedavg", a="local")
  experiment.run_seeds(one, tmp_path, [0, 1])
  found = experiment.run_seeds(both, tmp_path, [1])
  assert (found.seeds, found.rows) == ([0, 1], ["a"])
  assert "b is not finished for every seed: left out" in found.remarks
  found = experiment.run_seeds(config(b="fedavg"), tmp_path, [0, 1])
  assert (found.seeds, found.rows) == ([0, 1], ["b", "a"])
  assert timeless(splitjax.report_again(tmp_path)) == timeless(found)
  again = splitjax.evaluate_again(tmp_path, config(a="local"))
  assert (again.seeds, again.rows) == ([0, 1], ["a"])
  with pytest.raises(UserError, match="holds one run per seed: name"):
    splitjax.load(tmp_path, "a")
