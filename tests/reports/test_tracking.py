"""Weights & Biases gets every round once, offline too, from one run each."""

import sys
import types

import pytest
from runs import ROUNDS, config, stopped

from splitjax import UserError
from splitjax.experiment import runner

pytestmark = pytest.mark.usefixtures("traced_once")


class Refused(Exception):
  """What the package raises without a login."""


@pytest.fixture
def stand_in(monkeypatch):
  """A module in place of the package; the runs that were begun."""
  begun = []

  class Run:
    def __init__(self, **how):
      self.how, self.lines, self.finished = how, [], False

    def log(self, values, step):
      self.lines.append((step, values))

    def finish(self):
      self.finished = True

  def init(**how):
    begun.append(Run(**how))
    return begun[-1]

  module = types.ModuleType("wandb")
  module.init, module.Settings, module.Error = init, dict, Refused
  monkeypatch.setitem(sys.modules, "wandb", module)
  return module, begun


def test_a_stopped_run_goes_on_with_its_own(stand_in, tmp_path):
  _, begun = stand_in
  tracked = config(wandb="mine")
  stopped(tracked, tmp_path / "w", 2)
  runner.run(tracked, tmp_path / "w")
  first, second = begun
  assert first.how["id"] == second.how["id"] and second.how["resume"] == "allow"
  assert (first.how["project"], first.how["group"]) == ("mine", "w")
  assert first.how["name"] == "own, seed 0" and first.finished
  lines = first.lines + second.lines
  assert [step for step, _ in lines] == [*range(1, ROUNDS + 1)]
  assert "accuracy/0.8" in lines[-1][1] and "loss/client" in lines[0][1]
  assert second.finished


def test_a_run_that_fails_is_finished_too(stand_in, tmp_path):
  _, begun = stand_in

  def fails():
    raise OSError("full")

  with pytest.raises(OSError, match="full"):
    runner.run(config(wandb="mine"), tmp_path / "w", stop=fails)
  assert begun[0].finished


def test_without_a_login(stand_in, tmp_path):
  module, _ = stand_in

  def init(**how):
    raise Refused("No API key configured.\nUse `wandb login`.")

  module.init = init
  with pytest.raises(UserError, match="^wandb=mine: No API key .*offline"):
    runner.run(config(wandb="mine"), tmp_path / "w")


def test_without_the_package(monkeypatch, tmp_path):
  monkeypatch.setitem(sys.modules, "wandb", None)
  with pytest.raises(UserError, match=r"pip install 'splitjax\[wandb\]'"):
    runner.run(config(wandb="mine"), tmp_path / "w")


def test_offline(monkeypatch, tmp_path):
  pytest.importorskip("wandb", reason="needs splitjax[wandb]")
  monkeypatch.setenv("WANDB_MODE", "offline")
  runner.run(config(wandb="mine"), tmp_path / "w")
  (written,) = (tmp_path / "w/wandb").glob("offline-run-*/run-*.wandb")
  content = written.read_bytes()
  assert b"own, seed 0" in content and b"accuracy/0.8" in content
