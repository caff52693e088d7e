"""One program serves all numbers; states of clients that store nothing."""

import dataclasses

import jax
import pytest
from marks import slow
from worlds import of_kind, rounds, world

from splitjax import trees
from splitjax.engine import round
from splitjax.methods import METHODS
from splitjax.parameters import pytree

VALUES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)


def with_values(method, **fields):
  """The method with other values of some fields, or lr of its optimiser."""
  if "lr" in fields:
    optimizer = dataclasses.replace(method.optimizer, lr=fields.pop("lr"))
    method = dataclasses.replace(method, optimizer=optimizer)
  return dataclasses.replace(method, **fields)


def programs(made, methods, seeds=(0,)):
  """How many programs some methods and seeds need; and their losses."""
  before, losses = round.run_round._cache_size(), []
  for method in methods:
    for seed in seeds:
      place = made._replace(method=method)
      _, metrics = place.round(place.method, place.start(place.method, seed))
      losses.append({k: float(x) for k, x in metrics.losses.items()})
  return round.run_round._cache_size() - before, losses


@pytest.mark.parametrize(
  ("name", "options", "fields"),
  [
    ("splitgp", (), ("lr", "lam", "gamma", "inner_lr")),
    *slow(("harmony", (("lam", 0.3),), ("lr", "lam", "gamma", "inner_lr"))),
  ],
)
def test_one_program_serves_all_values_and_seeds(name, options, fields):
  made = world(name, options=options, epochs=2)
  grid = [
    with_values(made.method, **{field: value})
    for field in fields
    for value in VALUES
  ]
  count, losses = programs(made, grid)
  assert count == 1
  assert programs(made, [made.method], seeds=range(1, 4))[0] == 0
  # The learning rate is that of this round, not of the first one compiled.
  rates = [of_round["client"] for of_round in losses[: len(VALUES)]]
  assert len(set(rates)) == len(VALUES)
  # A float that is not there is another program.
  without = with_values(made.method, lam=None)
  assert programs(made, [without])[0] == 1


@pytest.mark.parametrize("name", ["fedavg", "harmony"])
def test_a_state_does_not_grow_with_its_clients(name):
  def size(clients):
    made = world(name, sizes=(4,) * clients)
    state = jax.eval_shape(made.start, made.method)
    kept = state.clients, state.server, state.outer
    return sum(trees.num_bytes(x) for x in kept)

  sizes = {size(clients) for clients in (10, 100)}
  assert len(sizes) == 1 and sizes.pop() > 0
  # The first state is what all rounds keep.
  made = world(name)
  before, (after, _) = made.start(made.method), rounds(made)
  kept = [trees.num_bytes((x.clients, x.server)) for x in (before, after)]
  assert kept[0] == kept[1]
  assert made.fleet.layout.size == 6


SAID = "up/features is sent inside .*: compute there, and send outside of it"


@pytree
class Leaking(METHODS["splitgp"]):
  """Sends in a function that is differentiated."""

  def exit_loss(self, net, z, batch):
    self.cross("up/features", z, batch)
    return super().exit_loss(net, z, batch)


def test_a_round_that_sends_inside_a_gradient_says_so():
  made = world("splitgp")
  with pytest.raises(RuntimeError, match=SAID):
    rounds(of_kind(made, Leaking))
