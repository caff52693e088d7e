"""What a run of several seeds or cells says of all its trainings."""

import sys
from pathlib import Path

import pytest
import tiny

from splitjax.config import sweep
from splitjax.experiment import finalize, grid, progress, runner

HERE = Path("w")


@pytest.fixture(name="clock")
def stopped_clock(monkeypatch):
  """Seconds that pass only when told."""
  now = [0.0]
  monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
  return now


def test_lines_say_how_far_it_is_and_what_is_left(clock, capsys):
  with progress.overall(18) as every:
    every.cell = "cell 2 of 6: alpha=0.3"
    every.begin("seed 0")
    for i in range(3):  # of an earlier start
      progress.over(HERE / str(i), trained=False)
    every.begin()
    clock[0] = 720
    progress.over(HERE / "3", trained=True)
    progress.over(HERE / "3", trained=False)  # once is enough
    every.begin("seed 1")
    with progress.overall(3) as inner:
      assert inner is every
  progress.over(HERE / "4", trained=True)  # nobody counts
  assert capsys.readouterr().out.splitlines() == [
    "cell 2 of 6: alpha=0.3, seed 0 (0 of 18 done, 0 min so far)",
    "cell 2 of 6: alpha=0.3 (3 of 18 done, 0 min so far)",
    "cell 2 of 6: alpha=0.3, seed 1 (4 of 18 done, 12 min so far, about 168"
    " min left)",
  ]


def test_a_terminal_has_one_bar_over_all(monkeypatch, capsys):
  monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
  with progress.overall(4) as every:
    every.begin("seed 0")
    rounds = progress.Progress("harmony", 2)
    rounds.round(2, "loss 1", True)
    assert every._bar is not None and rounds._bar is not None
    assert not every._bar.pos and rounds._bar.pos  # below it
    rounds.close()
    progress.over(HERE / "a", trained=True)
    progress.over(HERE / "b", trained=False)
    assert (every._bar.n, every._bar.initial) == (2, 1)
  said = capsys.readouterr()
  assert "2/4" in said.err and "seed 0" in said.err and not said.out


def test_nothing_is_said_where_another_process_speaks(monkeypatch, capsys):
  monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
  with progress.overall(4, quiet=True) as every:
    every.begin("seed 0")
    progress.over(HERE / "a", trained=True)
  said = capsys.readouterr()
  assert not said.out and not said.err


def test_a_grid_with_seeds_counts_its_trainings(monkeypatch, tmp_path, capsys):
  given = {**tiny.tiny(a="local", b="fedavg").to_dict()}
  given["sweep"] = {"rounds": (1, 2), "seed": (0, 3)}
  plan = sweep.plan(given)

  def train(task, key, full, workdir, stop):
    del task, full, stop
    progress.over(finalize.folders.folder(workdir, key), trained=True)

  monkeypatch.setattr(runner, "_train_and_keep", train)
  monkeypatch.setattr(runner.results, "publish", lambda *_: {})
  monkeypatch.setattr(runner.again, "report_again", lambda _: {})
  monkeypatch.setattr(grid, "_publish", lambda *_: {})
  grid.run(plan.cells, tmp_path / "w", plan.seeds)
  said = capsys.readouterr().out.splitlines()
  begun = [line.split(",")[:2] for line in said if line.startswith("cell")]
  assert [", ".join(words).split(" done")[0] for words in begun] == [
    "cell 1 of 2: rounds=1,  seed 0 (0 of 8",
    "cell 1 of 2: rounds=1,  seed 3 (2 of 8",
    "cell 2 of 2: rounds=2,  seed 0 (4 of 8",
    "cell 2 of 2: rounds=2,  seed 3 (6 of 8",
  ]
