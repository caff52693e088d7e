"""Vision transformers: ViT-S/16 (HARMONY) and ViT-B/16 (SuperSFL).

Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021; ViT-S/16 is that
of Steiner et al., How to train your ViT?, TMLR 2022.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from flax import linen as nn

from splitjax.models.backbones import Backbone
from splitjax.models.block import Block
from splitjax.models.layers import Dense
from splitjax.models.options import (
  Depths,
  Dtype,
  Edge,
  Length,
  Width,
  array_dtype,
)
from splitjax.models.pretrained import read
from splitjax.types import Array, UserError

normal = nn.initializers.truncated_normal(0.02)
dense = functools.partial(Dense, kernel_init=normal)


def layer_norm() -> nn.LayerNorm:
  """Makes a layer norm in the default float, eps 1e-6."""
  dtype = array_dtype("float32")
  return nn.LayerNorm(epsilon=1e-6, dtype=dtype, param_dtype=dtype)


def patches(x: Array, size: int) -> Array:
  """Cuts an image into patches: [B, H, W, c] -> [B, patches, size*size*c].

  Patches are listed row by row. Each patch [size, size, c] is flattened in the
  order of its axes, like the inputs of the embedding's kernel.
  """
  b, h, w, c = x.shape
  x = x.reshape(b, h // size, size, w // size, size, c)
  return x.swapaxes(2, 3).reshape(b, -1, size * size * c)


class Attention(nn.Module):
  """Multi-head attention: softmax(q k' / sqrt(D / heads)) v.

  Attributes:
    heads: number of heads.
    dtype: dtype of the products; the softmax has the default float.
  """

  heads: int
  dtype: Dtype

  @nn.compact
  def __call__(self, queries: Array, x: Array) -> Array:
    """Maps queries [B, Q, D] and all tokens [B, T, D] to [B, Q, D]."""
    dim, dtype = x.shape[-1], array_dtype(self.dtype)
    split = functools.partial(
      dense, (self.heads, dim // self.heads), dtype=self.dtype
    )
    q = split(name="query")(queries)
    k, v = split(name="key")(x), split(name="value")(x)
    score = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(float)
    share = nn.softmax(score / q.shape[-1] ** 0.5).astype(dtype)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", share, v)
    return dense(dim, axes=2, dtype=self.dtype, name="out")(mixed)


def transform(
  x: Array, heads: int, dtype: Dtype, keep: int | None = None
) -> Array:
  """Applies a pre-norm transformer block, inside a module.

  It computes x + attention(norm(x)), then x + mlp(norm(x)). The MLP is four
  times as wide as x and has an exact GELU. The sums are in the default float.

  Args:
    x: [B, T, D] tokens.
    heads: number of heads.
    dtype: dtype of the products.
    keep: how many tokens, from the first on, are updated; None: all.

  Returns:
    The updated tokens, [B, T, D] or [B, keep, D].
  """
  dim, h = x.shape[-1], layer_norm()(x)
  x = x[:, :keep] + Attention(heads, dtype)(h[:, :keep], h)
  h = dense(4 * dim, dtype=dtype)(layer_norm()(x))
  h = nn.gelu(h, approximate=False)
  return x + dense(dim, dtype=dtype)(h)


class Transformer(nn.Module):
  """A transformer block between the first and the last.

  Attributes:
    heads: number of heads.
    dtype: dtype of the products.
  """

  heads: int
  dtype: Dtype

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, T, D] to [B, T, D]."""
    del train, real
    return transform(x, self.heads, self.dtype)


class First(nn.Module):
  """The embedding of patches, followed by a transformer block.

  Images are resized to a square, bilinearly (anti-aliased where they shrink).
  Each patch becomes one token; the class token comes before these tokens.

  Attributes:
    dim: D.
    heads: number of heads.
    resolution: edge length after resizing.
    patch: edge length of a patch.
    dtype: dtype of the products.
  """

  dim: int
  heads: int
  resolution: int
  patch: int
  dtype: Dtype

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, H, W, c] to [B, T, D], T = 1 + patches."""
    del train, real
    b, *_, c = x.shape
    square = (b, self.resolution, self.resolution, c)
    x = patches(jax.image.resize(x, square, "bilinear"), self.patch)
    # Parameters have the shapes of the public checkpoints.
    kernel = self.param("kernel", normal, (self.patch, self.patch, c, self.dim))
    bias = self.param("bias", nn.initializers.zeros, (self.dim,))
    first = self.param("cls", nn.initializers.zeros, (1, 1, self.dim))
    place = self.param("positions", normal, (1, 1 + x.shape[1], self.dim))
    dtype = array_dtype(self.dtype)
    flat = kernel.reshape(-1, self.dim).astype(dtype)
    x = (x.astype(dtype) @ flat).astype(float) + bias
    first = jnp.broadcast_to(first, (b, 1, self.dim))
    x = jnp.concatenate([first, x], axis=1) + place
    return transform(x, self.heads, self.dtype)


class Last(nn.Module):
  """A transformer block and the final norm, computed for the class token only.

  No later layer uses other tokens, so the block does not update them.

  Attributes:
    heads: number of heads.
    dtype: dtype of the products.
  """

  heads: int
  dtype: Dtype

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, T, D] to the embedding [B, D]."""
    del train, real
    x = transform(x, self.heads, self.dtype, keep=1)
    return layer_norm()(x[:, 0])


class TokenClassifier(nn.Module):
  """A dense layer on the normalised class token.

  As an exit it normalises the class token itself. As the head it takes the
  embedding [B, D], which is normalised already.

  Attributes:
    classes: C.
  """

  classes: int

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, T, D] (an exit) or [B, D] (the head) to [B, C]."""
    del train, real
    if x.ndim == 3:
      x = layer_norm()(x[:, 0])
    return dense(self.classes)(x)


def vit(
  shape: tuple[int, int, int],
  classes: int,
  *,
  name: str,
  heads: int,
  depths: Depths = (2, 4, 6),
  width: Width = 1.0,
  length: Length = 12,
  resolution: Edge = 224,
  patch: Edge = 16,
  dtype: Dtype = "float32",
  pretrained: str | None = None,
) -> Backbone:
  """Makes a vision transformer; a cut of depth d follows transformer block d.

  Block 1 holds the embedding. The last block holds the final norm; its output
  [B, D] is the normalised class token. Exit: layer norm, dense on that token.
  vit_s16 on 100 classes has 21,704,164 parameters (HARMONY Table 1), whatever
  the size of the images, since they are resized to `resolution` on the device.

  Args:
    shape: (H, W, c) of one image.
    classes: C.
    name: key of BACKBONES.
    heads: number of heads, each 64 wide at width 1; D is their total width.
    depths: cut depths in use, 1 to length - 1.
    width: factor on D; the product is rounded to a multiple of the heads.
    length: L, the number of transformer blocks.
    resolution: edge length that images are resized to, a multiple of patch.
    patch: edge length of a patch.
    dtype: dtype of matrix products; "bfloat16" leaves parameters, norms,
      softmax, residual sums and logits in float32.
    pretrained: path of a checkpoint to start from, see `pretrained.read`.

  Raises:
    UserError: an impossible size, or a file that does not fit.

  References:
    Dosovitskiy et al., ICLR 2021, equations 1-4. Their code approximates the
    GELU by tanh; here it is exact, as the paper has it.
  """
  if resolution % patch:
    raise UserError(
      f"backbone.resolution={resolution} must be a multiple of"
      f" backbone.patch={patch}"
    )
  dim = heads * max(1, round(64 * width))
  blocks: dict[str, Block] = {
    f"block{i}": Transformer(heads, dtype) for i in range(1, length + 1)
  }
  blocks["block1"] = First(dim, heads, resolution, patch, dtype)
  blocks[f"block{length}"] = Last(heads, dtype)
  backbone = Backbone(
    name=name,
    shape=shape,
    classes=classes,
    blocks=blocks,
    exits={d: TokenClassifier(classes) for d in depths},
    head=TokenClassifier(classes),
  )
  if pretrained is None:
    return backbone
  return dataclasses.replace(backbone, start=read(pretrained, backbone))


vit_s16 = functools.partial(vit, name="vit_s16", heads=6)
vit_b16 = functools.partial(vit, name="vit_b16", heads=12)
