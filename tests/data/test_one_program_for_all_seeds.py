"""The compiled programs do not depend on the seed: clients are arguments."""

import pytest
import tiny

from splitjax.experiment.setup import tasks, training_setup
from splitjax.experiment.trainers.programs import make_evaluator, make_round
from splitjax.experiment.trainers.trainer import Trainer


def lowered(seed, name, participants, deterministic=False):
  """Round and evaluation of a seed's run as text, and the cohorts' clients."""
  c = tiny.tiny(it=name)
  c.seed = seed
  c.unlock()
  c.participants_per_round = participants
  if deterministic:
    c.system.unlock()
    c.system.deterministic, c.system.clients_per_chunk = True, 2
  task = tasks.build(tiny.resolved(c))
  setup = training_setup.make_setup(task, "it")
  state = Trainer(setup).init(tasks.fresh_network(task))
  step = make_round(setup).lower(state, setup.shards)
  numbers = tuple(shard.number for shard in setup.shards)
  mine = state.clients, state.server, numbers, task.pool, task.shown
  evaluate = make_evaluator(setup).lower(*mine)
  clients = [cohort.ids for cohort in setup.fleet.cohorts]
  return clients, step.as_text(), evaluate.as_text()


@pytest.mark.slow  # tests/experiment counts the programs of several seeds
@pytest.mark.parametrize(
  ("name", "participants", "deterministic"),
  [("harmony", None, False), ("splitgp", 4, False), ("fedavg", 4, True)],
)
def test_two_seeds_are_one_program(name, participants, deterministic):
  one, two = (
    lowered(seed, name, participants, deterministic) for seed in (0, 1)
  )
  assert one[0] != two[0] or name == "fedavg"
  assert len(one[1]) > 10_000 < len(one[2])
  assert one[1:] == two[1:]
