"""The classifier of exits and heads, and networks built with it."""

from flax import linen as nn

from splitjax.models import pooling
from splitjax.models.backbones import Backbone
from splitjax.models.block import Block
from splitjax.models.layers import Dense, flatten
from splitjax.types import Array


class Classifier(nn.Module):
  """An optional mean pool, a flatten and a dense layer, which gives logits.

  Attributes:
    classes: C.
    pool: edge length to which images are pooled; 0 for no pool.
  """

  classes: int
  pool: int = 0

  @nn.compact
  def __call__(self, x: Array, train: bool, real: Array) -> Array:
    """Maps [B, ...] to logits [B, C], in the default float."""
    del train, real
    x = x.astype(float)
    if self.pool and x.ndim == 4:
      x = pooling.adaptive_mean_pool(x, self.pool)
    return Dense(self.classes)(flatten(x))


def network(
  name: str,
  shape: tuple[int, ...],
  blocks: dict[str, Block],
  classes: int,
  *,
  depths: tuple[int, ...],
  pool: int,
) -> Backbone:
  """Makes a network from blocks; its head and exits are of type `Classifier`.

  An exit is a mean pool, a flatten and a dense layer; after a block that
  returns [B, D] it has no pool. The head is a dense layer alone: its input is
  the embedding [B, D], which methods send and align.

  Args:
    name: key of BACKBONES.
    shape: shape of one input.
    blocks: name -> block; the last returns [B, D].
    classes: C.
    depths: cut depths in use.
    pool: edge length to which exits pool; 0 for no pool.
  """
  return Backbone(
    name=name,
    shape=shape,
    classes=classes,
    blocks=blocks,
    exits={depth: Classifier(classes, pool) for depth in depths},
    head=Classifier(classes),
  )
