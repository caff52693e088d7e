"""The groups of a config on what crosses the cut: its form, and noise."""

import dataclasses
from typing import Annotated, Literal

from splitjax.fields import NOT_NEGATIVE, POSITIVE, Bounds, Effect
from splitjax.wire.forms import Form


@dataclasses.dataclass(frozen=True)
class Rows:
  """How one row of numbers for each sample travels.

  Attributes:
    form: float32, float16 or bfloat16: rounded to nearest. int8: 255 levels and
      a scale, rounded up or down at random, so that the mean is exact. topk:
      the largest numbers and their places, 0 elsewhere. random: numbers at
      random places, scaled by 1 / share so that the mean is exact; both sides
      draw the places from a shared seed, which is not priced.
      None: the method's own, 16 bits for HARMONY's features and else float32.
    share: of a row's numbers that topk and random send, as float32.
    scale: of int8, a float32 for each sample or one for a message.
  """

  form: Form | None = None
  share: Annotated[float, Bounds(above=0, at_most=1)] = 0.1
  scale: Literal["sample", "tensor"] = "sample"


@dataclasses.dataclass(frozen=True)
class Parameters:
  """How the parameters travel that clients and server exchange.

  Attributes:
    form: float32: as they are. float16, bfloat16, int8: both ways as rounded
      differences to what both sides know (`methods.deltas`); int8 has a scale
      for each tensor. Statistics of batch normalisation stay float32.
    feedback: error feedback: a client adds what rounding left out of an upload
      to its next one, across rounds.
  """

  form: Literal["float32", "float16", "bfloat16", "int8"] = "float32"
  feedback: bool = False


@dataclasses.dataclass(frozen=True)
class Wire:
  """The form of messages; the ledger prices it, and results have its errors.

  Attributes:
    features: of activations that go up (`up/features`).
    gradients: of gradients of single samples (`down/feature_gradient`,
      `up/embedding_gradient`).
    parameters: of blocks that clients and server exchange.
  """

  features: Rows = Rows()
  gradients: Rows = Rows()
  parameters: Parameters = Parameters()


@dataclasses.dataclass(frozen=True)
class Noise:
  """The Gaussian mechanism on the rows of a message, before its form.

  Attributes:
    clip: the largest L2 norm of a sample's row, as it is sent: a gradient row
      is of the mean loss, so divided by the samples of its batch. None: none.
    noise: standard deviation of what is added to each number, in multiples of
      clip; 0: none.
  """

  clip: Annotated[float | None, POSITIVE] = None
  noise: Annotated[float, NOT_NEGATIVE] = 0.0


@dataclasses.dataclass(frozen=True)
class Privacy:
  """Noise on messages, and its account; docs/privacy.md says what it covers.

  Attributes:
    features: on what `wire.features` are.
    gradients: on what `wire.gradients` are.
    delta: of the epsilon in the report; None: no account, which needs the
      package dp-accounting.
    amplified: whether the account counts on batches that are drawn anew in each
      step, without replacement; here each epoch is a permutation, for which no
      such bound is proven.
  """

  features: Noise = Noise()
  gradients: Noise = Noise()
  delta: Annotated[float | None, Bounds(above=0, below=1), Effect.NUMERICS] = (
    1e-5
  )
  amplified: Annotated[bool, Effect.NUMERICS] = False

  def noisy(self) -> tuple[str, ...]:
    """The channels with noise."""
    return tuple(kind for kind in CHANNELS if getattr(self, kind).noise > 0)

  @property
  def accounted(self) -> bool:
    """Whether there is noise to account for."""
    return bool(self.noisy()) and self.delta is not None


CHANNELS = ("features", "gradients")
"""The channels, which `Wire` and `Privacy` have a field for each."""
