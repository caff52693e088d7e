"""Runs with a pace: the modelled time decides who takes part, and is shown."""

import numpy as np
import pytest
import tiny

import splitjax
from splitjax import PACES
from splitjax.experiment.describe import describe, description
from splitjax.experiment.measure import costs
from splitjax.experiment.setup import tasks, training_setup
from splitjax.experiment.trainers.host_trainer import make_trainer
from splitjax.types import UserError


def paced(method, name, **options):
  c = tiny.tiny(**{method: method})
  c.pace = splitjax.spec(PACES, name, **options)
  return c


def setup_of(c):
  task = tasks.build(tiny.resolved(c))
  (key,) = task.methods
  return training_setup.make_setup(task, key)


def trained_once(setup):
  trainer = make_trainer(setup)
  state = trainer.init(tasks.fresh_network(setup.task))
  _, metrics = trainer.step(state)
  plan = costs.whole_round(setup)
  return metrics, costs.of_metrics(setup, plan, metrics)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("method", "late"),
  [("splitgp", "partial"), ("harmony", "drop"), ("fedrep", "partial")],
)
def test_a_round_ends_at_the_deadline(method, late):
  c = paced(method, "deadline", quantile=0.5, late=late)
  c.local_epochs = 3
  setup = setup_of(c)
  ends, times = setup.pace.ends(setup.times), setup.times
  metrics, cost = trained_once(setup)
  share = setup.pace.shares(times, training_setup.staged(setup))
  took = share * times.steps
  assert metrics.steps.tolist() == pytest.approx(took.tolist(), abs=1)
  assert 0 < (took < times.steps).sum() < 6
  assert (cost.busy <= ends * 1.02).all()  # HARMONY's drawn depth
  served = cost.server_joules / setup.task.network.fleet.hardware.rates[3]
  assert cost.seconds == pytest.approx(ends + served)


@pytest.mark.slow
def test_times_are_those_of_the_cost_of_a_round():
  """Predicted without training, by what a round is charged for afterwards."""
  setup = setup_of(paced("splitgp", "deadline", quantile=1.0))
  assert setup.shards[0].schedule == ()  # nobody is late: today's program
  _, cost = trained_once(setup)
  np.testing.assert_allclose(setup.times.whole, cost.busy, rtol=1e-6)
  watts = setup.task.network.fleet.hardware.rates.server_watts
  serves = cost.server_joules / watts
  assert setup.times.serves.sum() == pytest.approx(serves)


REFUSED = [
  ("splitfed_v2", "deadline", {}, "splitfed_v2 has one server"),
  ("dfl", "deadline", {}, "dfl draws or plans its cuts anew"),
]


@pytest.mark.parametrize(("method", "name", "fields", "words"), REFUSED)
def test_what_does_not_fit_is_one_line(method, name, fields, words):
  c = tiny.changed(paced(method, name), **fields)
  with pytest.raises(UserError, match=words) as caught:
    tasks.build(tiny.resolved(c))
  assert "\n" not in str(caught.value)


def test_a_deadline_is_checked_before_the_first_method_trains(tmp_path):
  c = tiny.tiny(a="fedavg", b="splitgp")
  c.local_epochs = 3
  c.pace = splitjax.spec(PACES, "deadline", seconds=0.2, late="drop")
  with pytest.raises(UserError, match="no client is ready after 0.2 s"):
    splitjax.run(c, tmp_path / "run")
  assert not (tmp_path / "run" / "methods" / "a" / "about.json").exists()


@pytest.mark.slow
def test_a_description_says_who_is_late():
  facts = describe.describe(
    tiny.resolved(paced("splitgp", "deadline", quantile=0.5, late="drop"))
  )
  told = facts["methods"]["splitgp"]["pace"]
  assert told["late"] == told["left_out"] == 3
  assert "0 are cut short and 3 left out at" in description.text(facts)
