"""CORRUPTIONS: changes of images at severities 1 to 5, made before training.

A domain NAME:SEVERITY, such as "gaussian_blur:3", is a corruption at this
severity; the domain "none" leaves images as they are. Unlike an augmentation, a
domain is a fixed property of an image: the change is computed once, on the
device, from the image and the run's seed. Names and parameters are those of
CIFAR-10-C, except for `rotation`, which turns by 15 degrees per severity. Its
five severities and "none" are thus the six domains of rotated MNIST.

References:
  Hendrycks and Dietterich, Benchmarking Neural Network Robustness to Common
  Corruptions and Perturbations, ICLR 2019, with their script for CIFAR-10-C.
  Ghifary et al., Domain Generalization for Object Recognition with Multi-task
  Autoencoders, ICCV 2015.

>>> import jax.numpy as jnp, splitjax
>>> def negative(image, severity, key):  # [H, W, c] float, 0 to 255
...   return image + severity / 5 * (255 - 2 * image)
>>> splitjax.CORRUPTIONS["negative"] = negative
>>> c = splitjax.default()
>>> c.data.domain = splitjax.spec(
...   splitjax.DOMAINS, "drawn", corruptions="none, negative:5"
... )
>>> del splitjax.CORRUPTIONS["negative"]
"""

import functools
from collections.abc import Callable, Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from splitjax.registry import unknown
from splitjax.types import Array, UserError, naming

Corruption = Callable[[Array, Array, Array], Array]
"""(image [H, W, c] float in 0..255, severity [] int32 1 to 5, key []) -> image
[H, W, c]. The caller rounds the result and clips it to 0..255."""

Look = Sequence[str]
"""Domains that are applied one after another; () leaves an image unchanged."""

NONE = "none"
BLOCK = 256
"""Number of images that the device changes at a time."""


def rotation(image: Array, severity: Array, key: Array) -> Array:
  """Rotates counter-clockwise about the centre by 15 to 75 degrees.

  Pixels are interpolated bilinearly, and places that the rotated image leaves
  empty become black.
  """
  del key
  angle = jnp.deg2rad(15.0 * severity)
  h, w, _ = image.shape
  middle = (h - 1) / 2, (w - 1) / 2
  y, x = jnp.meshgrid(jnp.arange(h), jnp.arange(w), indexing="ij")
  y, x = y - middle[0], x - middle[1]
  cos, sin = jnp.cos(angle), jnp.sin(angle)
  place = [cos * y + sin * x + middle[0], cos * x - sin * y + middle[1]]

  def of_channel(channel: Array) -> Array:
    return jax.scipy.ndimage.map_coordinates(channel, place, 1, "constant")

  return jax.vmap(of_channel, in_axes=-1, out_axes=-1)(image)


def brightness(image: Array, severity: Array, key: Array) -> Array:
  """Raises V of HSV, which is the largest channel; keeps hue and saturation."""
  del key
  more = 255 * _at(severity, 0.05, 0.1, 0.15, 0.2, 0.3)
  value = image.max(axis=-1, keepdims=True)
  share = jnp.where(value > 0, image / jnp.where(value > 0, value, 1), 1)
  return share * jnp.minimum(value + more, 255)


def contrast(image: Array, severity: Array, key: Array) -> Array:
  """Shrinks the distance of pixels from the mean of their channel."""
  del key
  share = _at(severity, 0.75, 0.5, 0.4, 0.3, 0.15)
  mean = image.mean(axis=(0, 1), keepdims=True)
  return mean + share * (image - mean)


def saturate(image: Array, severity: Array, key: Array) -> Array:
  """Changes the saturation S of HSV: paler at 1 and 2, more vivid from 3 on.

  The new S is a * S + b, where b > 0 at severities 4 and 5. At these, grey
  pixels turn red, because their hue is 0.
  """
  del key
  if image.shape[-1] != 3:
    raise UserError(
      f"saturate changes colours, and the images have {image.shape[-1]}"
      " channel(s): choose corruptions without it"
    )
  scale = _at(severity, 0.3, 0.1, 1.5, 2.0, 2.5)
  more = _at(severity, 0.0, 0.0, 0.0, 0.1, 0.2)
  value = image.max(axis=-1, keepdims=True)
  spread = value - image.min(axis=-1, keepdims=True)
  old = spread / jnp.where(value > 0, value, 1)
  new = jnp.clip(scale * old + more, 0, 1)
  # A channel is V (1 - S depth), with depth 0 in the largest, 1 in the least.
  grey = jnp.array((0.0, 1.0, 1.0))
  depth = (value - image) / jnp.where(spread > 0, spread, 1)
  return value * (1 - new * jnp.where(spread > 0, depth, grey))


def gaussian_blur(image: Array, severity: Array, key: Array) -> Array:
  """Blurs by a Gaussian filter whose sigma is 0.4 to 1 pixels.

  The filter is cut off at 4 sigma. Copies of the edge pixels extend the image.
  """
  del key
  return _along_sides(image, severity, _smooth, (0.4, 0.6, 0.7, 0.8, 1.0))


def gaussian_noise(image: Array, severity: Array, key: Array) -> Array:
  """Adds normal noise to every pixel value; sigma is 4 % to 10 % of 255."""
  scale = 255 * _at(severity, 0.04, 0.06, 0.08, 0.09, 0.1)
  return image + scale * jax.random.normal(key, image.shape)


def pixelate(image: Array, severity: Array, key: Array) -> Array:
  """Shrinks each side by 5 % (severity 1) to 35 % (5), then enlarges it again.

  Both steps resize as Pillow's BOX filter does.
  """
  del key
  return _along_sides(image, severity, _coarse, (0.95, 0.9, 0.85, 0.75, 0.65))


def _at(severity: Array, *each: float) -> Array:
  """Returns each[severity - 1], the number that belongs to a severity."""
  return jnp.array(each)[severity - 1]


def _along_sides(
  image: Array,
  severity: Array,
  make: Callable[[int, float], np.ndarray],
  each: Sequence[float],
) -> Array:
  """Multiplies an image along both sides by matrices that `make` returns.

  For a side of n pixels, the matrix [n, n] is make(n, each[severity - 1]).
  """
  down, across = (
    jnp.array([make(side, number) for number in each])[severity - 1]
    for side in image.shape[:2]
  )
  parts = down, image, across
  return jnp.einsum("ij,jkc,lk->ilc", *parts, precision="highest")


def _smooth(side: int, sigma: float) -> np.ndarray:
  """Returns a Gaussian filter [side, side]; edge pixels extend the image."""
  reach = int(4 * sigma + 0.5)
  step = np.arange(-reach, reach + 1)
  weight = np.exp(-((step / sigma) ** 2) / 2)
  matrix, here = np.zeros((side, side)), np.arange(side)[:, None]
  there = np.clip(here + step, 0, side - 1)
  np.add.at(matrix, (here, there), weight / weight.sum())
  return matrix


def _coarse(side: int, share: float) -> np.ndarray:
  """Returns weights [side, side] that shrink a side, then enlarge it again.

  The shrunk side is `share` times `side`, rounded down, but at least 1.
  """
  few = max(1, int(side * share))
  return _box(few, side) @ _box(side, few)


def _box(before: int, after: int) -> np.ndarray:
  """Returns weights [after, before] that resize as Pillow's BOX does.

  If new pixels are larger than old ones, each is the mean of the old pixels
  whose centres it covers. If they are smaller, each is equal to the old pixel
  that covers its centre.
  """
  wide = before / after
  centre = wide * (np.arange(after)[:, None] + 0.5)
  place = (np.arange(before) + 0.5 - centre) / max(wide, 1)
  inside = (place > -0.5) & (place <= 0.5)
  return inside / inside.sum(axis=1, keepdims=True)


CORRUPTIONS: dict[str, Corruption] = {
  "rotation": rotation,
  "brightness": brightness,
  "contrast": contrast,
  "saturate": saturate,
  "gaussian_blur": gaussian_blur,
  "gaussian_noise": gaussian_noise,
  "pixelate": pixelate,
}


def read_corruptions(text: str, severity: int, where: str) -> tuple[str, ...]:
  """Reads domains separated by commas, such as "none, rotation:5, contrast".

  A corruption that is written without a severity gets `severity`.

  Raises:
    UserError: a name is unknown, or a severity is not one of 1 to 5.
  """
  found = []
  for each in text.split(","):
    name, colon, given = (part.strip() for part in each.partition(":"))
    if name != NONE and name not in CORRUPTIONS:
      known = [NONE, *CORRUPTIONS]
      raise UserError(unknown(where, name, known, "corruption"))
    level = given if colon else str(severity)
    if level not in set("12345") or (name == NONE and colon):
      raise UserError(
        f"{where}={text!r}: {each.strip()} must be none, or a name with a"
        " severity of 1 to 5, as in rotation:3"
      )
    found.append(name if name == NONE else f"{name}:{level}")
  return tuple(found)


def check_corruptions(
  domains: Iterable[str], shape: tuple[int, ...], where: str
) -> None:
  """Raises UserError if a domain does not suit images of a shape [H, W, c]."""
  image = jax.ShapeDtypeStruct((1, *shape), np.uint8)
  row = jax.ShapeDtypeStruct((1,), np.int32)
  for name in sorted({domain.partition(":")[0] for domain in domains} - {NONE}):
    change = functools.partial(_change, CORRUPTIONS[name])
    with naming(where):
      found = jax.eval_shape(change, image, 1, jax.random.key(0), row)
    if found.shape != image.shape:
      raise UserError(
        f"{where}: {name} makes {list(found.shape[1:])} of images"
        f" {list(shape)}: an entry of CORRUPTIONS keeps their shape"
      )


def apply_corruptions(
  image: np.ndarray, rows: np.ndarray, look: Look, seed: Sequence[int]
) -> np.ndarray:
  """Applies a look to rows [M] of images [Z, H, W, c] uint8, on the device.

  The random numbers for an image depend on `seed`, on its row and on the
  domain's position in the look, but not on other rows or on severities.
  Returns uint8 [M, H, W, c].
  """
  out = np.array(image[rows])
  key = functools.reduce(jax.random.fold_in, seed[1:], jax.random.key(seed[0]))
  for place, domain in enumerate(look):
    name, _, level = domain.partition(":")
    if name == NONE:
      continue
    own = jax.random.fold_in(key, place)
    for start in range(0, len(rows), BLOCK):
      # One shape for all blocks, so that a corruption is compiled once.
      some = slice(start, start + BLOCK)
      filled = np.resize(out[some], (BLOCK, *out.shape[1:]))
      mine = np.resize(rows[some], BLOCK).astype(np.int32)
      found = _compiled(CORRUPTIONS[name], filled, int(level), own, mine)
      out[some] = np.asarray(found)[: len(rows) - start]
  return out


def _change(
  corruption: Corruption, image: Array, severity: Array, key: Array, rows: Array
) -> Array:
  """Corrupts images [B, H, W, c] uint8; folds row numbers [B] into the key."""

  def one(image: Array, row: Array) -> Array:
    own = jax.random.fold_in(key, row)
    changed = corruption(image.astype(float), severity, own)
    return jnp.clip(jnp.round(changed), 0, 255).astype(jnp.uint8)

  return jax.vmap(one)(image, rows)


_compiled = jax.jit(_change, static_argnums=0)
