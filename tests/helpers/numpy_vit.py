"""A vision transformer in NumPy, float64, straight from a checkpoint's arrays.

Written from the paper (Dosovitskiy et al., ICLR 2021, equations 1-4) and the
names of google-research/vision_transformer; nothing of splitjax is used.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import erf


class Sizes(NamedTuple):
  """A small vision transformer: the widths of its arrays."""

  heads: int = 6
  dim: int = 12
  length: int = 4
  grid: int = 2
  patch: int = 4
  channels: int = 3
  classes: int = 5


def draw(seed: int = 0, **given) -> dict[str, np.ndarray]:
  """A checkpoint in the public form, of given Sizes; no entry is 0 or 1."""
  rng = np.random.default_rng(seed)
  heads, dim, length, grid, patch, channels, classes = Sizes(**given)
  split, wide = (dim, heads, dim // heads), 4 * dim
  shapes = {
    "cls": (1, 1, dim),
    "embedding/kernel": (patch, patch, channels, dim),
    "embedding/bias": (dim,),
    "Transformer/posembed_input/pos_embedding": (1, 1 + grid * grid, dim),
    "Transformer/encoder_norm/scale": (dim,),
    "Transformer/encoder_norm/bias": (dim,),
    "head/kernel": (dim, classes),
    "head/bias": (classes,),
  }
  for i in range(length):
    at = f"Transformer/encoderblock_{i}"
    for norm in ("LayerNorm_0", "LayerNorm_2"):
      shapes[f"{at}/{norm}/scale"] = shapes[f"{at}/{norm}/bias"] = (dim,)
    for name in ("query", "key", "value"):
      shapes[f"{at}/MultiHeadDotProductAttention_1/{name}/kernel"] = split
      shapes[f"{at}/MultiHeadDotProductAttention_1/{name}/bias"] = split[1:]
    out = f"{at}/MultiHeadDotProductAttention_1/out"
    shapes[f"{out}/kernel"], shapes[f"{out}/bias"] = (*split[1:], dim), (dim,)
    for name, sides in (("Dense_0", (dim, wide)), ("Dense_1", (wide, dim))):
      shapes[f"{at}/MlpBlock_3/{name}/kernel"] = sides
      shapes[f"{at}/MlpBlock_3/{name}/bias"] = sides[1:]
  return {
    key: (key.endswith("scale") + 0.3 * rng.normal(size=shape)).astype("f4")
    for key, shape in shapes.items()
  }


def norm(x, file, at):
  """Layer norm with eps 1e-6."""
  centred = x - x.mean(-1, keepdims=True)
  x = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
  return x * file[f"{at}/scale"] + file[f"{at}/bias"]


def attention(x, file, at):
  """Multi-head self-attention, head by head and image by image."""
  out = np.zeros_like(x)
  q, k, v = (
    np.einsum("btd,dhe->hbte", x, file[f"{at}/{n}/kernel"].astype("f8"))
    + file[f"{at}/{n}/bias"][:, None, None]
    for n in ("query", "key", "value")
  )
  for head, kernel in enumerate(file[f"{at}/out/kernel"]):
    for image in range(len(x)):
      score = q[head, image] @ k[head, image].T / np.sqrt(q.shape[-1])
      share = np.exp(score) / np.exp(score).sum(-1, keepdims=True)
      out[image] += share @ v[head, image] @ kernel
  return out + file[f"{at}/out/bias"]


def block(x, file, number):
  """Transformer block `number`, from 0: [B, T, D] -> [B, T, D]."""
  at = f"Transformer/encoderblock_{number}"
  name = f"{at}/MultiHeadDotProductAttention_1"
  x = x + attention(norm(x, file, f"{at}/LayerNorm_0"), file, name)
  h = norm(x, file, f"{at}/LayerNorm_2")
  h = h @ file[f"{at}/MlpBlock_3/Dense_0/kernel"]
  h = h + file[f"{at}/MlpBlock_3/Dense_0/bias"]
  h = h * (1 + erf(h / np.sqrt(2))) / 2
  h = h @ file[f"{at}/MlpBlock_3/Dense_1/kernel"]
  return x + h + file[f"{at}/MlpBlock_3/Dense_1/bias"]


def enlarge(x, size):
  """Bilinear, pixels' centres at half numbers: [B, h, w, c] -> [B, s, s, c]."""
  for axis in (1, 2):
    n = x.shape[axis]
    at = (np.arange(size) + 0.5) * n / size - 0.5
    x = np.apply_along_axis(
      lambda line, at=at, n=n: np.interp(at, np.arange(n), line), axis, x
    )
  return x


def embed(image, file):
  """Tokens [B, T, D] of images that have the resolution already."""
  kernel = file["embedding/kernel"]
  p, tokens = len(kernel), []
  for i in range(0, image.shape[1], p):
    for j in range(0, image.shape[2], p):
      cut = image[:, i : i + p, j : j + p]
      tokens.append(np.einsum("bijc,ijcd->bd", cut, kernel.astype("f8")))
  x = np.stack(tokens, 1) + file["embedding/bias"]
  first = np.broadcast_to(file["cls"], (len(x), 1, x.shape[-1]))
  x = np.concatenate([first, x], 1)
  return x + file["Transformer/posembed_input/pos_embedding"]


def forward(image, file):
  """Features behind every block, and the logits.

  Args:
    image: [B, H, W, c] of the resolution.
    file: a checkpoint in the public form.

  Returns:
    A list of [B, T, D], the last [B, D] normalised, and [B, C].
  """
  out, x = [], embed(np.asarray(image, np.float64), file)
  while f"Transformer/encoderblock_{len(out)}/LayerNorm_0/scale" in file:
    x = block(x, file, len(out))
    out.append(x)
  out[-1] = norm(x[:, 0], file, "Transformer/encoder_norm")
  return out, out[-1] @ file["head/kernel"] + file["head/bias"]
