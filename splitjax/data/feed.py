"""Data inside the compiled round: permutations, masks, gathers.

The data set lies on the device once, as uint8. A round draws row numbers and
gathers; nothing is copied from the host. A client with less data than its
cohort's largest has masked rows; nothing is dropped.
"""

import hashlib
from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from splitjax.types import Array, Batch, Shard

Augment = Literal["none", "crop", "crop_flip"]
"""What happens to training images: nothing; a random crop; also a mirror."""

_BLOCK = 4096
"""Images whose pixels are counted at once."""

PAD = 4
"""Black pixels on every side that a crop may reach into."""


class Plan(NamedTuple):
  """How one cohort walks through its data; static to the compiled round.

  Attributes:
    batch: B.
    epochs: local epochs of a round.
    steps: local steps of an epoch, of the cohort's largest client.
    equal: every client of the cohort takes that many steps.
    mean: per-channel mean of the training split, in pixel values.
    std: per-channel standard deviation, likewise.
    augment: what happens to training images.
  """

  batch: int
  epochs: int
  steps: int
  equal: bool
  mean: tuple[float, ...]
  std: tuple[float, ...]
  augment: Augment = "none"


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

  def batch(self, rows: Array, real: Array, key: Array | None = None) -> Batch:
    """Gathers, augments and standardises.

    Args:
      rows: [B] int32 of the data set.
      real: [B] bool.
      key: [] PRNG key of this batch's augmentation; None: without it.
    """
    image = self.shard.image[rows]
    if key is not None and self.plan.augment != "none":
      image = augment(image, key, mirror=self.plan.augment == "crop_flip")
    image = standardise(image, self.plan.mean, self.plan.std)
    return Batch(image, self.shard.label[rows], real)


def augment(image: Array, key: Array, *, mirror: bool) -> Array:
  """Crops each image at random out of a black frame, and may mirror it.

  The image is padded by PAD pixels on every side and cut back to its size at a
  place drawn evenly from (2 PAD + 1)^2; then, if `mirror`, it is flipped left
  to right with probability 1/2. Before standardisation, as torchvision does.

  Args:
    image: [B, H, W, c] uint8.
    key: [] PRNG key.
    mirror: whether images are flipped.

  Returns:
    [B, H, W, c] uint8.
  """
  place, side = jax.random.split(key)
  corner = jax.random.randint(place, (len(image), 2), 0, 2 * PAD + 1)
  flip = jax.random.bernoulli(side, 0.5, (len(image),))

  def cut(image, corner, flip):
    framed = jnp.pad(image, ((PAD, PAD), (PAD, PAD), (0, 0)))
    # Whole rows at once: gathering by index took five times as long on a CPU.
    crop = jax.lax.dynamic_slice(framed, (*corner, 0), image.shape)
    return jnp.where(flip, crop[:, ::-1], crop) if mirror else crop

  return jax.vmap(cut)(image, corner, flip)


def standardise(
  image: Array, mean: tuple[float, ...], std: tuple[float, ...]
) -> Array:
  """Turns pixels [..., c] uint8 into (pixel - mean) / std, float32."""
  return (image.astype(float) - jnp.array(mean)) / jnp.array(std)


def statistics(
  image: np.ndarray, rows: np.ndarray | None = None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
  """Per-channel mean and standard deviation of images, in pixel values.

  Counted pixel value by pixel value, a block of images at a time: exact, and
  without a second copy of a data set that may be memory-mapped.

  Args:
    image: [Z, H, W, c] uint8.
    rows: [S] of them to count; None: all.

  Returns:
    mean and std, c numbers each; a constant channel's std is 1.
  """
  channels = image.shape[-1]
  counts = np.zeros((channels, 256), np.int64)
  chosen = np.arange(len(image)) if rows is None else rows
  for start in range(0, len(chosen), _BLOCK):
    block = image[chosen[start : start + _BLOCK]]
    for c in range(channels):
      counts[c] += np.bincount(block[..., c].ravel(), minlength=256)
  value = np.arange(256.0)
  share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
  mean = share @ value
  std = np.sqrt((share * (value - mean[:, None]) ** 2).sum(axis=1))
  std = np.where(std > 0, std, 1.0)
  return tuple(map(float, mean)), tuple(map(float, std))


def digest(*arrays: np.ndarray) -> str:
  """A fingerprint of arrays, of their shapes and every byte: hexadecimal."""
  found = hashlib.blake2b(digest_size=16)
  for array in arrays:
    found.update(repr((array.shape, str(array.dtype))).encode())
    for start in range(0, len(array), _BLOCK):
      found.update(array[start : start + _BLOCK].tobytes())
  return found.hexdigest()


def plan(
  sizes: Sequence[int],
  batch_size: int,
  epochs: int,
  mean: tuple[float, ...],
  std: tuple[float, ...],
  augment: Augment = "none",
) -> Plan:
  """The plan of a cohort whose clients hold `sizes` samples.

  A batch larger than every client's data shrinks to the largest client.
  """
  batch = min(batch_size, max(sizes))
  steps = [-(-size // batch) for size in sizes]
  equal = len(set(steps)) == 1
  return Plan(batch, epochs, max(steps), equal, mean, std, augment)


def shards(
  image: Array,
  label: Array | np.ndarray,
  parts: Sequence[np.ndarray],
  classes: int,
  numbers: Sequence[int],
) -> Shard:
  """Stacks the clients of a cohort.

  Args:
    image: [Z, H, W, c] uint8, on the device.
    label: [Z] int32.
    parts: for each client the rows it holds.
    classes: C.
    numbers: of the clients.

  Returns:
    A Shard with rows [N, S], size [N], counts [N, C], number [N].
  """
  size = np.array([len(part) for part in parts], np.int32)
  index = np.full((len(parts), int(size.max())), -1, np.int32)
  for row, part in zip(index, parts, strict=True):
    row[: len(part)] = part
  host = np.asarray(label)
  count = np.stack([np.bincount(host[p], minlength=classes) for p in parts])
  return Shard(
    image,
    jnp.asarray(label),
    jnp.asarray(index),
    jnp.asarray(size),
    jnp.asarray(count.astype(np.int32)),
    jnp.asarray(np.array(numbers, np.int32)),
  )
