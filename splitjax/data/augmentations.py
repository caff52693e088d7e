"""AUGMENTATIONS: random changes of images, made on device during training.

Those that `data.augment` names change a batch one after another, before it is
standardised, each image by draws of its own from the batch's key.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from splitjax.data.dataset import Dataset, require
from splitjax.files import reason

_Augmentation = Callable[[Array, Array], Array]
"""(images [B, H, W, c] uint8, key []) -> images of the same shape, uint8."""

_PAD = 4  # black pixels on every side before a random crop
_TRIED = 2  # samples of the batch that `check` tries an augmentation with


def of_image(change: Callable[[Array, Array], Array]) -> _Augmentation:
  """Makes an augmentation of a change of one image, [H, W, c] uint8."""

  @functools.wraps(change)
  def of_batch(image: Array, key: Array) -> Array:
    return jax.vmap(change)(image, jax.random.split(key, len(image)))

  return of_batch


def crop(image: Array, key: Array, *, mirror: bool = False) -> Array:
  """Pads images [B, H, W, c] by 4 black pixels and crops them at random."""
  offset_key, side_key = jax.random.split(key)
  corner = jax.random.randint(offset_key, (len(image), 2), 0, 2 * _PAD + 1)
  flip = jax.random.bernoulli(side_key, 0.5, (len(image),))

  def cut(image: Array, corner: Array, flip: Array) -> Array:
    framed = jnp.pad(image, ((_PAD, _PAD), (_PAD, _PAD), (0, 0)))
    # Slice whole rows: a gather by index takes five times as long on a CPU.
    window = jax.lax.dynamic_slice(framed, (*corner, 0), image.shape)
    return jnp.where(flip, window[:, ::-1], window) if mirror else window

  return jax.vmap(cut)(image, corner, flip)


def crop_flip(image: Array, key: Array) -> Array:
  """Crops images (`crop`), then mirrors each with probability 1/2."""
  return crop(image, key, mirror=True)


AUGMENTATIONS: dict[str, _Augmentation] = {"crop": crop, "crop_flip": crop_flip}
"""Name -> augmentation."""


def augmented(image: Array, names: Sequence[str], key: Array) -> Array:
  """Changes a batch [B, ...] by the augmentations `names`, in their order."""
  for number, name in enumerate(names):
    # The first has the batch's own key: it draws as it does alone.
    draw_key = key if number == 0 else jax.random.fold_in(key, number)
    image = AUGMENTATIONS[name](image, draw_key)
  return image


def check(names: Sequence[str], data: Dataset) -> None:
  """Raises UserError unless these augmentations can change such inputs.

  Ours take images, a user's anything but token ids. They are traced to see that
  they return the shape and dtype that they get.
  """
  image = data.train_image
  batch = jax.ShapeDtypeStruct((_TRIED, *image.shape[1:]), image.dtype)
  for name in names:
    change = AUGMENTATIONS[name]
    ours = getattr(change, "__module__", "") == __name__
    allowed = data.kind == "images" if ours else not data.vocabulary
    require(
      allowed,
      f"data.augment={name!r}: the inputs of {data.name} are {data.kind}, and"
      f" it is for {'images' if ours else 'numbers'}; leave it ()",
    )
    form = _form(batch)
    try:
      changed = jax.eval_shape(change, batch, jax.random.key(0))
      outcome = f"returns {_form(changed)}"
    except Exception as error:  # whatever a user's function raises
      outcome = f"raises {reason(error)}"
    require(
      outcome == f"returns {form}",
      f"data.augment={name!r}: of {form} and a key it {outcome}; it must"
      f" return {form}",
    )


def _form(result: Any) -> str:
  """Writes the form of a traced result: dtype and shape of an array."""
  if isinstance(result, jax.ShapeDtypeStruct):
    return f"{result.dtype} {list(result.shape)}"
  return f"a {type(result).__name__}"
