"""What clients draw before a round, for all at once and one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine import world
from marks import slow

from splitjax import engine
from splitjax.engine import topology_of

pytestmark = pytest.mark.usefixtures("quick_compile")

KEY = jax.random.key(5)


def test_a_path_is_a_chain_of_folds():
  paths = [(3,), (0, 2**31 - 1, 4), (1, jnp.int32(0))]
  for got, path in zip(engine.fold(KEY, paths), paths, strict=True):
    own = KEY
    for number in path:
      own = jax.random.fold_in(own, number)
    assert got == own


@pytest.mark.parametrize(
  ("name", "partitionable"),
  [
    ("fedrep", True),
    *slow(("harmony", False)),
  ],
)
def test_cohorts_draw_at_once_what_each_would_draw_alone(name, partitionable):
  made = world(name, epochs=2)
  shard, plan = made.shards[0], made.plans[0]
  # The second cohort has more places, as of larger clients.
  wide = jnp.pad(shard.rows, ((0, 0), (0, 3)), constant_values=-1)
  shards = shard, shard._replace(rows=wide, number=shard.number + 9)
  count = len(shard.size)
  spec = engine.CohortSpec(
    made.method, topology_of(made.method.traits), plan, None, 2 * count
  )
  inputs = engine.RoundInputs(None, *shard[:2], jnp.int32(0), KEY)
  groups = [
    engine.Participants(None, tuple(own[2:]), jnp.ones(count, bool))
    for own in shards
  ]
  views, epochs = made.method.traits.views, engine.stage_epochs(spec[0], plan)
  with jax.threefry_partitionable(partitionable):
    got = jax.jit(lambda: engine.draw_together([spec, spec], inputs, groups))()
    for c, own in enumerate(shards):
      held = own.rows.shape[1]

      @jax.jit
      @jax.vmap
      def alone(number, size, held=held):
        key = jax.random.fold_in(KEY, number)
        return engine.draw(key, views, epochs, held, size)

      expected, drawn = alone(own.number, own.size), got[c].drawn
      for ours, other in zip(drawn.orders, expected.orders, strict=True):
        np.testing.assert_array_equal(ours[..., :held], other)
      assert jax.tree.all(
        jax.tree.map(
          lambda a, b: (a == b).all(),
          drawn._replace(orders=()),
          expected._replace(orders=()),
        )
      )
