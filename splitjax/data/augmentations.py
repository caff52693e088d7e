"""AUGMENTATIONS: random changes of images, made on device during training.

`data.augment` is a name, or several joined by "+", and a name may have options:
"crop_flip", "crop_flip + cutout(size=8)". The augmentations change a batch's
pixels in the order of their names, before standardisation. Each image is
changed independently, with random numbers from the batch's key.

>>> import jax, jax.numpy as jnp, splitjax
>>> from splitjax.data.augmentations import of_each
>>> def erase_rows(*, rows: int = 2):
...   def one(image, key):  # [H, W, c] uint8
...     first = jax.random.randint(key, (), 0, len(image))
...     place = jnp.arange(len(image))[:, None, None]
...     return jnp.where((place >= first) & (place < first + rows), 0, image)
...   return of_each(one)
>>> splitjax.AUGMENTATIONS["erase_rows"] = erase_rows
>>> c = splitjax.default()
>>> c.data.augment = "crop_flip + erase_rows(rows=3)"
>>> splitjax.Config.from_dict(c).data.augment
'crop_flip + erase_rows(rows=3)'
>>> del splitjax.AUGMENTATIONS["erase_rows"]
"""

import ast
import functools
from collections.abc import Callable
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np

from splitjax.fields import POSITIVE, PROBABILITY, Bounds, written
from splitjax.registry import read_spec
from splitjax.types import Array, UserError

Augmentation = Callable[[Array, Array], Array]
"""(images [B, H, W, c] uint8, key []) -> images of the same shape, uint8."""

PAD = 4
"""Black pixels added on every side before a random crop."""


def of_each(one: Callable[[Array, Array], Array]) -> Augmentation:
  """Makes an augmentation from a function that changes a single image.

  `one` maps (image [H, W, c] uint8, key []) to the changed image.
  """

  def every(image: Array, key: Array) -> Array:
    return jax.vmap(one)(image, jax.random.split(key, len(image)))

  return every


def augment(image: Array, key: Array, *, mirror: bool) -> Array:
  """Crops images at random with zero padding and flips them horizontally.

  Each image is padded by PAD black pixels on every side and cropped to its size
  at one of (2 PAD + 1)^2 offsets drawn uniformly. If `mirror`, it is then
  flipped with probability 1/2. Returns [B, H, W, c] uint8; as in torchvision,
  images are standardised later.
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


def rotation(
  *, degrees: Annotated[float, POSITIVE, Bounds(at_most=180)] = 15.0
) -> Augmentation:
  """Rotates images (`rotated`) by angles drawn from -`degrees` to `degrees`."""

  def one(image: Array, key: Array) -> Array:
    angle = jax.random.uniform(key, (), float, -1.0, 1.0) * degrees
    return pixels(rotated(image.astype(float), jnp.deg2rad(angle)))

  return of_each(one)


def rotated(image: Array, angle: Array) -> Array:
  """Rotates an image [H, W, c] counter-clockwise about its centre.

  `angle` [] is in radians. Pixels are interpolated bilinearly, and places that
  the rotated image leaves empty become black.
  """
  h, w, _ = image.shape
  middle = (h - 1) / 2, (w - 1) / 2
  y, x = jnp.meshgrid(jnp.arange(h), jnp.arange(w), indexing="ij")
  y, x = y - middle[0], x - middle[1]
  cos, sin = jnp.cos(angle), jnp.sin(angle)
  place = [cos * y + sin * x + middle[0], cos * x - sin * y + middle[1]]

  def of_channel(channel: Array) -> Array:
    return jax.scipy.ndimage.map_coordinates(channel, place, 1, "constant")

  return jax.vmap(of_channel, in_axes=-1, out_axes=-1)(image)


def colour(
  *,
  brightness: Annotated[float, PROBABILITY] = 0.4,
  contrast: Annotated[float, PROBABILITY] = 0.4,
  saturation: Annotated[float, PROBABILITY] = 0.4,
) -> Augmentation:
  """Changes brightness, contrast and saturation, each by a factor near 1.

  Each factor is drawn uniformly from 1 - x to 1 + x, where x is the option with
  the same name. `coloured` says how factors act.
  """
  most = brightness, contrast, saturation

  def one(image: Array, key: Array) -> Array:
    drawn = jax.random.uniform(key, (3,), float, -1.0, 1.0)
    return pixels(coloured(image.astype(float), 1 + drawn * jnp.array(most)))

  return of_each(one)


def coloured(image: Array, factors: Array) -> Array:
  """Scales brightness, contrast and saturation of [H, W, c] by factors [3].

  The changes are those of torchvision's ColorJitter, but their order is fixed.
  The first factor scales the distance of pixels from black; the second scales
  their distance from the mean grey of the image. If there are three channels,
  the third factor scales the distance of each pixel from its own grey.
  """
  weights = jnp.array((0.299, 0.587, 0.114))

  def grey(image: Array) -> Array:
    known = image @ weights if image.shape[-1] == 3 else image.mean(axis=-1)
    return known[..., None]

  image = jnp.clip(factors[0] * image, 0, 255)
  mean = grey(image).mean()
  image = jnp.clip(mean + factors[1] * (image - mean), 0, 255)
  if image.shape[-1] != 3:
    return image
  own = grey(image)
  return jnp.clip(own + factors[2] * (image - own), 0, 255)


def cutout(*, size: Annotated[int, Bounds(at_least=1)] = 8) -> Augmentation:
  """Blackens a square around a random pixel, cut off at the image's border.

  The code of DeVries and Taylor instead sets the square to 0 after
  standardisation, which gives it the mean colour. That code uses squares 16
  wide for CIFAR-10 and 8 wide for CIFAR-100.

  References:
    DeVries and Taylor, Improved Regularization of Convolutional Neural Networks
    with Cutout, 2017.
  """

  def one(image: Array, key: Array) -> Array:
    h, w, _ = image.shape
    y, x = jax.random.randint(key, (2,), 0, jnp.array((h, w))) - size // 2
    down, right = jnp.arange(h) - y, jnp.arange(w) - x
    inside = ((down >= 0) & (down < size))[:, None]
    inside = inside & ((right >= 0) & (right < size))
    return jnp.where(inside[..., None], 0, image).astype(image.dtype)

  return of_each(one)


def pixels(image: Array) -> Array:
  """Rounds floats to pixels, uint8 in 0..255."""
  return jnp.clip(jnp.round(image), 0, 255).astype(jnp.uint8)


AUGMENTATIONS: dict[str, Callable[..., Augmentation]] = {
  "crop": lambda: functools.partial(augment, mirror=False),
  "crop_flip": lambda: functools.partial(augment, mirror=True),
  "rotation": rotation,
  "colour": colour,
  "cutout": cutout,
}
"""Name -> function of keyword options, which returns an Augmentation."""


def parse(text: str) -> list[dict[str, Any]]:
  """Reads data.augment; returns the name and options of each augmentation.

  Raises:
    UserError: the text is neither "none" nor names and options joined by "+".
  """
  if text == "none":
    return []
  try:
    rest, found = ast.parse(text.strip(), mode="eval").body, list[Any]()
    while isinstance(rest, ast.BinOp) and isinstance(rest.op, ast.Add):
      found.append(_term(rest.right))
      rest = rest.left
    return [_term(rest), *reversed(found)]
  except (SyntaxError, ValueError, TypeError):
    raise UserError(
      f"data.augment={written(text)} must be none, or names joined by +, as in"
      " crop_flip + rotation(degrees=10)"
    ) from None


def _term(node: ast.expr) -> dict[str, Any]:
  """Reads `name` or `name(option=value)`; raises ValueError for other nodes."""
  options = {}
  if isinstance(node, ast.Call) and not node.args:
    options = {str(k.arg): ast.literal_eval(k.value) for k in node.keywords}
    node = node.func
  if not isinstance(node, ast.Name):
    raise ValueError("no name")
  return {**options, "name": node.id}


def make(text: str) -> Augmentation:
  """Makes the augmentation that data.augment names.

  If it names several, the first one gets the batch's key itself. Each later one
  gets that key folded with its position.

  Raises:
    UserError: a name or an option is unknown or out of bounds.
  """
  each = []
  for given in parse(text):
    spec = read_spec(AUGMENTATIONS, given, "data.augment")
    each.append(AUGMENTATIONS[spec.name](**spec.options))

  def every(image: Array, key: Array) -> Array:
    for place, change in enumerate(each):
      own = jax.random.fold_in(key, place) if place else key
      image = change(image, own)
    return image

  return every


def check(text: str, given: np.ndarray) -> None:
  """Raises UserError unless data.augment keeps shape and dtype of inputs."""
  image = jax.ShapeDtypeStruct((2, *given.shape[1:]), given.dtype)
  try:
    found = jax.eval_shape(make(text), image, jax.random.key(0))
  except UserError:
    raise
  except Exception as error:  # whatever an entry raises
    said = " ".join(str(error).split())[:100]
    raise UserError(
      f"data.augment={text!r}: {said}; an entry of AUGMENTATIONS maps inputs,"
      " images [B, H, W, c] uint8, and a key to such inputs"
    ) from error
  if (found.shape, found.dtype) != (image.shape, image.dtype):
    raise UserError(
      f"data.augment={text!r}: it makes {found.dtype} {list(found.shape)} of"
      f" {image.dtype} {list(image.shape)}; keep both, rounding by"
      " data.augmentations.pixels"
    )
