"""AUGMENTATIONS: random changes of images, made on device during training.

`data.augment` is a tuple of names; the augmentations change a batch's pixels
one after another, before standardisation. Each image is changed independently,
with random numbers from the batch's key.

>>> import jax.numpy as jnp, splitjax
>>> from splitjax.data import of_image
>>> def fade(image, key):  # [H, W, c] uint8
...   return (image * jax.random.uniform(key, (), minval=0.7)).astype(jnp.uint8)
>>> splitjax.AUGMENTATIONS["fade"] = of_image(fade)
>>> c = splitjax.default()
>>> c.data.augment = ("crop_flip", "fade")
>>> splitjax.Config.from_dict(c).data.augment
('crop_flip', 'fade')
>>> del splitjax.AUGMENTATIONS["fade"]
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array

from splitjax.data.dataset import Dataset, require
from splitjax.files import is_own, one_line
from splitjax.types import UserError

Augmentation = Callable[[Array, Array], Array]
"""(images [B, H, W, c] uint8, key []) -> images of the same shape, uint8."""

PAD = 4
"""Black pixels added on every side before a random crop."""


def of_image(change: Callable[[Array, Array], Array]) -> Augmentation:
  """Makes an augmentation of a change of one image, [H, W, c] uint8."""

  @functools.wraps(change)
  def of_batch(image: Array, key: Array) -> Array:
    return jax.vmap(change)(image, jax.random.split(key, len(image)))

  return of_batch


def crop(image: Array, key: Array, *, mirror: bool = False) -> Array:
  """Pads images by PAD black pixels on every side, and crops them at random."""
  offset_key, side_key = jax.random.split(key)
  corner = jax.random.randint(offset_key, (len(image), 2), 0, 2 * PAD + 1)
  flip = jax.random.bernoulli(side_key, 0.5, (len(image),))

  def cut(image: Array, corner: Array, flip: Array) -> Array:
    framed = jnp.pad(image, ((PAD, PAD), (PAD, PAD), (0, 0)))
    # Slice whole rows: a gather by index takes five times as long on a CPU.
    crop = jax.lax.dynamic_slice(framed, (*corner, 0), image.shape)
    return jnp.where(flip, crop[:, ::-1], crop) if mirror else crop

  return jax.vmap(cut)(image, corner, flip)


def crop_flip(image: Array, key: Array) -> Array:
  """Crops images (`crop`), then mirrors each with probability 1/2."""
  return crop(image, key, mirror=True)


AUGMENTATIONS: dict[str, Augmentation] = {"crop": crop, "crop_flip": crop_flip}
"""Name -> augmentation."""


def augmented(image: Array, names: Sequence[str], key: Array) -> Array:
  """Changes a batch [B, ...] by the augmentations `names`, in their order."""
  for number, name in enumerate(names):
    draws = jax.random.fold_in(key, number) if number else key
    image = AUGMENTATIONS[name](image, draws)
  return image


def check(names: Sequence[str], data: Dataset) -> None:
  """Raises UserError unless the inputs can be augmented so.

  Ours are for images. One of the user's may change inputs of other kinds, but
  no token ids, and keeps shape and dtype.
  """
  shape = (2, *data.train_image.shape[1:])
  image = jax.ShapeDtypeStruct(shape, data.train_image.dtype)
  for name in names:
    entry = AUGMENTATIONS[name]
    require(
      data.kind == "images" or (is_own(entry) and not data.vocabulary),
      f"data.augment={name!r}: it is for images, uint8 [Z, H, W, c], and the"
      f" inputs of {data.name} are {data.kind}; leave it ()",
    )
    try:
      changed = jax.eval_shape(entry, image, jax.random.key(0))
      keeps = (changed.shape, changed.dtype) == (image.shape, image.dtype)
      require(keeps, f"it makes {changed.dtype} {list(changed.shape)} of them")
    except Exception as error:  # whatever an entry raises
      raise UserError(
        f"data.augment={name!r}: {one_line(error)}; an entry of AUGMENTATIONS"
        f" maps inputs, here {image.dtype} {list(shape)}, and a key to such"
        " inputs"
      ) from error
