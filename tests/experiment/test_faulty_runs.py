"""A run with faults: its log, its description, its identity."""

import pytest
import tiny
from runs import lines

import splitjax
from splitjax.experiment import runner
from splitjax.experiment.describe import describe, description
from splitjax.experiment.setup import tasks, training_setup
from splitjax.types import UserError

PLAN = "round,client,fault,share\n1,2,dropout,\n2,all,server_down,\n"


def drafted(path, method="splitgp", **fields):
  c = tiny.tiny(own=method)
  c.faults.update(fields)
  c.faults.schedule = str(path)
  return c


@pytest.fixture(name="plan")
def write_plan(tmp_path):
  path = tmp_path / "plan.csv"
  path.write_text(PLAN)
  return path


@pytest.mark.slow
def test_the_log_says_what_went_wrong(plan, tmp_path):
  config = tiny.resolved(drafted(plan))
  found = runner.run(config, tmp_path / "run")
  one, two = lines(tmp_path / "run")
  assert one["faults"] == {"dropped": 1, "stragglers": 0, "alone": 0}
  assert one["participants"] == 5 and one["masked"] == []
  assert two["faults"] == {"dropped": 0, "stragglers": 0, "alone": 6}
  assert two["participants"] == 6
  assert two["loss"]["server"] is None and two["loss"]["client"] > 0
  assert two["wire"]["up/features"] == 0 < one["wire"]["up/features"]
  # What went wrong is the simulation's business, and not a warning.
  assert not [n for n in found["notes"] if "finite" in n]


def test_a_run_is_known_by_what_is_planned_not_by_where_it_lies(plan, tmp_path):
  moved = tmp_path / "elsewhere.csv"
  head, *rest = PLAN.splitlines()
  moved.write_text("\n".join([head, *reversed(rest)]) + "\n")
  one, two = (
    tasks.build(tiny.resolved(drafted(path))) for path in (plan, moved)
  )
  assert one.facts == two.facts
  moved.write_text(PLAN.replace("dropout", "server_down"))
  other = tasks.build(tiny.resolved(drafted(moved)))
  assert other.facts["faults"] != one.facts["faults"]
  moved.unlink()
  assert "faults" not in tasks.build(tiny.resolved()).facts


def test_clients_carry_their_part_of_the_plan(plan):
  task = tasks.build(tiny.resolved(drafted(plan)))
  setup = training_setup.make_setup(task, "own")
  for cohort, shard in zip(setup.fleet.cohorts, setup.shards, strict=True):
    assert shard.number.tolist() == list(cohort.places)
    assert shard.schedule.straggler is None
    assert shard.schedule.dropout.tolist() == [
      [n == 2, False] for n in cohort.places
    ]
    assert shard.schedule.server_down.tolist() == [
      [False, True] for _ in cohort.places
    ]


@pytest.mark.slow
def test_a_description_says_it(plan):
  facts = describe.describe(tiny.resolved(drafted(plan, dropout=0.25)))
  said = f"Faults: dropout 0.25, schedule {plan}"
  assert facts["faults"] == said and said in description.text(facts)
  facts = describe.describe(tiny.resolved(own="splitgp"))
  assert facts["faults"] == "" and "Faults" not in description.text(facts)


def test_a_trained_network_needs_its_schedule_no_more(plan, tmp_path):
  config = tiny.resolved(drafted(plan, "fedavg"))
  found = runner.run(config, tmp_path / "run")
  plan.unlink()
  again = splitjax.evaluate_again(tmp_path / "run")
  assert again["rows"][0]["summary"] == found["rows"][0]["summary"]
  splitjax.load(tmp_path / "run", "own")
  plan.write_text(PLAN + "2,3,dropout,\n")
  with pytest.raises(UserError, match="belongs to another config .*faults is"):
    runner.run(config, tmp_path / "run")


@pytest.mark.slow
def test_a_client_that_needs_the_server_cannot_lose_it_in_a_step():
  draft = tiny.tiny(v1="splitfed_v1")
  draft.faults.update(server_down=0.5, server_down_per="step")
  with pytest.raises(UserError, match="step: clients of v1 cannot take a step"):
    tasks.build(tiny.resolved(draft))


def test_giving_up_is_no_other_run(tmp_path):
  c = tiny.tiny(local="local")
  c.on_nan, c.optimizer.lr, c.checkpoint.every = "stop", 1e30, 1
  with pytest.raises(UserError, match="in round 1 the updates of clients"):
    runner.run(tiny.resolved(c), tmp_path / "w")
  c.on_nan = "mask"
  found = runner.run(tiny.resolved(c), tmp_path / "w")
  assert any("not finite and left out in 2 rounds" in n for n in found["notes"])
  for line in lines(tmp_path / "w"):
    assert line["masked"] == [0, 1, 2, 3, 4, 5]
    assert line["loss"] == {"client": None}
