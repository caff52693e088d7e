"""Checkpoints of another run are nobody's."""

import contextlib

import pytest
from runs import config, stopped

from splitjax import UserError
from splitjax.experiment import runner
from splitjax.experiment.setup import client_data

pytestmark = pytest.mark.usefixtures("traced_once")


def another(place, one, two):
  """A run that stopped, with another one's checkpoint as its newest."""
  stopped(one, place / "a", 2)
  with two() as config_of_two:
    stopped(config_of_two, place / "b", 3)
  steps = "methods/own/checkpoints"
  (place / "b" / steps / "3").rename(place / "a" / steps / "3")
  return place / "a"


def test_another_runs_checkpoint_is_refused(tmp_path):
  other = config(batch_size=7)
  place = another(tmp_path, config(), lambda: contextlib.nullcontext(other))
  with pytest.raises(UserError, match="another run .batch_size is 7 there"):
    runner.run(config(), place)
  assert (place / "methods/own/checkpoints/3").exists()


@pytest.mark.slow
@pytest.mark.parametrize("fact", ["digest", "partition"])
def test_a_checkpoint_of_other_data_is_refused(fact, tmp_path, monkeypatch):
  @contextlib.contextmanager
  def other():
    facts = client_data.facts
    with monkeypatch.context() as patch:
      patch.setattr(
        client_data, "facts", lambda *a: {**facts(*a), fact: "other"}
      )
      yield config()

  place = another(tmp_path, config(), other)
  with pytest.raises(UserError, match=f"another run .{fact} is"):
    runner.run(config(), place)
