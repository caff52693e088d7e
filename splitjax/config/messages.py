"""Config groups for the messages across the cut: their form and noise."""

import dataclasses
from typing import Annotated, Literal

from splitjax.fields import NOT_NEGATIVE, POSITIVE, Bounds, Effect
from splitjax.wire.channel import Parameters
from splitjax.wire.forms import Form


@dataclasses.dataclass(frozen=True)
class Rows:
  """The form of a message that has one row of numbers per sample.

  Attributes:
    form: float32, float16 or bfloat16: rounded to nearest. int8: 255 levels and
      a scale, rounded up or down at random, so that the mean is exact. topk:
      the largest numbers and their places, 0 elsewhere. random: numbers at
      random places, scaled by 1 / share so that the mean is exact; both sides
      draw the places from a shared seed, which costs no bytes.
      None: the method's form: 16 bits for HARMONY's features, else float32.
    share: share of a row's numbers that topk and random send, as float32.
    scale: int8's scale: a float32 for each sample, or one for a message.
  """

  form: Form | None = None
  share: Annotated[float, Bounds(above=0, at_most=1)] = 0.1
  scale: Literal["sample", "tensor"] = "sample"


@dataclasses.dataclass(frozen=True)
class WireConfig:
  """Forms of messages, which decide their bytes and their rounding errors.

  Attributes:
    features: form of activations sent up (`up/features`).
    gradients: form of gradients of single samples (`down/feature_gradient`,
      `up/embedding_gradient`).
    parameters: form of blocks that clients and server exchange.
  """

  features: Rows = Rows()
  gradients: Rows = Rows()
  parameters: Parameters = Parameters()


@dataclasses.dataclass(frozen=True)
class Noise:
  """The Gaussian mechanism on a message's rows, before its form applies.

  Attributes:
    clip: the largest L2 norm of a sample's row as it is sent; a gradient row
      belongs to the mean loss, so it is already divided by the batch size.
      None: no clipping.
    noise: standard deviation of the noise on each number, in multiples of clip;
      0: none.
  """

  clip: Annotated[float | None, POSITIVE] = None
  noise: Annotated[float, NOT_NEGATIVE] = 0.0


@dataclasses.dataclass(frozen=True)
class Privacy:
  """Noise on messages, and its account; docs/privacy.md says what it covers.

  Attributes:
    features: noise on the messages of `wire.features`.
    gradients: noise on the messages of `wire.gradients`.
    delta: delta of the epsilon in the report; None: no account. The account
      needs the package dp-accounting.
    amplified: if true, the account assumes that each step draws its batch anew,
      without replacement; in fact each epoch is a permutation, for which no
      such bound is proven.
  """

  features: Noise = Noise()
  gradients: Noise = Noise()
  delta: Annotated[float | None, Bounds(above=0, below=1), Effect.NUMERICS] = (
    1e-5
  )
  amplified: Annotated[bool, Effect.NUMERICS] = False

  def noisy(self) -> tuple[str, ...]:
    """Lists the channels with noise."""
    return tuple(kind for kind in CHANNELS if getattr(self, kind).noise > 0)

  @property
  def accounted(self) -> bool:
    """True if there is noise to account for."""
    return bool(self.noisy()) and self.delta is not None


CHANNELS = ("features", "gradients")
"""The channels; `WireConfig` and `Privacy` have one field for each."""
