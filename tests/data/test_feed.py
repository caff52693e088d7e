"""Epochs are permutations, masks are right, nothing is dropped."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from by_hand import batches_of_round

from splitjax import METHODS, data, fleet, models, simulate
from splitjax.data import AUGMENTATIONS
from splitjax.engine import schedules
from splitjax.engine.faults import Struck
from splitjax.methods import Optimizer
from splitjax.types import Shard

KEY = jax.random.key(0)
PIXELS = np.random.default_rng(0).integers(0, 256, (50, 3, 2, 2), np.uint8)
LABEL = np.arange(50, dtype=np.int32) % 7


def samples(rows, *, steps, batch, pad=0, epochs=1):
  """A client that holds `rows`, padded to len(rows) + pad."""
  index = jnp.pad(jnp.asarray(rows), (0, pad), constant_values=-1)
  size = jnp.int32(len(rows))
  shard = Shard(
    jnp.asarray(PIXELS), jnp.asarray(LABEL), index, size, None, None
  )
  plan = data.BatchPlan(batch, epochs, (1.0, 2.0), (3.0, 4.0), steps=steps)
  return data.Samples(shard, plan)


def epoch(client):
  """One epoch of a client, as a round draws it: compiled."""
  return [np.asarray(x) for x in jax.jit(client.epoch)(KEY)]


def visits(client, views, key=KEY):
  """A round of a client, likewise."""
  size = len(client.shard.rows)
  epochs = (client.plan.epochs,)
  drawn = schedules.draw(key, views, epochs, size, client.shard.size)
  rows, real = jax.jit(client.round_batches)(drawn.orders[0])
  return np.asarray(rows), np.asarray(real)


def order(rows, real):
  """The real rows in the order in which they are met."""
  return rows[real].tolist()


def test_the_batches_of_a_round():
  """They are its epochs one by one; epochs, views and keys draw apart."""
  # 7 samples in batches of 2, padded to 5 steps: 2 + 2 + 2 + 1 + nothing.
  mine = list(range(40, 47))
  client = samples(mine, steps=5, batch=2, pad=2, epochs=2)
  rows, real = visits(client, 2)
  assert rows.shape == (10, 2, 2)
  assert real.sum(axis=1).tolist() == [2, 2, 2, 1, 0] * 2
  by_hand = batches_of_round(client, jax.random.fold_in(KEY, 1), 2)
  np.testing.assert_array_equal(rows, by_hand[0])
  np.testing.assert_array_equal(real, by_hand[1])
  seen = {
    tuple(order(rows[start : start + 5, view], real[:5]))
    for start in (0, 5)
    for view in range(2)
  }
  assert len(seen) == 4
  assert all(sorted(one) == mine for one in seen)
  other, _ = visits(client, 2, jax.random.key(1))
  assert (rows != other).any()
  # The first view does not depend on how many there are.
  one, same = visits(client, 1)
  np.testing.assert_array_equal(one[:, 0], rows[:, 0])
  np.testing.assert_array_equal(real, same)


def test_an_epoch_is_a_permutation_and_padding_comes_last():
  for size in (1, 4, 7, 8):
    mine = list(range(40, 40 + size))
    rows, real = epoch(samples(mine, steps=3, batch=4, pad=9 - size))
    assert rows.shape == real.shape == (3, 4)
    assert sorted(order(rows, real)) == mine
    assert real.ravel().tolist() == [True] * size + [False] * (12 - size)
    assert rows.min() >= 0


def test_every_permutation_is_as_likely():
  three = samples([5, 6, 7], steps=1, batch=4, pad=1)
  keys = jax.random.split(KEY, 1200)
  rows, _ = jax.jit(jax.vmap(three.epoch))(keys)
  seen = [tuple(x) for x in np.asarray(rows)[:, 0, :3].tolist()]
  count = [seen.count(p) for p in itertools.permutations([5, 6, 7])]
  # 200 expected of each; 5 standard deviations are 65.
  assert sum(count) == 1200 and min(count) > 135 and max(count) < 265


def test_padding_does_not_change_what_a_client_draws():
  mine = list(range(10, 21))
  drawn = [
    order(*epoch(samples(mine, steps=steps, batch=batch, pad=pad)))
    for steps, batch, pad in ((3, 4, 0), (9, 4, 20), (1, 64, 53))
  ]
  assert drawn[0] == drawn[1] == drawn[2]


def test_token_ids_and_numbers_as_they_are():
  ids = np.array([[0, 3, 65535]], "u2")
  out = data.standardise(jnp.asarray(ids), (), ())
  assert out.dtype == jnp.int32 and out.tolist() == ids.tolist()
  x = np.array([[-2.5, 1e-30, 7e8]], "f4")
  out = data.standardise(jnp.asarray(x), (0.0,), (1.0,))
  np.testing.assert_array_equal(out, x)


def test_a_batch_is_gathered_augmented_and_standardised():
  rows, real = jnp.array([3, 49, 0]), jnp.array([True, True, False])
  client = samples([3, 49], steps=1, batch=3)
  pixels = PIXELS[[3, 49, 0]]
  cropped = AUGMENTATIONS["crop_flip"](jnp.asarray(pixels), KEY)
  augmented = client._replace(plan=client.plan._replace(augment=("crop_flip",)))
  for batch, raw in (
    (client.batch(rows, real), pixels),
    (client.batch(rows, real, KEY), pixels),
    (augmented.batch(rows, real), pixels),  # not in an evaluation
    (augmented.batch(rows, real, KEY), cropped),
  ):
    exact = (np.asarray(raw, float) - [1, 2]) / [3, 4]
    np.testing.assert_allclose(batch.image, exact, rtol=1e-6)
    assert batch.image.dtype == jnp.float32 and batch.real is real
    assert batch.label.tolist() == LABEL[[3, 49, 0]].tolist()


def test_a_digest_is_of_shapes_dtypes_and_bytes():
  """A run is known by that of its clients' rows: whose a row is counts."""
  rows = np.arange(6)
  variants = [
    *((rows,), (rows[:2], rows[2:]), (rows[:3], rows[3:])),
    *((rows.reshape(2, 3),), (rows.view(np.uint64),), (rows[::-1],)),
  ]
  assert len({data.feed.digest(*arrays) for arrays in variants}) == 6


def test_plan_of_a_cohort():
  for sizes, batch, want in (
    ([13, 5, 9], 4, (4, 4, False)),  # 4, 2 and 3 steps
    ([12, 9, 10], 4, (4, 3, True)),
    ([3, 11], 64, (11, 1, True)),  # shrinks to the largest client
  ):
    plan = data.BatchPlan(batch, 5, (0.5,), (2.0,), ("crop",))
    made = plan.for_clients(sizes)
    assert (made.batch, made.steps, made.equal) == want
    assert made[1:5] == plan[1:5]


def test_shards_pad_and_count():
  mine = [np.array(x) for x in ([4, 8], [1], [0, 7, 14], [6])]
  net = models.toy((3, 2, 2), 7, depths=(1, 2))
  method = METHODS["splitgp"](backbone=net, optimizer=Optimizer(lr=0.1))
  # Client 1 has a depth of its own; a padding client repeats client 0.
  cohorts = fleet.Cohort(1, (0, 2, 3), padding=1), fleet.Cohort(2, (1,))
  clients = fleet.Fleet(cohorts, (1.0,) * 4, 4)
  made = simulate(method, PIXELS, LABEL, mine, fleet=clients)
  shard, other = made.shards
  np.testing.assert_array_equal(shard.image, PIXELS)
  np.testing.assert_array_equal(shard.label, LABEL)
  pair = [4, 8, -1]
  assert shard.rows.tolist() == [pair, [0, 7, 14], [6, -1, -1], pair]
  assert shard.size.tolist() == [2, 3, 1, 2]
  assert shard.number.tolist() == [0, 2, 3, 0]
  assert (other.rows.tolist(), other.number.tolist()) == ([[1]], [1])
  # LABEL[i] = i mod 7: classes 4 and 1; three times 0; 6.
  assert shard.counts.tolist() == [
    [0, 1, 0, 0, 1, 0, 0],
    [3, 0, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 0, 0, 1],
    [0, 1, 0, 0, 1, 0, 0],
  ]
  assert {x.dtype for x in shard[2:6]} == {jnp.dtype(jnp.int32)}


def brightness(number, epochs):
  """The sum of each image [T, V, B] in the round of a client.

  All images are equal, so that the sums differ by the crop alone.
  """
  bright = jnp.full((50, 6, 6, 1), 200, jnp.uint8)
  rows = jnp.arange(24)
  shard = Shard(bright, jnp.asarray(LABEL), rows, jnp.int32(24), None, None)
  plan = data.BatchPlan(8, epochs, (0.0,), (1.0,), ("crop",))
  client = data.Samples(shard, plan.for_clients([24]))
  key = jax.random.fold_in(KEY, number)
  drawn = schedules.draw(key, 2, (epochs,), 24, shard.size)
  steps = schedules.schedule(client, drawn, 0, Struck(active=jnp.bool_(True)))
  rounds = range(3 * epochs)
  pairs = [schedules.batches_of(client, steps, t)[0] for t in rounds]
  return np.array([[x.image.sum((1, 2, 3)) for x in pair] for pair in pairs])


def test_augmentation_differs_by_client_step_view_and_image():
  seen = np.stack([brightness(n, 2) for n in range(2)])
  assert seen.shape == (2, 6, 2, 8) and seen.max() <= 36 * 200
  assert (np.ptp(seen, axis=-1) > 0).all()
  draws = seen.reshape(-1, 8)
  assert len(np.unique(draws, axis=0)) == len(draws)
  # The draws of an epoch do not depend on the number of epochs.
  np.testing.assert_array_equal(brightness(0, 1), seen[0, :3])
