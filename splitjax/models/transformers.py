"""Transformers: ViT-S/16 (HARMONY), ViT-B/16 (SuperSFL), a small one for texts.

A cut of depth d follows transformer block d. Block 1 holds the embedding. The
last block holds the final norm; its output [B, D] is the normalised class
token. Exit: layer norm and dense on that token.

Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021, equations 1-4;
ViT-S/16 is that of Steiner et al., How to train your ViT?, TMLR 2022.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from splitjax.models.layers import (
  BARE,
  Dense,
  Depths,
  Edge,
  Length,
  Style,
  Width,
)
from splitjax.models.network import Backbone, Block
from splitjax.models.pretrained import read
from splitjax.types import UserError

normal = nn.initializers.truncated_normal(0.02)
dense = functools.partial(Dense, kernel_init=normal)


def _layer_norm() -> nn.LayerNorm:
  """Makes a layer norm in the default float, eps 1e-6."""
  dtype = Style().array_dtype
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
  """Multi-head attention: softmax(q k' / sqrt(D / heads)) v."""

  heads: int
  style: Style

  @nn.compact
  def __call__(self, queries: Array, x: Array) -> Array:
    """Maps queries [B, Q, D] and all tokens [B, T, D] to [B, Q, D]."""
    dim = x.shape[-1]
    split = functools.partial(
      dense, (self.heads, dim // self.heads), style=self.style
    )
    q = split(name="query")(queries)
    k = split(name="key")(x)
    v = split(name="value")(x)
    score = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(float)
    share = nn.softmax(score / q.shape[-1] ** 0.5)
    share = share.astype(self.style.array_dtype)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", share, v)
    return dense(dim, axes=2, style=self.style, name="out")(mixed)


def transform(
  x: Array, heads: int, style: Style, keep: int | None = None
) -> Array:
  """Applies a pre-norm transformer block, inside a module.

  It computes x + attention(norm(x)), then x + mlp(norm(x)). The MLP is four
  times as wide as x and has an exact GELU, as in the paper; the public code
  approximates it by tanh. The sums are in the default float. Of the tokens
  [B, T, D] the first `keep` are updated and returned; None: all.
  """
  dim = x.shape[-1]
  h = _layer_norm()(x)
  x = x[:, :keep] + Attention(heads, style)(h[:, :keep], h)
  h = dense(4 * dim, style=style)(_layer_norm()(x))
  h = nn.gelu(h, approximate=False)
  return x + dense(dim, style=style)(h)


class Transformer(nn.Module):
  """A transformer block after the first.

  Behind the last, which has the final norm, only the class token is used.
  """

  heads: int
  style: Style
  last: bool = False

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, T, D] to [B, T, D], the last to the embedding [B, D]."""
    del train, real
    x = transform(x, self.heads, self.style, keep=1 if self.last else None)
    return _layer_norm()(x[:, 0]) if self.last else x


class First(nn.Module):
  """The embedding of patches, followed by a transformer block.

  Images are resized to a square, bilinearly (anti-aliased where they shrink).
  Each patch becomes one token; the class token comes before these tokens.
  """

  dim: int
  heads: int
  resolution: int
  patch: int
  style: Style

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
    dtype = self.style.array_dtype
    flat = kernel.reshape(-1, self.dim).astype(dtype)
    x = place(self, (x.astype(dtype) @ flat).astype(float) + bias)
    return transform(x, self.heads, self.style)


class FirstOfText(nn.Module):
  """The embeddings of tokens and positions, followed by a transformer block."""

  vocabulary: int
  dim: int
  heads: int
  style: Style

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps ids [B, T] int32 to [B, 1 + T, D]; the class token comes first."""
    del train, real
    table = self.param("tokens", normal, (self.vocabulary, self.dim))
    return transform(place(self, table[x]), self.heads, self.style)


def place(module: nn.Module, x: Array) -> Array:
  """Puts the class token before tokens [B, T, D], and adds the positions."""
  batch, tokens, dim = x.shape
  first = module.param("cls", nn.initializers.zeros, (1, 1, dim))
  positions = module.param("positions", normal, (1, 1 + tokens, dim))
  first = jnp.broadcast_to(first, (batch, 1, dim))
  return jnp.concatenate([first, x], axis=1) + positions


class TokenClassifier(nn.Module):
  """A dense layer on the class token, which only an exit normalises itself."""

  classes: int

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, T, D] (an exit) or the embedding [B, D] (the head) to [B, C]."""
    del train, real
    if x.ndim == 3:
      x = _layer_norm()(x[:, 0])
    return dense(self.classes)(x)


def encoder(
  name: str, shape: tuple[int, ...], classes: int, first: Block, *,
  depths: tuple[int, ...], length: int, heads: int, style: Style,
) -> Backbone:  # fmt: skip
  """Makes a network of `length` transformer blocks, of which `first` is one."""
  blocks: dict[str, Block] = {"block1": first}
  blocks |= {f"block{i}": Transformer(heads, style) for i in range(2, length)}
  blocks[f"block{length}"] = Transformer(heads, style, last=True)
  classifier = TokenClassifier(classes)
  return Backbone(
    name=name, shape=shape, classes=classes,
    blocks=blocks, exits=dict.fromkeys(depths, classifier), head=classifier,
  )  # fmt: skip


def vit(
  shape: tuple[int, int, int], classes: int, *, name: str, heads: int,
  depths: Depths = (2, 4, 6), width: Width = 1.0, length: Length = 12,
  resolution: Edge = 224, patch: Edge = 16, pretrained: str | None = None,
  style: Style = BARE,
) -> Backbone:  # fmt: skip
  """Makes a vision transformer of `length` blocks.

  vit_s16 on 100 classes has 21,704,164 parameters (HARMONY Table 1), whatever
  the size of the images, since they are resized to `resolution` on the device.
  Heads are 64 wide at width 1; `width` is a factor on that. `pretrained` is the
  path of a checkpoint to start from, see `pretrained.read`. "bfloat16" leaves
  parameters, norms, softmax, residual sums and logits in float32.
  """
  if resolution % patch:
    raise UserError(
      f"backbone.resolution={resolution} must be a multiple of"
      f" backbone.patch={patch}"
    )
  dim = heads * max(1, round(64 * width))
  first = First(dim, heads, resolution, patch, style)
  net = encoder(
    name, shape, classes, first,
    depths=depths, length=length, heads=heads, style=style,
  )  # fmt: skip
  if pretrained is None:
    return net
  return dataclasses.replace(net, start=read(pretrained, net))


vit_s16 = functools.partial(vit, name="vit_s16", heads=6)
vit_b16 = functools.partial(vit, name="vit_b16", heads=12)


def transformer_text(
  shape: tuple[int], classes: int, *, vocabulary: int = 0,
  depths: Depths = (1, 2), width: Edge = 64, heads: Edge = 4,
  length: Length = 4, style: Style = BARE,
) -> Backbone:  # fmt: skip
  """Makes a small transformer for texts, trained from scratch; `width` is D.

  The defaults give 64 V + 204,548 parameters for texts of 64 tokens and 4
  classes, without exits. No mask crosses the cut: padding is a token with an
  embedding of its own, like any other id. V comes from the data alone.
  """
  if not vocabulary:
    raise UserError(
      "backbone.name='transformer_text': takes token ids, integers [Z, T], of"
      " data that state their vocabulary; choose another backbone"
    )
  if width % heads:
    raise UserError(
      f"backbone.width={width} must be a multiple of backbone.heads={heads}"
    )
  first = FirstOfText(vocabulary, width, heads, style)
  return encoder(
    "transformer_text", shape, classes, first,
    depths=depths, length=length, heads=heads, style=style,
  )  # fmt: skip
