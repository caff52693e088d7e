"""The compiled programs do not depend on the seed: clients are arguments."""

import pytest
import tiny

from splitjax.experiment import programs, training_setup
from splitjax.experiment import task as tasks


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
  federation = training_setup.make_federation(task, "it")
  state = programs.fresh_state(task, federation, tasks.fresh_network(task))
  step = programs.make_round(task, federation).lower(state, federation.shards)
  numbers = tuple(shard.number for shard in federation.shards)
  mine = state.clients, state.server, numbers, task.pool, task.shown
  evaluate = programs.make_evaluator(task, federation).lower(*mine)
  clients = [cohort.ids for cohort in federation.fleet.cohorts]
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
