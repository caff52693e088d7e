"""Who a client is comes with its data: programs serve any seed's clients."""

import pytest
import tiny

from splitjax.experiment import federation as federations
from splitjax.experiment import task as tasks
from splitjax.experiment import train


def lowered(seed, name, participants, deterministic=False):
  """The round and the look of a seed's run, as text, and who lies where."""
  c = tiny.tiny(it=name)
  c.seed = seed
  c.unlock()
  c.participants_per_round = participants
  if deterministic:
    c.system.unlock()
    c.system.deterministic, c.system.clients_per_chunk = True, 2
  task = tasks.build(tiny.resolved(c))
  federation = federations.make_federation(task, "it")
  state = federations.fresh_state(task, federation, tasks.fresh_network(task))
  step = train.make_round(task, federation).lower(state, federation.shards)
  look = train.make_evaluator(task, federation)
  look = look.lower(state, federation.shards, task.pool, task.shown)
  whose = [cohort.ids for cohort in federation.fleet.cohorts]
  return whose, step.as_text(), look.as_text()


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
