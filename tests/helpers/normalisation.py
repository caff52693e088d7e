"""`normalise` as a module of its own."""

from flax import linen as nn

from splitjax.models import Style, normalise


class Alone(nn.Module):
  """Normalisation and nothing else."""

  style: Style

  @nn.compact
  def __call__(self, x, train, real):
    return normalise(x, train, real, self.style)
