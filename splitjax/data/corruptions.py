"""Domains: fixed changes of images, those of CIFAR-10-C, at severities 1 to 5.

A domain is "clean", or a corruption's name and its severity, such as
"gaussian_blur 3". Unlike an augmentation, it is a property of an image: the
change is computed once, on the device, from the image and the run's seed. Names
and parameters are those of CIFAR-10-C, except for `rotation`, which turns by 15
degrees per severity: "clean" and its five severities are the six domains of
rotated MNIST.

References:
  Hendrycks and Dietterich, Benchmarking Neural Network Robustness to Common
  Corruptions and Perturbations, ICLR 2019, with their script for CIFAR-10-C.
  Ghifary et al., Domain Generalization for Object Recognition with Multi-task
  Autoencoders, ICCV 2015.

>>> import splitjax
>>> from splitjax.data import read_domains
>>> def negative(image, severity, key):  # [H, W, c] float, 0 to 255
...   return image + severity / 5 * (255 - 2 * image)
>>> splitjax.CORRUPTIONS["negative"] = negative
>>> read_domains(("clean", "negative 5"), "data.domains")
('clean', 'negative 5')
>>> read_domains(("negative",), "eval.domains")[:2]
('negative 1', 'negative 2')
>>> del splitjax.CORRUPTIONS["negative"]
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from splitjax.data.dataset import Dataset
from splitjax.fields import unknown
from splitjax.types import Array, UserError, naming

Corruption = Callable[[Array, Array, Array], Array]
"""(image [H, W, c] float in 0..255, severity [] int32 1 to 5, key []) -> image
[H, W, c]. The caller rounds the result and clips it to 0..255."""

CLEAN = "clean"
"""The domain of images as they are."""

BLOCK = 256
"""Number of images that the device changes at a time."""

_DEAL, _DRAW = 0xD0A1, 0xC0DE
"""Numbers that separate these draws from others of the same seed."""


def rotation(image: Array, severity: Array, key: Array) -> Array:
  """Rotates counter-clockwise by 15 to 75 degrees, interpolated bilinearly.

  What the rotated image leaves empty becomes black.
  """
  del key
  angle = jnp.deg2rad(15.0 * severity)
  h, w, _ = image.shape
  middle = (h - 1) / 2
  centre = (w - 1) / 2
  y = jnp.arange(h)[:, None] - middle
  x = jnp.arange(w)[None, :] - centre
  cos = jnp.cos(angle)
  sin = jnp.sin(angle)
  source = [cos * y + sin * x + middle, cos * x - sin * y + centre]

  def of_channel(channel: Array) -> Array:
    return jax.scipy.ndimage.map_coordinates(channel, source, 1, "constant")

  return jax.vmap(of_channel, in_axes=-1, out_axes=-1)(image)


def brightness(image: Array, severity: Array, key: Array) -> Array:
  """Raises V of HSV, which is the largest channel; keeps hue and saturation."""
  del key
  added = 255 * _at(severity, 0.05, 0.1, 0.15, 0.2, 0.3)
  value = image.max(axis=-1, keepdims=True)
  share = jnp.where(value > 0, image / jnp.where(value > 0, value, 1), 1)
  return share * jnp.minimum(value + added, 255)


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
  added = _at(severity, 0.0, 0.0, 0.0, 0.1, 0.2)
  value = image.max(axis=-1, keepdims=True)
  spread = value - image.min(axis=-1, keepdims=True)
  saturation = spread / jnp.where(value > 0, value, 1)
  changed = jnp.clip(scale * saturation + added, 0, 1)
  # A channel is V (1 - S depth), with depth 0 in the largest, 1 in the least.
  grey = jnp.array((0.0, 1.0, 1.0))
  depth = (value - image) / jnp.where(spread > 0, spread, 1)
  return value * (1 - changed * jnp.where(spread > 0, depth, grey))


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
  """Shrinks each side by 5 % to 35 % and enlarges it, as Pillow's BOX does."""
  del key
  return _along_sides(image, severity, _coarse, (0.95, 0.9, 0.85, 0.75, 0.65))


def _at(severity: Array, *numbers: float) -> Array:
  """Returns the number that belongs to a severity, 1 to 5."""
  return jnp.array(numbers)[severity - 1]


def _along_sides(
  image: Array,
  severity: Array,
  matrix: Callable[[int, float], np.ndarray],
  numbers: Sequence[float],
) -> Array:
  """Multiplies an image along both sides by matrices.

  For a side of n pixels it is matrix(n, numbers[severity - 1]), [n, n].
  """
  down, across = (
    jnp.array([matrix(side, number) for number in numbers])[severity - 1]
    for side in image.shape[:2]
  )
  products = "ij,jkc,lk->ilc"
  return jnp.einsum(products, down, image, across, precision="highest")


def _smooth(side: int, sigma: float) -> np.ndarray:
  """Returns a Gaussian filter [side, side]; edge pixels extend the image."""
  reach = int(4 * sigma + 0.5)
  step = np.arange(-reach, reach + 1)
  weight = np.exp(-((step / sigma) ** 2) / 2)
  matrix = np.zeros((side, side))
  target = np.arange(side)[:, None]
  source = np.clip(target + step, 0, side - 1)
  np.add.at(matrix, (target, source), weight / weight.sum())
  return matrix


def _coarse(side: int, share: float) -> np.ndarray:
  """Returns weights [side, side] that shrink a side, then enlarge it again."""
  few = max(1, int(side * share))
  return _box(few, side) @ _box(side, few)


def _box(before: int, after: int) -> np.ndarray:
  """Returns weights [after, before] that resize as Pillow's BOX does.

  A larger pixel is the mean of the old ones whose centres it covers, a smaller
  one equal to the old pixel that covers its centre.
  """
  wide = before / after
  centre = wide * (np.arange(after)[:, None] + 0.5)
  offset = (np.arange(before) + 0.5 - centre) / max(wide, 1)
  inside = (offset > -0.5) & (offset <= 0.5)
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


def read_domains(names: Sequence[str], where: str) -> tuple[str, ...]:
  """Checks domains; a corruption's name stands for its five severities."""
  domains: list[str] = []
  for text in names:
    name, _, severity = text.partition(" ")
    if name != CLEAN and name not in CORRUPTIONS:
      known = [CLEAN, *CORRUPTIONS]
      raise UserError(unknown(where, name, known, "corruption"))
    if name == CLEAN or severity:
      domains.append(text)
    else:
      domains += [f"{name} {level}" for level in range(1, 6)]
    if severity not in ("", *"12345") or text == f"{CLEAN} {severity}":
      raise UserError(
        f"{where}={text!r}: give {CLEAN}, a corruption, or one with a severity"
        " of 1 to 5, as in 'rotation 3'"
      )
  if len(set(domains)) < len(domains):
    raise UserError(f"{where}={tuple(names)}: name each domain once")
  return tuple(domains)


def deal_domains(count: int, num_clients: int, seed: int) -> np.ndarray:
  """Deals `count` domains to the clients: [N] int, evenly and at random."""
  order = np.random.default_rng((seed, _DEAL)).permutation(num_clients)
  return order % count


def corrupted(
  data: Dataset, train_domain: np.ndarray, domains: Sequence[str], seed: int
) -> Dataset:
  """Changes the images of a data set by domains, and notes the domain of each.

  Each training image is changed once, in place. The test split has one copy of
  each image for every domain: image m in domain d is row d M + m.

  Args:
    data: images without domains.
    train_domain: [Z] int, the number of each training image's domain.
    domains: names, as `read_domains` returns them.
    seed: fixes the draws with an image's row, whatever its severity.

  Raises:
    UserError: the inputs are no images, a corruption does not suit their shape,
      or they have domains of their own.
  """
  _check_images(data, domains)
  train = np.array(data.train_image)  # it may be memory-mapped
  for number, domain in enumerate(domains):
    rows = np.flatnonzero(train_domain == number)
    train[rows] = _changed(data.train_image, rows, domain, seed, split=0)
  rows = np.arange(len(data.test_label))
  shape = len(domains), *data.test_image.shape
  test = np.empty(shape, np.uint8)
  for copy, domain in zip(test, domains, strict=True):
    copy[:] = _changed(data.test_image, rows, domain, seed, split=1)
  client = data.test_client
  return data._replace(
    train_image=train,
    train_domain=train_domain.astype(np.int32),
    test_image=test.reshape(-1, *shape[2:]),
    test_label=np.tile(data.test_label, len(domains)),
    test_client=None if client is None else np.tile(client, len(domains)),
    test_domain=np.repeat(np.arange(len(domains), dtype=np.int32), len(rows)),
    domain_names=tuple(domains),
  )


def _check_images(data: Dataset, domains: Sequence[str]) -> None:
  """Raises UserError if the inputs cannot be in the domains."""
  where = f"domains {', '.join(domains)}"
  if data.kind != "images":
    raise UserError(
      f"{where}: they are of images, uint8 [Z, H, W, c], and the inputs of"
      f" {data.name} are {data.kind}; leave data.domains and eval.domains ()"
    )
  if data.train_domain is not None or data.test_domain is not None:
    raise UserError(
      f"{where}: {data.name} has domains of its own (train_domain, test_domain)"
      "; leave data.domains and eval.domains ()"
    )
  shape = data.train_image.shape[1:]
  image = jax.ShapeDtypeStruct((1, *shape), np.uint8)
  row = jax.ShapeDtypeStruct((1,), np.int32)
  names = {domain.partition(" ")[0] for domain in domains}
  for name in sorted(names - {CLEAN}):
    change = functools.partial(_change, CORRUPTIONS[name])
    with naming(where):
      result = jax.eval_shape(change, image, 1, jax.random.key(0), row)
    if result.shape != image.shape:
      raise UserError(
        f"{where}: {name} makes {list(result.shape[1:])} of images"
        f" {list(shape)}: an entry of CORRUPTIONS keeps their shape"
      )


def _changed(
  image: np.ndarray, rows: np.ndarray, domain: str, seed: int, *, split: int
) -> np.ndarray:
  """Returns rows [M] of images [Z, H, W, c] uint8 in a domain, uint8."""
  changed = np.array(image[rows])
  name, _, severity = domain.partition(" ")
  if name == CLEAN:
    return changed
  key = jax.random.key(seed)
  for number in (_DRAW, split, 0):
    key = jax.random.fold_in(key, number)
  for start in range(0, len(rows), BLOCK):
    # One shape for all blocks, so that a corruption is compiled once.
    block = slice(start, start + BLOCK)
    filled = np.resize(changed[block], (BLOCK, *changed.shape[1:]))
    numbers = np.resize(rows[block], BLOCK).astype(np.int32)
    result = _compiled(CORRUPTIONS[name], filled, int(severity), key, numbers)
    changed[block] = np.asarray(result)[: len(rows) - start]
  return changed


def _change(
  corruption: Corruption, image: Array, severity: Array, key: Array, rows: Array
) -> Array:
  """Corrupts images [B, H, W, c] uint8; folds row numbers [B] into the key."""

  def of_image(image: Array, row: Array) -> Array:
    draws = jax.random.fold_in(key, row)
    changed = corruption(image.astype(float), severity, draws)
    return jnp.clip(jnp.round(changed), 0, 255).astype(jnp.uint8)

  return jax.vmap(of_image)(image, rows)


_compiled = jax.jit(_change, static_argnums=0)
