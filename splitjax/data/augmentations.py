"""Augmentation of training images on the device, inside the round."""

from typing import Literal

import jax
import jax.numpy as jnp

from splitjax.types import Array

Augment = Literal["none", "crop", "crop_flip"]
"""Augmentation of training images: none, a random crop, a crop and a flip."""

PAD = 4
"""Black pixels added on every side before a random crop."""


def augment(image: Array, key: Array, *, mirror: bool) -> Array:
  """Crops images at random with zero padding and flips them horizontally.

  Each image is padded by PAD black pixels on every side and cropped to its size
  at one of (2 PAD + 1)^2 offsets drawn uniformly. If `mirror`, it is then
  flipped with probability 1/2. This precedes standardisation, as in
  torchvision. Images stay [B, H, W, c] uint8.
  """
  place, side = jax.random.split(key)
  corner = jax.random.randint(place, (len(image), 2), 0, 2 * PAD + 1)
  flip = jax.random.bernoulli(side, 0.5, (len(image),))

  def cut(image, corner, flip):
    framed = jnp.pad(image, ((PAD, PAD), (PAD, PAD), (0, 0)))
    # Slice whole rows: a gather by index takes five times as long on a CPU.
    crop = jax.lax.dynamic_slice(framed, (*corner, 0), image.shape)
    return jnp.where(flip, crop[:, ::-1], crop) if mirror else crop

  return jax.vmap(cut)(image, corner, flip)
