"""AUGMENTATIONS: random changes of images, made on device during training.

`data.augment` is a name. The augmentation changes a batch's pixels before
standardisation; each image is changed independently, with random numbers from
the batch's key.

>>> import jax, jax.numpy as jnp, splitjax
>>> from splitjax.data.augmentations import of_each
>>> def erase_rows(image, key):  # [H, W, c] uint8
...   first = jax.random.randint(key, (), 0, len(image))
...   place = jnp.arange(len(image))[:, None, None]
...   return jnp.where((place >= first) & (place < first + 2), 0, image)
>>> splitjax.AUGMENTATIONS["erase_rows"] = of_each(erase_rows)
>>> c = splitjax.default()
>>> c.data.augment = "erase_rows"
>>> splitjax.Config.from_dict(c).data.augment
'erase_rows'
>>> del splitjax.AUGMENTATIONS["erase_rows"]
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from splitjax.types import Array, UserError

Augmentation = Callable[[Array, Array], Array]
"""(images [B, H, W, c] uint8, key []) -> images of the same shape, uint8."""

NONE = "none"

PAD = 4
"""Black pixels added on every side before a random crop."""


def of_each(one: Callable[[Array, Array], Array]) -> Augmentation:
  """Makes an augmentation from a function that changes a single image.

  `one` maps (image [H, W, c] uint8, key []) to the changed image.
  """

  def every(image: Array, key: Array) -> Array:
    return jax.vmap(one)(image, jax.random.split(key, len(image)))

  return every


def unchanged(image: Array, key: Array) -> Array:
  """Returns the images as they are."""
  del key
  return image


def crop(image: Array, key: Array) -> Array:
  """Crops images at random with zero padding.

  Each image is padded by PAD black pixels on every side and cropped to its size
  at one of (2 PAD + 1)^2 offsets drawn uniformly.
  """
  return _cropped(image, key, mirror=False)


def crop_flip(image: Array, key: Array) -> Array:
  """Crops images (`crop`), then mirrors each with probability 1/2."""
  return _cropped(image, key, mirror=True)


def _cropped(image: Array, key: Array, *, mirror: bool) -> Array:
  place, side = jax.random.split(key)
  corner = jax.random.randint(place, (len(image), 2), 0, 2 * PAD + 1)
  flip = jax.random.bernoulli(side, 0.5, (len(image),))

  def cut(image, corner, flip):
    framed = jnp.pad(image, ((PAD, PAD), (PAD, PAD), (0, 0)))
    # Slice whole rows: a gather by index takes five times as long on a CPU.
    crop = jax.lax.dynamic_slice(framed, (*corner, 0), image.shape)
    return jnp.where(flip, crop[:, ::-1], crop) if mirror else crop

  return jax.vmap(cut)(image, corner, flip)


AUGMENTATIONS: dict[str, Augmentation] = {
  NONE: unchanged,
  "crop": crop,
  "crop_flip": crop_flip,
}
"""Name -> augmentation."""


def check(name: str, given: np.ndarray) -> None:
  """Raises UserError unless data.augment keeps shape and dtype of inputs."""
  image = jax.ShapeDtypeStruct((2, *given.shape[1:]), given.dtype)
  try:
    found = jax.eval_shape(AUGMENTATIONS[name], image, jax.random.key(0))
  except Exception as error:  # whatever an entry raises
    said = " ".join(str(error).split())[:100]
    raise UserError(
      f"data.augment={name!r}: {said}; an entry of AUGMENTATIONS maps inputs,"
      " images [B, H, W, c] uint8, and a key to such inputs"
    ) from error
  if (found.shape, found.dtype) != (image.shape, image.dtype):
    raise UserError(
      f"data.augment={name!r}: it makes {found.dtype} {list(found.shape)} of"
      f" {image.dtype} {list(image.shape)}; keep both"
    )
