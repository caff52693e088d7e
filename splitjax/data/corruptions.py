"""Domains: fixed changes of images, those of CIFAR-10-C, at severities 1 to 5.

A domain is "clean", or a corruption's name and its severity, such as
"gaussian_blur 3". Unlike an augmentation, it is a property of an image: the
change is computed once, from the image and the run's seed. Names and numbers
are those of CIFAR-10-C (Hendrycks and Dietterich, ICLR 2019), except for
`rotation`: "clean" and its five severities are the six domains of rotated MNIST
(Ghifary et al., ICCV 2015).
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from splitjax.data.dataset import Dataset, require
from splitjax.fields import unknown

_Corruption = Callable[[Array, Array, Array], Array]
"""(image [H, W, c] float in 0..255, severity [] int32 1 to 5, key []) -> image
[H, W, c]. The caller rounds the result and clips it to 0..255."""

CLEAN = "clean"  # the domain of images as they are
_BLOCK = 256  # images that the device changes at a time

# They separate the dealing of domains and draws from others of the same seed.
_DEAL = 0xD0A1
_DRAW = 0xC0DE


def rotation(image: Array, severity: Array, key: Array) -> Array:
  """Rotates counter-clockwise by 15 to 75 degrees; black outside."""
  del key
  angle = jnp.deg2rad(15.0 * severity)
  height, width, _ = image.shape
  middle = (height - 1) / 2
  centre = (width - 1) / 2
  y = jnp.arange(height)[:, None] - middle
  x = jnp.arange(width)[None, :] - centre
  cos = jnp.cos(angle)
  sin = jnp.sin(angle)
  source = [cos * y + sin * x + middle, cos * x - sin * y + centre]

  def of_channel(channel: Array) -> Array:
    return jax.scipy.ndimage.map_coordinates(channel, source, 1, "constant")

  return jax.vmap(of_channel, in_axes=-1, out_axes=-1)(image)


def contrast(image: Array, severity: Array, key: Array) -> Array:
  """Shrinks the distance of pixels from the mean of their channel."""
  del key
  share = jnp.array([0.75, 0.5, 0.4, 0.3, 0.15])[severity - 1]
  mean = image.mean(axis=(0, 1), keepdims=True)
  return mean + share * (image - mean)


def gaussian_blur(image: Array, severity: Array, key: Array) -> Array:
  """Blurs by a Gaussian filter whose sigma is 0.4 to 1 pixels."""
  del key
  return _along_sides(image, severity, _smooth, (0.4, 0.6, 0.7, 0.8, 1.0))


def gaussian_noise(image: Array, severity: Array, key: Array) -> Array:
  """Adds normal noise to every pixel value; sigma is 4 % to 10 % of 255."""
  scale = 255 * jnp.array([0.04, 0.06, 0.08, 0.09, 0.1])[severity - 1]
  return image + scale * jax.random.normal(key, image.shape)


def pixelate(image: Array, severity: Array, key: Array) -> Array:
  """Shrinks each side by 5 % to 35 % and enlarges it, as Pillow's BOX does."""
  del key
  return _along_sides(image, severity, _coarse, (0.95, 0.9, 0.85, 0.75, 0.65))


def _along_sides(
  image: Array, severity: Array, matrix: Callable, numbers: Sequence[float]
) -> Array:
  """Multiplies sides of n pixels by matrix(n, number of the severity)."""
  down, across = (
    jnp.array([matrix(side, number) for number in numbers])[severity - 1]
    for side in image.shape[:2]
  )
  products = "ij,jkc,lk->ilc"
  return jnp.einsum(products, down, image, across, precision="highest")


def _smooth(side: int, sigma: float) -> np.ndarray:
  """Returns a Gaussian filter [side, side] with copies of edge pixels."""
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
  small = max(1, int(side * share))
  return _box(small, side) @ _box(side, small)


def _box(source: int, target: int) -> np.ndarray:
  """Returns weights [target, source] that resize as Pillow's BOX does.

  A new pixel is the mean of the old ones whose centres it covers, or a copy of
  the one that covers its centre.
  """
  wide = source / target
  centre = wide * (np.arange(target)[:, None] + 0.5)
  offset = (np.arange(source) + 0.5 - centre) / max(wide, 1)
  inside = (offset > -0.5) & (offset <= 0.5)
  return inside / inside.sum(axis=1, keepdims=True)


CORRUPTIONS: dict[str, _Corruption] = {
  "rotation": rotation,
  "contrast": contrast,
  "gaussian_blur": gaussian_blur,
  "gaussian_noise": gaussian_noise,
  "pixelate": pixelate,
}


def read_domains(names: Sequence[str], field: str) -> tuple[str, ...]:
  """Checks domains; a corruption's name stands for its five severities."""
  choices = {CLEAN: [CLEAN]}
  for name in CORRUPTIONS:
    choices[name] = [f"{name} {severity}" for severity in range(1, 6)]
    choices |= {domain: [domain] for domain in choices[name]}
  domains: list[str] = []
  for name in names:
    require(name in choices, unknown(field, name, choices, "domain"))
    domains += choices[name]
  return tuple(dict.fromkeys(domains))


def deal_domains(count: int, num_clients: int, seed: int) -> np.ndarray:
  """Deals `count` domains to the clients: [N] int, evenly and at random."""
  order = np.random.default_rng((seed, _DEAL)).permutation(num_clients)
  return order % count


def corrupted(
  data: Dataset, train_domain: np.ndarray, domains: Sequence[str], seed: int
) -> Dataset:
  """Changes the images of a data set by domains, and notes the domain of each.

  `train_domain` [Z] int has each training image's number in `domains`. The test
  split gets a copy of each image for every domain: image m in domain d is row
  d M + m. Draws are fixed by the seed and an image's row, whatever the
  severity. UserError without images, or if they have domains already.
  """
  require(
    data.kind == "images" and data.train_domain is data.test_domain is None,
    f"domains {', '.join(domains)}: they are of images, uint8 [Z, H, W, c], in"
    f" no domain yet, which {data.kind} of {data.name} are not; leave"
    " data.domains and eval.domains ()",
  )
  train = np.array(data.train_image)  # it may be memory-mapped
  for number, domain in enumerate(domains):
    rows = np.flatnonzero(train_domain == number)
    train[rows] = _changed(data.train_image, rows, domain, seed, split=0)
  rows = np.arange(len(data.test_label))
  test = np.empty((len(domains), *data.test_image.shape), np.uint8)
  for copy, domain in zip(test, domains, strict=True):
    copy[:] = _changed(data.test_image, rows, domain, seed, split=1)
  client = data.test_client
  return data._replace(
    train_image=train,
    train_domain=train_domain.astype(np.int32),
    test_image=test.reshape(-1, *test.shape[2:]),
    test_label=np.tile(data.test_label, len(domains)),
    test_client=None if client is None else np.tile(client, len(domains)),
    test_domain=np.repeat(np.arange(len(domains), dtype=np.int32), len(rows)),
    domain_names=tuple(domains),
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
  for start in range(0, len(rows), _BLOCK):
    # One shape for all blocks, so that a corruption is compiled once.
    block = slice(start, start + _BLOCK)
    filled = np.resize(changed[block], (_BLOCK, *changed.shape[1:]))
    numbers = np.resize(rows[block], _BLOCK).astype(np.int32)
    result = _change(CORRUPTIONS[name], int(severity), key, filled, numbers)
    changed[block] = np.asarray(result)[: len(rows) - start]
  return changed


@functools.partial(jax.jit, static_argnums=0)
def _change(
  corruption: _Corruption,
  severity: Array,
  key: Array,
  image: Array,
  rows: Array,
) -> Array:
  """Corrupts images [B, H, W, c] uint8; folds row numbers [B] into the key."""

  def of_image(image: Array, row: Array) -> Array:
    draws = jax.random.fold_in(key, row)
    changed = corruption(image.astype(float), severity, draws)
    return jnp.clip(jnp.round(changed), 0, 255).astype(jnp.uint8)

  return jax.vmap(of_image)(image, rows)
