"""The classifier of exits and heads, and networks built with it."""

from typing import Literal

from flax import linen as nn

from splitjax.models import convolution
from splitjax.models.backbones import Backbone
from splitjax.models.block import Block
from splitjax.models.layers import Dense, flatten
from splitjax.types import Array

ExitPool = Literal["mean", "max"]
"""Kind of an exit's pool; the papers name its size, not its kind."""


class Classifier(nn.Module):
  """An optional adaptive pool, a flatten and a dense layer, which gives logits.

  Attributes:
    classes: C.
    pool: edge length to which images are pooled; 0 for no pool.
    kind: kind of the pool.
    dropout: dropout rate of the dense layer's inputs.
  """

  classes: int
  pool: int = 0
  kind: ExitPool = "mean"
  dropout: float = 0.0

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, ...] to logits [B, C], in the default float."""
    del real
    x = x.astype(float)
    if self.pool and x.ndim == 4:
      mean = self.kind == "mean"
      pooled = (
        convolution.adaptive_mean_pool
        if mean
        else convolution.adaptive_max_pool
      )
      x = pooled(x, self.pool)
    x = nn.Dropout(self.dropout, deterministic=not train)(flatten(x))
    return Dense(self.classes)(x)


def network(
  name: str,
  shape: tuple[int, ...],
  blocks: dict[str, Block],
  classes: int,
  *,
  depths: tuple[int, ...],
  pool: int,
  exit_pool: ExitPool = "mean",
  dropout: float = 0.0,
) -> Backbone:
  """Makes a network from blocks; its head and exits are of type `Classifier`.

  An exit is an adaptive pool, a flatten and a dense layer; after a block that
  returns [B, D] it has no pool. The head is a dense layer alone: its input is
  the embedding [B, D], which methods send and align.

  Args:
    name: key of BACKBONES.
    shape: shape of one input.
    blocks: name -> block; the last returns [B, D].
    classes: C.
    depths: cut depths in use.
    pool: edge length to which exits pool; 0 for no pool.
    exit_pool: kind of the exits' pools.
    dropout: dropout rate of the inputs of head and exits.
  """
  exits = {
    depth: Classifier(classes, pool, exit_pool, dropout) for depth in depths
  }
  return Backbone(
    name=name,
    shape=shape,
    classes=classes,
    blocks=blocks,
    exits=exits,
    head=Classifier(classes, dropout=dropout),
  )
