"""Proxies of out-of-distribution samples, made from a client's images.

The out-of-distribution samples at deployment are unknown. A client can make
images for which none of its classes is the right answer: its exit should be
unsure of them and offload them. `splitjax.evaluation.calibration` counts how
many of them a threshold offloads. Nothing is trained on them.

The proxies were compared on `configs/quickstart.py` (HARMONY, SplitGP with
lambda 0.9, 0.2 and 0.2+FT) and on 20 rounds of `configs/fmnist_small.py`
(HARMONY, SplitGP 0.2 and 0.2+FT), with one seed each and a fifth held out.
These are seven rows. Their mean accuracy over five rhos is below the oracle's
by these percentage points:

  expected_rho            0.2   0.4
  patches                 1.5   1.6
  mix                     1.8   1.8
  noise                   1.7   1.7
  patches, grid of 2 x 2  1.4   1.5
  patches, quarter turns  1.5   1.6

The last two are variants of patches. The three kinds of patches differ by less
than such runs vary.
In six rows the entropies of noise are above those of real out-of-distribution
samples; the entropies of patches and mix are close to them.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from splitjax.types import Array

Proxy = Literal["patches", "mix", "noise"]
"""Keys of PROXIES."""

GRID = 4
"""Patches along each side of an image for `patches`."""


class ProxyPlan(NamedTuple):
  """Held-out samples and their proxies, in chunks (`data.holdout.Holdout`).

  Attributes:
    rows: [..., B] int32, row numbers in the training split.
    partner: [..., B] int32, another held-out row of the client.
    draw: [..., B] int32, the seed of a proxy.
  """

  rows: Array
  partner: Array
  draw: Array


def patches(image: Array, other: Array, key: Array) -> Array:
  """Cuts the image into GRID x GRID patches and puts them in random order.

  This keeps colours, strokes and textures and destroys the shape. A remainder
  at the border, where GRID does not divide the size, stays in place. `key` []
  draws the order, `other` is not used. Images are [H, W, c] uint8, here and in
  the functions below.
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
  """Averages two samples of different classes, element by element.

  This is mixup (Zhang et al., ICLR 2018) with equal weights. If a client has
  one class only, both samples are of that class, and the mean is a poor proxy.
  `key` is not used.
  """
  del key
  if image.dtype != jnp.uint8:
    return ((image.astype(float) + other) / 2).astype(image.dtype)
  return ((image.astype(jnp.uint16) + other) // 2).astype(jnp.uint8)


def noise(image: Array, other: Array, key: Array) -> Array:
  """Averages the image and uniform noise, 0 to 255, which `key` [] draws."""
  grain = jax.random.randint(key, image.shape, 0, 256).astype(jnp.uint8)
  return mix(image, grain, key)


PROXIES: dict[str, Callable[[Array, Array, Array], Array]] = {
  "patches": patches,
  "mix": mix,
  "noise": noise,
}
"""eval.proxy -> (image [H, W, c] uint8, another image of the client, key []) ->
proxy [H, W, c] uint8. `mix` also takes samples that are not images."""


def with_proxies(kind: str) -> Callable[[Array, ProxyPlan], Array]:
  """Builds the `gather` of an evaluation on held-out samples and their proxies.

  Args:
    kind: key of PROXIES.

  Returns:
    (image [Z, ...], ProxyPlan of B rows) -> [2 B, ...]: the inputs of the rows,
    then their proxies.
  """

  def key(draw):
    return jax.random.fold_in(jax.random.key(0), draw)

  def gather(image, plan):
    own, other = image[plan.rows], image[plan.partner]
    proxies = jax.vmap(PROXIES[kind])(own, other, jax.vmap(key)(plan.draw))
    return jnp.concatenate([own, proxies])

  return gather
