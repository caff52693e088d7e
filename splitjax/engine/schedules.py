"""The random orders, keys and batches of a client's local steps.

A client's draws come from its own key of the round, folded with numbers that
name their purpose, so they do not depend on cohorts, chunks or devices.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from splitjax import trees
from splitjax.data.feed import BatchPlan, Samples, draw_order
from splitjax.engine.faults import Struck, truncated
from splitjax.methods.method import Method
from splitjax.types import Batch, Shard, Stage

RECEIVE, BATCHES, STEPS, SEND = range(4)
"""Numbers folded into a client's key, one for each purpose of its draws."""

_EPOCH = 1 << 20
"""Of step s in epoch e the number is e * EPOCH + s."""

_WIRE = 1 << 28
"""WIRE + view, folded into a step's key, gives the key of a view's batch."""

_STAGE = 1 << 30
"""STAGE + s is folded into the keys of every stage s but stage 0."""

_END = -1
"""Pads the shorter paths; the numbers of a path itself are at least 0."""


class Draws(NamedTuple):
  """A client's draws before its round; tuples have an entry for each stage.

  An order lists the client's samples, int32 in random order, then padding.
  """

  receive_key: Array  #: []
  send_key: Array  #: []
  step_keys: tuple[Array, ...]  #: []
  augment_keys: tuple[Array, ...]  #: [V]
  orders: tuple[Array, ...]  #: [V, E, S]


class Schedule(NamedTuple):
  """The local steps of one client in one stage of a round."""

  rows: Array  #: [T, V, B] int32, rows of the data set
  real: Array  #: [T, B] bool, False on padding; a step not taken is padding
  step_key: Array  #: []
  augment_keys: Array  #: [V]
  planned: Array  #: [] int32, the number of steps without faults

  @property
  def taken(self) -> Array:
    """[T] bool, the steps that are taken."""
    return self.real.any(axis=-1)


def fold(key: Array, *paths: Sequence[int | Array]) -> Array:
  """Folds the numbers of each path into a key, one after another -> [L] keys.

  In one loop: the compiler makes a generator for every separate `fold_in`.
  """
  longest = max(map(len, paths))
  numbers = [[*path, *[_END] * (longest - len(path))] for path in paths]

  def next_number(keys, column):
    folded = jax.vmap(jax.random.fold_in)(keys, column)
    return jnp.where(column == _END, keys, folded), None

  keys = jnp.broadcast_to(key, (len(paths),))
  columns = jnp.array(numbers, jnp.int32).T
  return jax.lax.scan(next_number, keys, columns)[0]


def plan_of(stage: Stage, plan: BatchPlan) -> BatchPlan:
  """Returns the plan of a stage, which may have its own number of epochs."""
  epochs = 0 if stage.once else stage.epochs
  return plan if epochs is None else plan._replace(epochs=epochs)


def draws_of(
  method: Method, plan: BatchPlan, key: Array, shards: Sequence[Shard]
) -> tuple[Draws, ...]:
  """Makes the draws of all clients of the cohorts, from the round's key.

  At once, because the generator's kernels, if compiled for each cohort, took a
  tenth of a round's compile time.
  """
  epochs = [plan_of(stage, plan).epochs for stage in method.stages()]
  width = max(shard.rows.shape[-1] for shard in shards)

  def draw_client(number, size):
    client_key = jax.random.fold_in(key, number)
    return draw(client_key, method.views, epochs, width, size)

  draws = jax.vmap(draw_client)(
    jnp.concatenate([shard.number for shard in shards]),
    jnp.concatenate([shard.size for shard in shards]),
  )
  ends = np.cumsum([len(shard.size) for shard in shards]).tolist()
  return tuple(trees.take(draws, part) for part in map(slice, [0, *ends], ends))


def draw(
  key: Array, views: int, epochs: Sequence[int], width: int, size: Array
) -> Draws:
  """Makes the draws of a client of `size` samples from its key in this round.

  `views` is V, `width` S, `epochs` has E of each stage, 0 if it has no steps.
  """
  paths: list[tuple[int, ...]] = [(RECEIVE,), (SEND,)]
  counts = list[int]()  # of the paths of each kind
  for number, count in enumerate(epochs):
    stage = (_STAGE + number,) if number else ()
    paths.append((STEPS, *stage))
    paths += [(BATCHES, *stage, _EPOCH + view) for view in range(views)]
    paths += [(BATCHES, *stage, *use) for use in np.ndindex(views, count)]
    counts += [1, views, views * count]
  keys = fold(key, *paths)
  parts = jnp.split(keys[2:], np.cumsum(counts)[:-1])  # three of each stage
  step_keys = parts[::3]
  augment_keys = parts[1::3]
  order_keys = parts[2::3]

  def in_order(keys, count):
    orders = jax.vmap(lambda key: draw_order(key, width, size))(keys)
    return orders.reshape(views, count, width)

  return Draws(
    receive_key=keys[0],
    send_key=keys[1],
    step_keys=tuple(keys[0] for keys in step_keys),
    augment_keys=tuple(augment_keys),
    orders=tuple(map(in_order, order_keys, epochs)),
  )


def schedule(
  samples: Samples, draws: Draws, number: int, struck: Struck
) -> Schedule:
  """Schedules a client's steps in stage `number`, as its faults leave them.

  With B = 4, two epochs and 8 samples at the largest client of the cohort, T is
  4. A client of 6 samples has batches of 4, 2, 4 and 2, one of 3 samples has 3,
  0, 3 and 0: padding ends an epoch.
  """
  width = len(samples.shard.rows)
  rows, real = samples.round_batches(draws.orders[number][..., :width])
  return Schedule(
    rows=rows,
    real=truncated(real, struck.share) & struck.active,
    step_key=draws.step_keys[number],
    augment_keys=draws.augment_keys[number],
    planned=real.any(axis=1).sum(),
  )


def batches_of(
  samples: Samples, steps: Schedule, t: Array
) -> tuple[tuple[Batch, ...], Array]:
  """Collects the V batches and the key of step t.

  An epoch is a random order of the client's samples, cut into batches; each
  view has orders of its own. The keys of a step are folded with its number:
  step s of epoch e, with 3 steps in an epoch t = 3 e + s, has e EPOCH + s. With
  t itself the draws of a client would depend on the largest of its cohort.
  """
  epoch, step = jnp.divmod(t, samples.plan.steps)
  number = epoch * _EPOCH + step
  key = jax.random.fold_in(steps.step_key, number)
  batches = []
  for view, augment_key in enumerate(steps.augment_keys):
    # Gathered from the data set on the device, augmented, standardised.
    draw_key = jax.random.fold_in(augment_key, number)
    batch = samples.batch(steps.rows[t, view], steps.real[t], draw_key)
    wire_key = jax.random.fold_in(key, _WIRE + view)
    batches.append(batch._replace(key=wire_key))
  return tuple(batches), key
