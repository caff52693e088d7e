"""`normalise` as a module of its own."""

from flax import linen as nn

from splitjax.models import How, normalise


class Alone(nn.Module):
  """Normalisation and nothing else."""

  how: How

  @nn.compact
  def __call__(self, x, train, real):
    return normalise(x, train, real, self.how)
