"""Public checkpoints of vision transformers as initial parameters.

Their form is that of github.com/google-research/vision_transformer: an .npz
whose keys are paths such as Transformer/encoderblock_0/LayerNorm_0/scale.
"""

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from splitjax.files import expanded, read_arrays
from splitjax.models import sizes
from splitjax.models.network import Backbone, Pretrained
from splitjax.types import UserError

POSITIONS = "Transformer/posembed_input/pos_embedding"
BLOCK = "Transformer/encoderblock_{}"
_TENSORS = {
  "cls": "cls",
  "kernel": "embedding/kernel",
  "bias": "embedding/bias",
  "positions": POSITIONS,
  "LayerNorm_0": f"{BLOCK}/LayerNorm_0",
  "Attention_0": f"{BLOCK}/MultiHeadDotProductAttention_1",
  "LayerNorm_1": f"{BLOCK}/LayerNorm_2",
  "Dense_0": f"{BLOCK}/MlpBlock_3/Dense_0",
  "Dense_1": f"{BLOCK}/MlpBlock_3/Dense_1",
  "LayerNorm_2": "Transformer/encoder_norm",
}
"""Beginning of a parameter's path in a block -> beginning of its key in a file.
The rest of the key, such as query/bias, is the rest of the path. {} stands for
the block's number, counted from 0."""
_REMEDY = (
  "choose the file of this backbone, width, length, patch and number of"
  " channels, in the form of google-research/vision_transformer"
)
_SPARE = "head/kernel", "head/bias", "pre_logits/kernel", "pre_logits/bias"
"""Keys that a file may have although they are not used."""


def read(path: str, backbone: Backbone) -> Pretrained:
  """Reads the parameters of a vision transformer from a checkpoint.

  If the file has another grid of patches, its position embeddings are
  interpolated. A head of another number of classes, or behind a further layer
  (pre_logits), is left out: it is initialised at random, as the exits are.

  `path` is an .npz in the public form (nothing is unpickled), `backbone` a
  network of `transformers.vit`. The note says what was adapted.

  Raises:
    UserError: the file cannot be read, or a tensor is missing, different or
      unknown.
  """
  field = f"backbone.pretrained={path}"
  file = load(path, field)
  full = sizes.shapes(backbone).params
  head = file.get("head/kernel", np.empty(0))
  further = any(key.startswith("pre_logits/") for key in file)
  fits = head.ndim != 2 or head.shape[1] == backbone.classes
  has_head = "head/kernel" in file and fits and not further
  names = (*backbone.names(), "head") if has_head else backbone.names()
  params = {}
  spare = set(file) - set(_SPARE)
  for number, name in enumerate(names):

    def take(at: tuple, like: Any, name=name, number=number) -> np.ndarray:
      key = tensor(name, number, at)
      spare.discard(key)
      return fitted(file, key, like.shape, field)

    params[name] = jax.tree_util.tree_map_with_path(take, full[name])
  if spare:  # the file is of another network
    extra = min(spare)
    raise UserError(
      f"{field} does not fit: {extra!r} is in no block; {_REMEDY}"
    )
  note = f"weights of {path}"
  grids = side(file[POSITIONS]), side(params["block1"]["positions"])
  if grids[0] != grids[1]:
    note += "; positions interpolated, {}² to {}²".format(*grids)
  if not has_head:
    note += "; without its head"
  content = expanded(path).read_bytes()
  digest = hashlib.blake2b(content, digest_size=16).hexdigest()
  return Pretrained(params=params, note=note, digest=digest)


def load(path: str, field: str) -> dict[str, np.ndarray]:
  """Loads an .npz file as key -> array; error messages begin with `field`."""
  try:
    return read_arrays(expanded(path))
  except (OSError, ValueError) as error:
    raise UserError(
      f"{field} cannot be read ({error}): is the path right? {_REMEDY}"
    ) from None


def tensor(name: str, number: int, at: tuple) -> str:
  """Forms a file's key of the parameter at a path in a block or the head."""
  path = jax.tree_util.keystr(at, simple=True, separator="/")
  if name == "head":
    return path.replace("Dense_0", "head")
  start = next(s for s in _TENSORS if path == s or path.startswith(f"{s}/"))
  return _TENSORS[start].format(number) + path.removeprefix(start)


def fitted(
  file: Mapping[str, np.ndarray], key: str, shape: tuple[int, ...], field: str
) -> np.ndarray:
  """Returns a tensor as float32; position embeddings are resized to `shape`."""
  array = file.get(key)
  if array is not None and key == POSITIONS:
    array = resize(array, shape[1])
  kind = None if array is None else f"{array.dtype} {array.shape}"
  if array is not None and array.shape == shape and array.dtype.kind == "f":
    with np.errstate(over="ignore"):
      array = array.astype(np.float32)
    if np.isfinite(array).all():
      return array
    kind = "not finite in float32"
  raise UserError(
    f"{field} does not fit: {key} is {kind or 'missing'}, not float32 {shape};"
    f" {_REMEDY}"
  )


def side(positions: np.ndarray) -> int:
  """Returns floor(sqrt(n)), the grid's edge, for positions [1, 1 + n, D]."""
  return math.isqrt(positions.shape[1] - 1)


def resize(positions: np.ndarray, count: int) -> np.ndarray:
  """Interpolates position embeddings for another grid of patches.

  It is that of the reference implementation, bilinear with fixed corners. The
  class token's embedding is kept. Embeddings [1, 1 + n * n, D] become
  [1, count, D], count being 1 + m * m; others are returned unchanged.
  """
  if positions.ndim != 3 or positions.shape[1] in (0, 1, count):
    return positions
  old = side(positions)
  new = math.isqrt(count - 1)
  if positions.shape[:2] != (1, old**2 + 1):
    return positions
  from scipy import ndimage  # read by few runs

  grid = positions[0, 1:].reshape(old, old, -1)
  grid = ndimage.zoom(grid, (new / old, new / old, 1), order=1)
  return np.concatenate([positions[:, :1], grid.reshape(1, new**2, -1)], axis=1)
