"""Runs with a pace: the modelled time decides who takes part, and is shown."""

import numpy as np
import pytest
import tiny
from runs import config, lines, rows, same_run, stopped

import splitjax
from splitjax import PACES
from splitjax.experiment import runner
from splitjax.experiment.describe import describe, description
from splitjax.experiment.measure import costs
from splitjax.experiment.measure.measurements import MEASUREMENTS
from splitjax.experiment.setup import tasks, training_setup
from splitjax.experiment.storage import workdirs
from splitjax.experiment.trainers.trainer import Trainer
from splitjax.types import UserError

pytestmark = pytest.mark.usefixtures("traced_once")


def paced(method, name, **options):
  c = tiny.tiny(**{method: method})
  c.pace = splitjax.spec(PACES, name, **options)
  return c


def setup_of(c):
  task = tasks.build(tiny.resolved(c))
  (key,) = task.methods
  return training_setup.make_setup(task, key)


def trained_once(setup):
  trainer = Trainer(setup)
  state = trainer.init(tasks.fresh_network(setup.task))
  _, metrics = trainer.step(state)
  plan = costs.whole_round(setup)
  return metrics, costs.of_metrics(setup, plan, metrics)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("method", "late"),
  [("splitgp", "partial"), ("harmony", "drop")],
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
  drawn = 0.02 if method == "harmony" else 1e-6  # its depth, in each step
  assert (cost.busy <= ends * (1 + drawn)).all()
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


def test_work_that_is_no_step_comes_before_the_steps():
  """PGFedSplit's head, whatever is left of the round."""
  setup = setup_of(paced("pgfedsplit", "deadline"))
  plan, times = costs.whole_round(setup), setup.times
  speed = 1e9 * np.array(setup.fleet.hardware.profiles.compute)
  assert (plan.once > 0).all() and (times.start > plan.once / speed).all()
  steps = plan.client / speed
  np.testing.assert_allclose(times.each_step * times.steps, steps, rtol=1e-9)


BIG = r"pace.size=10 must be at most num_clients=6"
FEW = r"pace.size=3 must be at most participants_per_round=2"
REFUSED = [
  ("splitfed_v2", {"name": "deadline"}, {}, "splitfed_v2 has one server"),
  ("hydra", {"size": 2}, {}, "hydra has one server"),
  ("fedamp", {"size": 2}, {}, "fedamp reads all clients at the end"),
  ("supersfl", {"size": 2}, {}, "clients and server share their parameters"),
  ("splitgp", {}, {}, BIG),
  ("splitgp", {"size": 3}, {"participants_per_round": 2}, FEW),
  ("splitgp", {"size": 2}, {"participation": "stratified"}, "stratified"),
  ("splitgp", {"size": 2}, {"faults__dropout": 0.1}, "excludes faults"),
]


@pytest.mark.parametrize(("method", "pace", "fields", "words"), REFUSED)
def test_what_does_not_fit_is_one_line(method, pace, fields, words):
  c = tiny.changed(paced(method, **{"name": "buffered", **pace}), **fields)
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
  facts = describe.describe(tiny.resolved(paced("splitgp", "buffered", size=2)))
  said = "the server steps after 2 updates of 6 clients in flight"
  assert said in description.text(facts)


@pytest.mark.slow
def test_a_buffered_run_goes_on_where_it_was(tmp_path, blank):
  fields = {"participants_per_round": 4, "optimizer__keep_state": True}
  fields |= {"mean_optimizer__name": "fedadam"}
  fields |= {"wire__parameters__form": "int8"}
  pace = {"name": "buffered", "size": 2, "staleness": 0.5}
  resolved = config("harmony", pace=pace, **fields)
  one = runner.run(resolved, tmp_path / "one")
  stopped(resolved, tmp_path / "two", 2)
  two = runner.run(resolved, tmp_path / "two")
  same_run(tmp_path / "one", tmp_path / "two")
  assert rows(one) == rows(two)
  # Its clock is the report's, and its staleness adds up to its updates.
  log = lines(tmp_path / "two")
  assert all(x["participants"] == sum(x["staleness"]) == 2 for x in log)
  curve = one["learning"][one["rows"][0]["label"]]["cost"]["seconds"]
  clock = np.cumsum([x["cost"]["seconds"] for x in log])
  assert curve == pytest.approx(clock[[1, 3]].tolist())
  spent = one["rows"][0]["cost"]
  assert 0 <= spent["slow_share"] < 2 and spent["staleness"] >= 0
  assert (tmp_path / "one" / "cost_own.png").exists()
  assert "slower half" in (tmp_path / "one" / "report.md").read_text()


def test_an_overwritten_run_loses_every_figure_of_a_method():
  drawn = {n for n, each in MEASUREMENTS.items() if hasattr(each, "picture")}
  assert {"cost", "confusion"} <= drawn <= set(workdirs.OF_METHODS)
