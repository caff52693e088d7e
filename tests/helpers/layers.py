"""Layers that only tests have: normalisation alone, dropout behind a layer."""

from flax import linen as nn

from splitjax.models import Style, normalise


class Alone(nn.Module):
  """Normalisation and nothing else."""

  style: Style

  @nn.compact
  def __call__(self, x, train, real):
    return normalise(x, train, real, self.style)


class Dropped(nn.Module):
  """Dropout of what a layer gives; its attribute says that it draws."""

  layer: nn.Module
  dropout: float = 0.5

  @nn.compact
  def __call__(self, x, train, real):
    x = self.layer(x, train, real)
    return nn.Dropout(self.dropout, deterministic=not train)(x)
