"""What clients draw before a round, for all at once and one by one."""

import chex
import jax
import jax.numpy as jnp
import pytest
from worlds import client_round, network, parts_of, population, world

from splitjax.engine.schedules import draw, draws_of, fold, plan_of
from splitjax.methods import METHODS
from splitjax.methods.optimizer import Optimizer

pytestmark = pytest.mark.usefixtures("quick_compile")

KEY = jax.random.key(5)


def test_a_path_is_a_chain_of_folds():
  paths = [(3,), (0, 2**31 - 1, 4), (1, jnp.int32(0))]
  for got, path in zip(fold(KEY, *paths), paths, strict=True):
    want = KEY
    for number in path:
      want = jax.random.fold_in(want, number)
    assert got == want


@pytest.mark.parametrize("name", ["fedavg", "harmony"])
def test_cohorts_draw_at_once_what_each_would_draw_alone(name):
  made = world(name, epochs=2)
  shard, plan = made.shards[0], made.plans[0]
  # The second cohort has more places, as of larger clients.
  wide = jnp.pad(shard.rows, ((0, 0), (0, 3)), constant_values=-1)
  shards = shard, shard._replace(rows=wide, number=shard.number + 9)
  drawn = jax.jit(lambda: draws_of(made.method, plan, KEY, shards))()
  epochs = [plan_of(stage, plan).epochs for stage in made.method.stages()]
  for shard, got in zip(shards, drawn, strict=True):
    held = shard.rows.shape[1]

    @jax.jit
    @jax.vmap
    def alone(number, size, held=held):
      key = jax.random.fold_in(KEY, number)
      return draw(key, made.method.views, epochs, held, size)

    want = alone(shard.number, shard.size)
    orders = tuple(order[..., :held] for order in got.orders)
    chex.assert_trees_all_equal(got._replace(orders=orders), want)


def keys_of(sizes, steps):
  """Of the first client: bits of the keys of each step and of its views."""
  net = network((1,))
  made = population(net, (1,) * len(sizes), parts_of(sizes), epochs=2)
  method = METHODS["harmony"](backbone=net, optimizer=Optimizer(lr=0.1))
  in_round = client_round(made, method)
  found = []
  for t in steps:
    batches, key = in_round.batches(0, jnp.int32(t))
    keys = key, *(batch.key for batch in batches)
    found.append([jax.random.key_data(x).tobytes() for x in keys])
  return found


def test_each_view_of_each_step_has_a_key_of_its_own():
  """Whatever the largest client of the cohort is."""
  alone = keys_of((3,), (0, 1))
  assert len({key for step in alone for key in step}) == 2 * 3
  # Beside a client with three steps an epoch the second one begins at 3.
  assert keys_of((3, 11), (0, 3)) == alone
