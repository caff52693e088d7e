"""Batches inside the compiled round: how rows are drawn, masked and gathered.

The device holds one copy of the data set, in its dtype. A round draws row
numbers and gathers these rows; nothing is copied from the host. Masked rows pad
each client to the size of its cohort's largest client; no sample is dropped.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from splitjax.data.augmentations import augmented
from splitjax.data.dataset import blocks
from splitjax.types import Batch, Shard


class BatchPlan(NamedTuple):
  """Batches and epochs of one cohort; static to the compiled round."""

  batch: int  #: B
  epochs: int  #: local epochs per round
  #: mean per channel or feature of the training inputs; () for token ids
  mean: tuple[float, ...]
  std: tuple[float, ...]  #: standard deviations, likewise
  augment: tuple[str, ...] = ()  #: augmentations, as data.augment names them
  steps: int = 1  #: local steps per epoch of the client with the most steps
  equal: bool = True  #: whether every client of the cohort takes `steps` steps

  def for_clients(self, sizes: Sequence[int]) -> "BatchPlan":
    """Returns the plan of a cohort whose clients have `sizes` samples.

    B is at most the size of the largest client.
    """
    batch = min(self.batch, max(sizes))
    steps = [-(-n // batch) for n in sizes]
    equal = len({*steps}) == 1
    return self._replace(batch=batch, steps=max(steps), equal=equal)

  def of_round(
    self, size: np.ndarray, epochs: int | None = None
  ) -> tuple[np.ndarray, np.ndarray]:
    """Counts local steps of a round and the samples in them, [N] int each.

    `size` [N] counts the clients' samples. `epochs`, unless None, replaces the
    plan's epochs.
    """
    epochs = epochs or self.epochs
    return epochs * -(-size // self.batch), epochs * size


class Samples(NamedTuple):
  """One client's data and batch plan, as passed to a method's functions."""

  shard: Shard
  plan: BatchPlan

  def batches(self) -> Array:
    """Counts the client's real batches per epoch, [] int32, without padding."""
    return -(-self.shard.size // self.plan.batch)

  def epoch(self, key: Array) -> tuple[Array, Array]:
    """Draws one epoch: a fresh permutation of the client's samples.

    Returns rows [steps, B] int32 of the data set and a mask [steps, B] bool,
    False for padding, which comes last.
    """
    order = draw_order(key, len(self.shard.rows), self.shard.size)
    return self.in_batches(order)

  def in_batches(self, order: Array) -> tuple[Array, Array]:
    """Cuts an order [S] of `draw_order` into batches; see `epoch`."""
    rows = self.shard.rows
    shape = (self.plan.steps, self.plan.batch)
    pad = math.prod(shape) - len(rows)
    real = jnp.pad(jnp.arange(len(rows)) < self.shard.size, (0, pad))
    rows = jnp.pad(rows[order], (0, pad))
    return jnp.maximum(rows, 0).reshape(shape), real.reshape(shape)

  def in_order(self, *, validation: bool = False) -> tuple[Array, Array]:
    """Batches the training (or validation) samples in stored order: `epoch`."""
    rows = self.shard.validation if validation else self.shard.rows
    pad = -len(rows) % self.plan.batch
    rows = jnp.pad(rows, (0, pad), constant_values=-1)
    rows = rows.reshape(-1, self.plan.batch)
    return jnp.maximum(rows, 0), rows >= 0

  def round_batches(self, orders: Array) -> tuple[Array, Array]:
    """Cuts orders [V, E, S] of V views and E epochs into T batches.

    Returns rows [T, V, B] int32, and one mask [T, B] bool for all views.
    """
    over_epochs = jax.vmap(self.in_batches)
    rows, real = jax.vmap(over_epochs, out_axes=2)(orders)
    size = self.plan.batch
    return rows.reshape(-1, len(orders), size), real[:, :, 0].reshape(-1, size)

  def batch(self, rows: Array, real: Array, key: Array | None = None) -> Batch:
    """Gathers, augments and standardises the `rows` [B] int32 of one batch.

    `real` [B] is False for padding. Without a key nothing is drawn.
    """
    image = self.shard.image[rows]
    if key is not None:
      image = augmented(image, self.plan.augment, key)
    image = standardise(image, self.plan.mean, self.plan.std)
    drawn = () if key is None else key
    return Batch(image, self.shard.label[rows], real, drawn)

  def for_draws(self, rows: Array, real: Array, key: Array) -> Batch:
    """Makes a batch that is not augmented, for a pass with random layers."""
    batch_key = jax.random.fold_in(key, rows[0])
    return self.batch(rows, real)._replace(key=batch_key)


def draw_order(key: Array, length: int, size: Array) -> Array:
  """Draws an order [length] int32: indices below `size` [], then padding."""
  draw = jax.random.uniform(key, (length,))
  return jnp.argsort(jnp.where(jnp.arange(length) < size, draw, 2.0))


def standardise(
  image: Array, mean: tuple[float, ...], std: tuple[float, ...]
) -> Array:
  """Converts inputs [B, ..., c] to (x - mean) / std; token ids to int32."""
  if not len(mean):  # of token ids
    return image.astype(jnp.int32)
  return (image.astype(float) - jnp.array(mean)) / jnp.array(std)


def digest(*arrays: np.ndarray) -> str:
  """Hashes the shapes, dtypes and bytes of arrays."""
  hasher = hashlib.blake2b(digest_size=16)
  for array in arrays:
    hasher.update(repr((array.shape, str(array.dtype))).encode())
    for block in blocks(array):
      hasher.update(block.tobytes())
  return hasher.hexdigest()
