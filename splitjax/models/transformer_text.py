"""A small transformer for texts, trained from scratch."""

import jax.numpy as jnp
from flax import linen as nn

from splitjax.models.backbones import Backbone
from splitjax.models.block import Block
from splitjax.models.options import Depths, Dtype, Edge, Length
from splitjax.models.vit import (
  Last,
  TokenClassifier,
  Transformer,
  normal,
  transform,
)
from splitjax.types import Array, UserError


class FirstOfText(nn.Module):
  """The embeddings of tokens and positions, followed by a transformer block.

  Attributes:
    vocabulary: V.
    dim: D.
    heads: number of heads.
    dtype: dtype of the products.
  """

  vocabulary: int
  dim: int
  heads: int
  dtype: Dtype

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps ids [B, T] int32 to [B, 1 + T, D]; the class token comes first."""
    del train, real
    table = self.param("tokens", normal, (self.vocabulary, self.dim))
    first = self.param("cls", nn.initializers.zeros, (1, 1, self.dim))
    place = self.param("positions", normal, (1, 1 + x.shape[1], self.dim))
    first = jnp.broadcast_to(first, (x.shape[0], 1, self.dim))
    x = jnp.concatenate([first, table[x]], axis=1) + place
    return transform(x, self.heads, self.dtype)


def transformer_text(
  shape: tuple[int],
  classes: int,
  *,
  vocabulary: int = 0,
  depths: Depths = (1, 2),
  width: Edge = 64,
  heads: Edge = 4,
  length: Length = 4,
  dtype: Dtype = "float32",
) -> Backbone:
  """Makes a transformer encoder; a cut of depth d follows block d.

  Its blocks are those of `vit`: pre-norm, an MLP four times as wide, an exact
  GELU. Block 1 holds the embeddings of tokens and positions. The last block
  holds the final norm; its output [B, D] is the normalised class token. Exit:
  layer norm and dense on the class token. The defaults give 64 V + 204,548
  parameters for texts of 64 tokens and 4 classes, without exits.

  No mask crosses the cut: padding is a token with an embedding of its own, like
  any other id.

  Args:
    shape: (T,), tokens of one text.
    classes: C.
    vocabulary: V, taken from the data; a config does not set it.
    depths: cut depths in use, 1 to length - 1.
    width: D, a multiple of the heads.
    heads: number of heads.
    length: L, the number of transformer blocks.
    dtype: dtype of matrix products, see `vit.vit`.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["transformer_text"]((16,), 4, vocabulary=100)
    >>> net.names(), net.inputs(8).dtype.name
    (('block1', 'block2', 'block3', 'block4'), 'int32')

  Raises:
    UserError: the data are no token ids, or heads do not divide the width.

  References:
    Vaswani et al., Attention Is All You Need, NeurIPS 2017; Dosovitskiy et al.,
    ICLR 2021, for the pre-norm blocks and the class token.
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
  blocks: dict[str, Block] = {
    f"block{i}": Transformer(heads, dtype) for i in range(1, length + 1)
  }
  blocks["block1"] = FirstOfText(vocabulary, width, heads, dtype)
  blocks[f"block{length}"] = Last(heads, dtype)
  return Backbone(
    name="transformer_text",
    shape=shape,
    classes=classes,
    blocks=blocks,
    exits={d: TokenClassifier(classes) for d in depths},
    head=TokenClassifier(classes),
    vocabulary=vocabulary,
  )
