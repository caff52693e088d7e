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
TENSORS = {
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
SPARE = "head/kernel", "head/bias", "pre_logits/kernel", "pre_logits/bias"
"""Keys that a file may have although they are not used."""


def read(path: str, backbone: Backbone) -> Pretrained:
  """Reads the parameters of a vision transformer from a checkpoint.

  If the file has another grid of patches, its position embeddings are
  interpolated. The head is not read if the file has no head, another number of
  classes, or a layer before the head (pre_logits). A head that is not read is
  initialised at random, and so are the exits, which no file has.

  `path` is an .npz in the public form (nothing is unpickled), `backbone` a
  network of `transformers.vit`. The note says what was adapted.

  Raises:
    UserError: the file cannot be read or does not fit; the message names the
      first tensor that is missing, different or unknown.
  """
  where = f"backbone.pretrained={path}"
  file = load(path, where)
  full = sizes.shapes(backbone).params
  no_head = without_head(file, backbone.classes)
  names = backbone.names() if no_head else (*backbone.names(), "head")
  params, spare = {}, set(file) - set(SPARE)
  for number, name in enumerate(names):

    def take(at: tuple, like: Any, name=name, number=number) -> np.ndarray:
      key = tensor(name, number, at)
      spare.discard(key)
      return fitted(file, key, like.shape, where)

    params[name] = jax.tree_util.tree_map_with_path(take, full[name])
  if spare:  # the file is of another network
    raise UserError(
      f"{where} has {min(spare)!r}, and {backbone.name} of {backbone.length}"
      " blocks has no place for it: choose its own file, or another"
      " backbone.length"
    )
  note = f"weights of {path}"
  present, task = file[POSITIONS], params["block1"]["positions"]
  if present.shape != task.shape:
    note += f"; positions interpolated, {side(present)}² to {side(task)}²"
  content = expanded(path).read_bytes()
  digest = hashlib.blake2b(content, digest_size=16).hexdigest()
  return Pretrained(params=params, note=note + no_head, digest=digest)


def load(path: str, where: str) -> dict[str, np.ndarray]:
  """Loads an .npz file as key -> array; error messages begin with `where`."""
  try:
    return read_arrays(expanded(path))
  except OSError as error:
    raise UserError(
      f"{where} cannot be read ({error.strerror or error}): is the path right?"
    ) from None
  except ValueError as error:
    raise UserError(
      f"{where} is {error}: download it again, or choose one in the form of"
      " google-research/vision_transformer"
    ) from None


def tensor(name: str, number: int, at: tuple) -> str:
  """Forms a file's key of the parameter at a path in a block or the head."""
  path = jax.tree_util.keystr(at, simple=True, separator="/")
  if name == "head":
    return path.replace("Dense_0", "head")
  start = next(s for s in TENSORS if path == s or path.startswith(f"{s}/"))
  return TENSORS[start].format(number) + path.removeprefix(start)


def fitted(
  file: Mapping[str, np.ndarray], key: str, shape: tuple[int, ...], where: str
) -> np.ndarray:
  """Returns a tensor as float32; position embeddings are resized to `shape`."""
  present, fault = file.get(key), "missing"
  if present is not None:
    if key == POSITIONS:
      present = resize(present, shape[1])
    fault = "" if present.shape == shape else f"{present.shape}, not {shape}"
    if present.dtype.kind != "f":
      fault = f"of {present.dtype}, not of float32"
    elif not fault:
      with np.errstate(over="ignore"):
        present = present.astype(np.float32)
      fault = "" if np.isfinite(present).all() else "not finite in float32"
  if fault or present is None:
    raise UserError(
      f"{where} does not fit: {key} is {fault}; choose the file of this"
      " backbone, width, length, patch and number of channels, in the form of"
      " google-research/vision_transformer"
    )
  return present


def without_head(file: Mapping[str, np.ndarray], classes: int) -> str:
  """Gives the reason why the head of a file is not used; "" if it is used."""
  if "head/kernel" not in file:
    return "; no head in it"
  if any(key.startswith("pre_logits/") for key in file):
    return "; its head left out: there it follows a further layer (pre_logits)"
  _, *count = file["head/kernel"].shape
  if len(count) == 1 and count != [classes]:
    return f"; its head left out: {count[0]} classes there, {classes} here"
  return ""


def side(positions: np.ndarray) -> int:
  """Returns floor(sqrt(n)), the grid's edge, for positions [1, 1 + n, D]."""
  return math.isqrt(positions.shape[1] - 1)


def resize(positions: np.ndarray, count: int) -> np.ndarray:
  """Interpolates position embeddings for another grid of patches.

  The interpolation is bilinear with fixed corners, as in the reference
  implementation (scipy.ndimage.zoom, order 1). The class token's embedding is
  kept. Embeddings [1, 1 + n * n, D] become [1, count, D], where count is
  1 + m * m for a new grid of m x m. Others are returned unchanged.
  """
  if positions.ndim != 3 or positions.shape[1] in (0, 1, count):
    return positions
  old, new = side(positions), math.isqrt(count - 1)
  if positions.shape[:2] != (1, old**2 + 1):
    return positions
  at = np.linspace(0, old - 1, new)
  rows = np.stack(
    [np.interp(at, np.arange(old), unit) for unit in np.eye(old)], axis=1
  )
  grid = positions[0, 1:].reshape(old, old, -1)
  grid = np.einsum("ih,jw,hwd->ijd", rows, rows, grid)
  return np.concatenate(
    [positions[:, :1], grid.reshape(1, new * new, -1)], axis=1
  )
