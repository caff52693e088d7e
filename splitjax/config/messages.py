"""Config groups for the messages across the cut: their form and noise."""

import dataclasses
from typing import Annotated, Literal

from splitjax.fields import NOT_NEGATIVE, POSITIVE, Bounds, Effect
from splitjax.wire.forms import Form


@dataclasses.dataclass(frozen=True)
class Rows:
  """The form of a message that has one row of numbers per sample.

  Attributes:
    form: float32, float16 or bfloat16: numbers are rounded to nearest. int8:
      numbers are rounded at random to one of the two nearest of 255 levels, so
      that rounding is unbiased; the scale of the levels is sent too. topk: the
      largest numbers of a row are sent with their positions; the others arrive
      as 0. random: numbers at random positions are sent, scaled by 1 / share so
      that the message is unbiased; both sides draw the positions from a shared
      seed, which costs no bytes. None: float32, but HARMONY's features have the
      form of its option `form`, by default float16.
    share: share of a row's numbers that topk and random send. They send these
      numbers as float32.
    scale: whether int8 sends a float32 scale for each sample, or one for the
      whole message ("tensor").
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
  """

  features: Rows = Rows()
  gradients: Rows = Rows()


@dataclasses.dataclass(frozen=True)
class Noise:
  """The Gaussian mechanism, applied to a message's rows before `Rows.form`.

  Attributes:
    clip: the largest L2 norm that a sample's row may have when it is sent. A
      row of gradients is already divided by the batch size, because it is a
      gradient of the mean loss. None: no clipping.
    noise: standard deviation of the noise on each number, in multiples of clip;
      0: none.
  """

  clip: Annotated[float | None, POSITIVE] = None
  noise: Annotated[float, NOT_NEGATIVE] = 0.0


@dataclasses.dataclass(frozen=True)
class Privacy:
  """Noise on messages, and the privacy accounting for it (docs/privacy.md).

  Attributes:
    features: noise on the messages of `wire.features`.
    gradients: noise on the messages of `wire.gradients`.
    delta: delta of the epsilon in the report; None: no epsilon is computed.
      Computing it needs the package dp-accounting.
    amplified: if true, the accounting assumes that each step draws its batch
      anew, without replacement. In fact an epoch is a permutation of the
      samples, for which no such bound is proven.
  """

  features: Noise = Noise()
  gradients: Noise = Noise()
  delta: Annotated[float | None, Bounds(above=0, below=1), Effect.NUMERICS] = (
    1e-5
  )
  amplified: Annotated[bool, Effect.NUMERICS] = False

  def noisy(self) -> tuple[str, ...]:
    """Lists the channels that add noise."""
    return tuple(kind for kind in CHANNELS if getattr(self, kind).noise > 0)

  @property
  def accounted(self) -> bool:
    """True if there is noise, and a delta for which to compute epsilon."""
    return bool(self.noisy()) and self.delta is not None


CHANNELS = ("features", "gradients")
"""The channels; `WireConfig` and `Privacy` have one field for each."""
