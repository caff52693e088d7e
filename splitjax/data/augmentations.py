"""AUGMENTATIONS: random changes of images, made on device during training.

`data.augment` is a tuple of names; the augmentations change a batch's pixels
one after another, before standardisation. Each image is changed independently,
with random numbers from the batch's key.

>>> import jax, jax.numpy as jnp, splitjax
>>> from splitjax.data.augmentations import of_image
>>> def erase_rows(image, key):  # [H, W, c] uint8
...   start = jax.random.randint(key, (), 0, len(image))
...   row = jnp.arange(len(image))[:, None, None]
...   return jnp.where((row >= start) & (row < start + 2), 0, image)
>>> splitjax.AUGMENTATIONS["erase_rows"] = of_image(erase_rows)
>>> c = splitjax.default()
>>> c.data.augment = ("crop_flip", "erase_rows")
>>> splitjax.Config.from_dict(c).data.augment
('crop_flip', 'erase_rows')
>>> del splitjax.AUGMENTATIONS["erase_rows"]
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from splitjax.data.dataset import Dataset
from splitjax.files import is_own
from splitjax.types import Array, UserError

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


def crop(image: Array, key: Array) -> Array:
  """Pads images by PAD black pixels on every side, and crops them at random."""
  return _cropped(image, key, mirror=False)


def crop_flip(image: Array, key: Array) -> Array:
  """Crops images (`crop`), then mirrors each with probability 1/2."""
  return _cropped(image, key, mirror=True)


def _cropped(image: Array, key: Array, *, mirror: bool) -> Array:
  offset_key, side_key = jax.random.split(key)
  corner = jax.random.randint(offset_key, (len(image), 2), 0, 2 * PAD + 1)
  flip = jax.random.bernoulli(side_key, 0.5, (len(image),))

  def cut(image, corner, flip):
    framed = jnp.pad(image, ((PAD, PAD), (PAD, PAD), (0, 0)))
    # Slice whole rows: a gather by index takes five times as long on a CPU.
    crop = jax.lax.dynamic_slice(framed, (*corner, 0), image.shape)
    return jnp.where(flip, crop[:, ::-1], crop) if mirror else crop

  return jax.vmap(cut)(image, corner, flip)


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
  image = jax.ShapeDtypeStruct(
    (2, *data.train_image.shape[1:]), data.train_image.dtype
  )
  for name in names:
    entry = AUGMENTATIONS[name]
    where = f"data.augment={name!r}"
    if data.vocabulary or (data.kind != "images" and not is_own(entry)):
      raise UserError(
        f"{where}: it is for images, uint8 [Z, H, W, c], and the inputs of"
        f" {data.name} are {data.kind}; leave it ()"
      )
    try:
      changed = jax.eval_shape(entry, image, jax.random.key(0))
    except Exception as error:  # whatever an entry raises
      said = " ".join(str(error).split())[:100]
      raise UserError(
        f"{where}: {said}; an entry of AUGMENTATIONS maps inputs, images"
        " [B, H, W, c] uint8, and a key to such inputs"
      ) from error
    if (changed.shape, changed.dtype) != (image.shape, image.dtype):
      raise UserError(
        f"{where}: it makes {changed.dtype} {list(changed.shape)} of"
        f" {image.dtype} {list(image.shape)}; keep both"
      )
