"""Data inside the compiled round: permutations, masks, gathers.

The data set lies on the device once, as uint8. A round draws row numbers and
gathers; nothing is copied from the host. A client with less data than its
cohort's largest has masked rows; nothing is dropped.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from splitjax.types import Array, Batch, Shard


class Plan(NamedTuple):
  """How one cohort walks through its data; static to the compiled round.

  Attributes:
    batch: B.
    epochs: local epochs of a round.
    steps: local steps of an epoch, of the cohort's largest client.
    equal: every client of the cohort takes that many steps, so that no step
      has to be masked.
    mean: per-channel mean of the training split, in pixel values.
    std: per-channel standard deviation, likewise.
  """

  batch: int
  epochs: int
  steps: int
  equal: bool
  mean: tuple[float, ...]
  std: tuple[float, ...]


class Samples(NamedTuple):
  """One client's own data, as a method sees it.

  Attributes:
    shard: the data.
    plan: how it is walked through.
  """

  shard: Shard
  plan: Plan

  def epoch(self, key: Array) -> tuple[Array, Array]:
    """Draws one epoch: a fresh permutation of the client's samples.

    Args:
      key: [] PRNG key.

    Returns:
      rows [steps, B] int32 of the data set, real [steps, B] bool. The real
      ones come first: a short client's last steps are wholly masked.
    """
    index, size, plan = self.shard.rows, self.shard.size, self.plan
    place = jnp.arange(index.shape[0])
    ticket = jax.random.uniform(key, index.shape)
    order = jnp.argsort(jnp.where(place < size, ticket, 2.0))
    pad = plan.steps * plan.batch - index.shape[0]
    rows = jnp.pad(index[order], (0, pad))
    real = jnp.pad(place < size, (0, pad))
    shape = (plan.steps, plan.batch)
    return jnp.maximum(rows, 0).reshape(shape), real.reshape(shape)

  def visits(self, key: Array, views: int) -> tuple[Array, Array]:
    """Draws a whole round's batches, `views` independent ones a step.

    Args:
      key: [] PRNG key.
      views: V. The first view's draw does not depend on how many there are.

    Returns:
      rows [T, V, B] int32 and real [T, B] bool (the same for every view).
    """

    def draw(view, epoch):
      return self.epoch(
        jax.random.fold_in(jax.random.fold_in(key, view), epoch)
      )

    over_epochs = jax.vmap(draw, in_axes=(None, 0))
    over_views = jax.vmap(over_epochs, in_axes=(0, None), out_axes=2)
    rows, real = over_views(jnp.arange(views), jnp.arange(self.plan.epochs))
    total = self.plan.epochs * self.plan.steps
    b = self.plan.batch
    return rows.reshape(total, views, b), real[:, :, 0].reshape(total, b)

  def batch(self, rows: Array, real: Array) -> Batch:
    """Gathers and standardises: rows [B] int32, real [B] bool -> Batch."""
    image = standardise(self.shard.image[rows], self.plan.mean, self.plan.std)
    return Batch(image, self.shard.label[rows], real)


def standardise(
  image: Array, mean: tuple[float, ...], std: tuple[float, ...]
) -> Array:
  """Turns pixels [..., c] uint8 into (pixel - mean) / std, float32."""
  return (image.astype(jnp.float32) - jnp.array(mean)) / jnp.array(std)


def statistics(
  image: np.ndarray,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
  """Per-channel mean and standard deviation of a split [Z, H, W, c] uint8."""
  axes = (0, 1, 2)
  mean = image.mean(axes, dtype=np.float64)
  std = image.std(axes, dtype=np.float64)
  std = np.where(std > 0, std, 1.0)
  return tuple(map(float, mean)), tuple(map(float, std))


def plan(
  sizes: Sequence[int],
  batch_size: int,
  epochs: int,
  mean: tuple[float, ...],
  std: tuple[float, ...],
) -> Plan:
  """The plan of a cohort whose clients hold `sizes` samples.

  A batch larger than every client's data shrinks to the largest client.
  """
  batch = min(batch_size, max(sizes))
  steps = [-(-size // batch) for size in sizes]
  return Plan(batch, epochs, max(steps), len(set(steps)) == 1, mean, std)


def shards(
  image: Array, label: Array, parts: Sequence[np.ndarray], classes: int
) -> Shard:
  """Stacks the clients of a cohort.

  Args:
    image: [Z, H, W, c] uint8, on the device.
    label: [Z] int32, on the device.
    parts: for each client the rows it holds.
    classes: C.

  Returns:
    A Shard with rows [N, S], size [N], counts [N, C].
  """
  size = np.array([len(part) for part in parts], np.int32)
  index = np.full((len(parts), int(size.max())), -1, np.int32)
  for row, part in zip(index, parts, strict=True):
    row[: len(part)] = part
  host = np.asarray(label)
  count = np.stack([np.bincount(host[p], minlength=classes) for p in parts])
  return Shard(
    image,
    label,
    jnp.asarray(index),
    jnp.asarray(size),
    jnp.asarray(count.astype(np.int32)),
  )
