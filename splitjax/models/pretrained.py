"""Public checkpoints of vision transformers as initial parameters.

Their form is that of github.com/google-research/vision_transformer: an .npz
whose keys are paths such as Transformer/encoderblock_0/LayerNorm_0/scale.
"""

import hashlib
import math
from collections.abc import Mapping

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
  "head/Dense_0": "head",
}
"""Beginning of a parameter's path in a block -> beginning of its key in a file.
The rest of the key, such as query/bias, is the rest of the path. {} stands for
the block's number, counted from 0."""
SPARE = {
  f"{layer}/{part}"
  for layer in ("head", "pre_logits")
  for part in ("kernel", "bias")
}
"""Keys that a file may have although they are not used: see `read`."""


def read(path: str, backbone: Backbone) -> Pretrained:
  """Reads the parameters of a vision transformer from a checkpoint.

  If the file has another grid of patches, its position embeddings are
  interpolated. The head is not read if the file has no head, another number of
  classes, or a layer before the head (pre_logits). A head that is not read is
  initialised at random, and so are the exits, which no file has.

  Args:
    path: an .npz in the public form; nothing is unpickled.
    backbone: a network of `vit.vit`.

  Returns:
    The float32 parameters of each block, a note that says what was adapted, and
    the digest of the file's tensors.

  Raises:
    UserError: the file cannot be read or does not fit; the message names the
      first tensor that is missing, different or unknown.
  """
  where = f"backbone.pretrained={path}"
  file = load(path, where)
  full = sizes.shapes(backbone).params
  no_head = without_head(file, backbone.classes)
  names = backbone.names() if no_head else (*backbone.names(), "head")
  params, used = {}, set()
  for number, name in enumerate(names):
    leaves, form = jax.tree.flatten_with_path(full[name])
    keys = [tensor(name, number, at) for at, _ in leaves]
    used.update(keys)
    params[name] = jax.tree.unflatten(
      form,
      [
        take(file, key, want.shape, where)
        for key, (_, want) in zip(keys, leaves, strict=True)
      ],
    )
  # A key without a place says that the file is of another network.
  for key in file:
    if key not in used and key not in SPARE:
      raise UserError(
        f"{where} has {key!r}, and {backbone.name} of {backbone.length} blocks"
        " has no place for it: choose its own file, or another backbone.length"
      )
  note = f"weights of {path}"
  present, task = file[POSITIONS], params["block1"]["positions"]
  if present.shape != task.shape:
    note += f"; positions interpolated, {side(present)}² to {side(task)}²"
  return Pretrained(params, note + no_head, fingerprint(file))


def digest(path: str) -> str:
  """Computes the digest of a checkpoint file.

  Raises:
    UserError: the file cannot be read.
  """
  return fingerprint(load(path, f"backbone.pretrained={path}"))


def fingerprint(file: Mapping[str, np.ndarray]) -> str:
  """Hashes keys, dtypes, shapes and bytes of tensors to a hexadecimal digest.

  The digest depends neither on the order of the tensors in the file nor on its
  compression.
  """
  hashed = hashlib.blake2b(digest_size=16)
  for key, x in sorted(file.items()):
    hashed.update(repr((key, str(x.dtype), x.shape)).encode())
    hashed.update(x.tobytes())
  return hashed.hexdigest()


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
  """Forms the key of a parameter in the file.

  Args:
    name: name of the block, or "head".
    number: the block's number, counted from 0.
    at: the parameter's path in the block, a key path of jax.
  """
  path = jax.tree_util.keystr(at, simple=True, separator="/")
  path = f"head/{path}" if name == "head" else path
  ours = next(o for o in TENSORS if path == o or path.startswith(f"{o}/"))
  return TENSORS[ours].format(number) + path.removeprefix(ours)


def take(
  file: Mapping[str, np.ndarray], key: str, shape: tuple[int, ...], where: str
) -> np.ndarray:
  """Returns a tensor of the file as float32, after checking its shape.

  Position embeddings are resized to `shape`. Error messages begin with `where`.
  """
  if key not in file:
    raise UserError(
      f"{where} has no tensor {key}, here {shape}: choose a file in the form of"
      " google-research/vision_transformer, or a smaller backbone.length"
    )
  given = file[key]
  if given.dtype.kind != "f":
    raise UserError(f"{where}: {key} is of {given.dtype}: save it as float32")
  with np.errstate(over="ignore"):
    finite = np.isfinite(given.astype(np.float32)).all()
  if not finite:
    raise UserError(
      f"{where}: {key} has numbers that are not finite in float32: download it"
      " again, or choose another file"
    )
  fits = resize(given, shape[1]) if key == POSITIONS else given
  if fits.shape != shape:
    raise UserError(
      f"{where}: {key} is {given.shape} there and {shape} here: choose the"
      " file of this backbone, width, patch and number of channels"
    )
  return fits.astype(np.float32)


def without_head(file: Mapping[str, np.ndarray], classes: int) -> str:
  """Gives the reason why the head of a file is not used; "" if it is used."""
  if "head/kernel" not in file:
    return "; no head in it"
  if any(key.startswith("pre_logits/") for key in file):
    return "; its head left out: there it follows a further layer (pre_logits)"
  theirs = file["head/kernel"].shape
  if len(theirs) == 2 and theirs[1] != classes:
    return f"; its head left out: {theirs[1]} classes there, {classes} here"
  return ""


def side(positions: np.ndarray) -> int:
  """Returns floor(sqrt(n)), the grid's edge, for positions [1, 1 + n, D]."""
  return math.isqrt(positions.shape[1] - 1)


def resize(positions: np.ndarray, count: int) -> np.ndarray:
  """Interpolates position embeddings for another grid of patches.

  The interpolation is bilinear with fixed corners, as in the reference
  implementation (scipy.ndimage.zoom, order 1). The class token's embedding is
  kept. Embeddings [1, 1 + n * n, D] become [1, count, D], where count is
  1 + m * m for a new grid of m x m. Embeddings are returned unchanged if their
  number is `count` already, or if their grid is not square.
  """
  if positions.ndim != 3 or positions.shape[0] != 1:
    return positions
  if positions.shape[1] in (0, 1, count):
    return positions
  old, new = side(positions), math.isqrt(count - 1)
  if old**2 + 1 != positions.shape[1]:
    return positions
  at = np.linspace(0, old - 1, new)
  rows = np.stack(
    [np.interp(at, np.arange(old), unit) for unit in np.eye(old)], axis=1
  )
  first, rest = positions[:, :1], positions[0, 1:].reshape(old, old, -1)
  rest = np.einsum("ih,jw,hwd->ijd", rows, rows, rest)
  return np.concatenate([first, rest.reshape(1, new * new, -1)], axis=1)
