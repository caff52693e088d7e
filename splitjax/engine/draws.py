"""Draws before a round: the clients' keys, and the order of their samples.

Each key of a client comes from a path: numbers that are folded, one after
another, into the client's key of the round.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from splitjax import trees
from splitjax.data.feed import BatchPlan, draw_order
from splitjax.engine.base import (
  CohortSpec,
  Participants,
  RoundInputs,
  client_keys,
)
from splitjax.types import Array, Method

EPOCH = 1 << 20
"""Step number s of epoch e is folded into a client's keys as e * EPOCH + s."""

STAGE = 1 << 30
"""STAGE + s is folded into the keys of every stage s except stage 0."""

_END = -1
"""Pads the shorter paths; the numbers of a path itself are at least 0."""


class Drawn(NamedTuple):
  """A client's draws before a round: PRNG keys, and orders of its samples.

  Attributes:
    begin_key: [] key of the download.
    finish_key: [] key of the upload.
    step_keys: for each stage, the key [] of its local steps.
    augment_keys: for each stage, [V] keys of augmentation.
    orders: for each stage, [V, E, S] int32 from `feed.draw_order`; the first
      view's orders do not depend on V.
  """

  begin_key: Array
  finish_key: Array
  step_keys: tuple[Array, ...]
  augment_keys: tuple[Array, ...]
  orders: tuple[Array, ...]


def fold(key: Array, paths: Sequence[Sequence[int | Array]]) -> Array:
  """Folds the numbers of each path into a key, one after another.

  One loop serves all paths, because the compiler makes a random generator for
  each separate `fold_in`.

  Args:
    key: [] key.
    paths: L paths of any lengths, with numbers from 0 to 2^31 - 1.

  Returns:
    [L] keys.
  """
  longest = max(map(len, paths))
  numbers = [[*path, *[_END] * (longest - len(path))] for path in paths]
  columns = jnp.array(numbers, jnp.int32).T

  def next_number(keys, column):
    new = jax.vmap(jax.random.fold_in)(keys, column)
    return jnp.where(column == _END, keys, new), None

  keys = jnp.broadcast_to(key, (len(paths),))
  return jax.lax.scan(next_number, keys, columns)[0]


def stage_epochs(method: Method, plan: BatchPlan) -> tuple[int, ...]:
  """Returns each stage's number of epochs; 0 for a stage computed once."""
  return tuple(
    0 if stage.once else plan.epochs if stage.epochs is None else stage.epochs
    for stage in method.stages
  )


def draw(
  key: Array, views: int, epochs: Sequence[int], held: int, size: Array
) -> Drawn:
  """Makes one client's draws for a round.

  Args:
    key: [] key of this client in this round.
    views: V, batches of a step.
    epochs: E of each stage.
    held: S, the length of an order: the client's samples, then padding.
    size: [] int, the number of the client's samples.
  """
  begin, batches, steps, finish = range(4)
  paths: list[list[tuple[int, ...]]] = [[(begin,)], [(finish,)]]
  for number, count in enumerate(epochs):
    own = (STAGE + number,) if number else ()
    every = np.ndindex(views, count)
    paths += [
      [(steps, *own)],
      [(batches, *own, EPOCH + view) for view in range(views)],
      [(batches, *own, *view_and_epoch) for view_and_epoch in every],
    ]
  keys = fold(key, sum(paths, []))
  ends = np.cumsum([len(each) for each in paths])[:-1]
  first, last, *rest = jnp.split(keys, ends)
  in_order = jax.vmap(lambda own: draw_order(own, held, size))
  return Drawn(
    first[0],
    last[0],
    tuple(own[0] for own in rest[::3]),
    tuple(rest[1::3]),
    tuple(
      in_order(own).reshape(views, count, held)
      for own, count in zip(rest[2::3], epochs, strict=True)
    ),
  )


def draw_together(
  specs: Sequence[CohortSpec],
  inputs: RoundInputs,
  groups: Sequence[Participants],
) -> list[Participants]:
  """Adds keys, and the draws made with them, to the clients of a device.

  All cohorts draw at once, unless jax_threefry_partitionable is off. If every
  cohort drew by itself, the random generator's kernels would be compiled per
  cohort, which took a tenth of a round's compile time with three cohorts.

  Args:
    specs: the CohortSpec of every cohort.
    inputs: what all clients share, with the key of the round's clients.
    groups: the clients of every cohort on this device.

  Returns:
    The groups with `keys` [n] and with `drawn`, a Drawn with leaves [n, ...].
    All orders have the length S of the client with the most samples. Orders of
    clients with fewer samples end in padding.
  """
  # Without this option a client's numbers depend on how many are drawn at once,
  # and so on the largest client: each cohort draws by itself.
  settings: Any = jax.config
  if len(groups) > 1 and not settings.jax_threefry_partitionable:
    pairs = zip(specs, groups, strict=True)
    return [draw_together([spec], inputs, [own])[0] for spec, own in pairs]
  shards = [inputs.shard(group.data) for group in groups]
  number, size = (
    jnp.concatenate([getattr(shard, name) for shard in shards])
    for name in ("number", "size")
  )
  held = max(shard.rows.shape[-1] for shard in shards)
  method, plan = specs[0].method, specs[0].plan
  assert all(spec.plan.epochs == plan.epochs for spec in specs)
  keys = client_keys(inputs.key, number)
  views, epochs = method.traits.views, stage_epochs(method, plan)
  drawn = jax.vmap(lambda key, n: draw(key, views, epochs, held, n))(keys, size)

  # Each cohort's part.
  start, out = 0, []
  for group in groups:
    own = slice(start, start := start + len(group.active))
    out.append(group._replace(keys=keys[own], drawn=trees.take(drawn, own)))
  return out
