"""What a training says at its end."""

import pytest
import tiny

from splitjax import files
from splitjax.experiment import closing_text
from splitjax.experiment.storage import fingerprint, ownership
from splitjax.experiment.storage import workdir as workdirs

ROUND = {"masked": []}


def finished(workdir, key, lines=(ROUND,), train=100.0):
  """A method as `finished.save` leaves it, as far as the farewell looks."""
  seconds = {"train": train, "compile": 20.4, "evaluate": 0.0}
  rows = [{"seconds": seconds}] * 2  # the second one is +FT
  place = workdirs.folder(workdir, key)
  place.mkdir(parents=True)
  about = fingerprint.sealed({"rows": rows, "lines": list(lines)})
  files.write_json(place / workdirs.ABOUT, about)


def test_it_says_where_everything_lies(tmp_path):
  config = tiny.resolved(harmony="harmony", fedavg="fedavg")
  finished(tmp_path, "harmony", [{"masked": [1, 2]}, {"masked": [2]}])
  finished(tmp_path, "fedavg", [{**ROUND, "faults": {"dropped": 2}}] * 2)
  said = closing_text.of_run(tmp_path, config).splitlines()
  assert said == [
    f"report      {tmp_path}/report.md, .json, .csv, .tex, *.png",
    f"each round  {tmp_path}/metrics.jsonl",
    f"            tensorboard --logdir={tmp_path}/tensorboard",
    f"networks    {tmp_path}/methods",
    f'            splitjax.load("{tmp_path}", "harmony")  # in Python',
    f"take home   python launch.py --mode=export --workdir={tmp_path}"
    " --client=0 --method=harmony",
    "time        4 min 1 s (train 3 min 20 s, compile 41 s, evaluate 0 s)",
    "left out    updates that were not finite: harmony 3",
    "faults      dropped 4 (clients, summed over rounds)",
  ]


def test_of_several_seeds_and_a_folder_with_a_blank(tmp_path):
  config = tiny.resolved(own="local")
  place = tmp_path / "my run"
  with ownership.owned(place, config, {}, False, over_seeds=True):
    for seed in (0, 5):
      with ownership.owned(place / f"seed{seed}", config, {}, False):
        finished(place / f"seed{seed}", "own", train=3600)
  said = closing_text.of_run(place, config)
  assert f"{place}/seed*/metrics.jsonl" in said
  assert f"tensorboard --logdir='{place}'" in said
  assert f'splitjax.load("{place}/seed0", "own")' in said
  assert f"'--workdir={place}/seed0'" in said
  assert "2 h 0 min (train 2 h 0 min" in said
  assert "2 seeds together" in said
  assert "left out" not in said and "faults" not in said


@pytest.mark.parametrize(
  ("seconds", "words"),
  [(0, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (7265, "2 h 1 min")],
)
def test_seconds_in_words(seconds, words):
  assert closing_text._minutes(seconds) == words


def test_of_a_grid_over_seeds(tmp_path):
  config = tiny.resolved(own="local", theirs="fedavg")
  names = ["k=1", "k=2"]
  for name in names:
    place = tmp_path / name
    with ownership.owned(place, config, {}, False, over_seeds=True):
      for seed in (0, 5):
        run = place / f"seed{seed}"
        with ownership.owned(run, config, {}, False):
          finished(run, "own", [{"masked": [1]}])
          finished(run, "theirs", [{**ROUND, "faults": {"dropped": 2}}])
  said = closing_text.of_grid(tmp_path, names, config).splitlines()
  assert (
    said[0] == f"report      {tmp_path}/report.md, .json, .csv, .tex, *.png"
  )
  assert f"each round  {tmp_path}/*/seed*/metrics.jsonl" in said
  assert f"networks    {tmp_path}/*/seed*/methods" in said
  assert any(f'splitjax.load("{tmp_path}/k=1/seed0", "own")' in x for x in said)
  # Eight times 100 s of training and 20.4 s of compiling.
  assert said[-3:] == [
    "time        16 min 3 s (train 13 min 20 s, compile 2 min 43 s, evaluate"
    " 0 s), 4 runs together",
    "left out    updates that were not finite: own 4",
    "faults      dropped 8 (clients, summed over rounds)",
  ]
