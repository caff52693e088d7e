"""Proxies of strange samples, made on the device of a client's own images.

Nobody knows at deployment what strange samples will look like. What a client
can make by itself are images of which it knows that none of its classes is the
right answer; its exit should be unsure of them and send them on.
`splitjax.evaluation.calibration` counts how many of them a threshold sends. Nothing is
trained on them.

Seen on `configs/quickstart.py` (HARMONY, SplitGP with lambda 0.9, 0.2 and
0.2+FT) and 20 rounds of `configs/fmnist_small.py` (HARMONY, SplitGP 0.2 and
0.2+FT), one seed each, a fifth held out: points below the oracle, mean over
these seven rows and five rhos, at expected_rho 0.2 and 0.4: patches 1.5 and
1.6, mix 1.8 and 1.8, noise 1.7 and 1.7. Noise is too strange: its entropies
lie above those of real strange samples in six rows, where those of patches and
mix lie about them. A grid of two (1.4, 1.5) and quarter turns (1.5, 1.6) differ
by less than such runs can tell.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from splitjax.types import Array

Proxy = Literal["patches", "mix", "noise"]
"""Keys of PROXIES."""

GRID = 4
"""Patches on every side of an image that `patches` shuffles."""


class ProxyPlan(NamedTuple):
  """What the look at held-out samples is given, in chunks.

  Attributes:
    rows: [..., B] int32 of the training split.
    partner: [..., B] int32, another of the client's held-out rows.
    draw: [..., B] int32, what a proxy's chance comes from.
  """

  rows: Array
  partner: Array
  draw: Array


def patches(image: Array, other: Array, key: Array) -> Array:
  """The image cut into GRID x GRID patches, in random order.

  Colours, strokes and textures stay, the shape goes. A border that GRID does
  not divide stays where it is.

  Args:
    image: [H, W, c] uint8.
    other: not needed.
    key: [] PRNG key, of the order.

  Returns:
    [H, W, c] uint8.
  """
  del other
  height, width, channels = image.shape
  n = min(GRID, height, width)
  h, w = height // n, width // n
  cut = image[: n * h, : n * w].reshape(n, h, n, w, channels)
  cut = cut.swapaxes(1, 2).reshape(n * n, h, w, channels)
  cut = cut[jax.random.permutation(key, n * n)]
  cut = cut.reshape(n, n, h, w, channels).swapaxes(1, 2)
  return image.at[: n * h, : n * w].set(cut.reshape(n * h, n * w, channels))


def mix(image: Array, other: Array, key: Array) -> Array:
  """The mean of two images of different classes, pixel by pixel.

  Zhang et al., "mixup", ICLR 2018, at its middle. Of a client with one class
  both are of that class, and the mean is not strange at all.

  Args:
    image: [H, W, c] uint8.
    other: [H, W, c] uint8.
    key: not needed.

  Returns:
    [H, W, c] uint8.
  """
  del key
  return ((image.astype(jnp.uint16) + other) // 2).astype(jnp.uint8)


def noise(image: Array, other: Array, key: Array) -> Array:
  """The mean of the image and of uniform noise.

  Args:
    image: [H, W, c] uint8.
    other: not needed.
    key: [] PRNG key.

  Returns:
    [H, W, c] uint8.
  """
  grain = jax.random.randint(key, image.shape, 0, 256).astype(jnp.uint8)
  return mix(image, grain, key)


PROXIES: dict[str, Callable[[Array, Array, Array], Array]] = {
  "patches": patches,
  "mix": mix,
  "noise": noise,
}
"""eval.proxy -> (image, other, key) -> image, for one."""


def with_proxies(kind: str) -> Callable[[Array, ProxyPlan], Array]:
  """What the look at held-out samples shows to the networks.

  Args:
    kind: key of PROXIES.

  Returns:
    (image [Z, H, W, c] uint8, Aside of B rows) -> [2 B, H, W, c] uint8: the
    rows' images, then their proxies.
  """

  def key(draw):
    return jax.random.fold_in(jax.random.key(0), draw)

  def show(image, aside):
    own, other = image[aside.rows], image[aside.partner]
    strange = jax.vmap(PROXIES[kind])(own, other, jax.vmap(key)(aside.draw))
    return jnp.concatenate([own, strange])

  return show
