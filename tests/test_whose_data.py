"""Who a client is comes with its data: programs serve any seed's clients."""

import pytest
import tiny

from splitjax import courses, training, world


def lowered(seed, name, participants, deterministic=False):
  """The round and the look of a seed's run, as text, and who lies where."""
  c = tiny.tiny(it=name)
  c.seed = seed
  c.unlock()
  c.participants_per_round = participants
  if deterministic:
    c.system.unlock()
    c.system.deterministic, c.system.clients_per_chunk = True, 2
  here = world.build(tiny.resolved(c))
  course = courses.make_course(here, "it")
  state = courses.fresh_state(here, course, world.fresh_network(here))
  step = training.make_round(here, course).lower(state, course.shards)
  look = training.make_look(here, course)
  look = look.lower(state, course.shards, here.pool, here.shown)
  whose = [cohort.ids for cohort in course.fleet.cohorts]
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
