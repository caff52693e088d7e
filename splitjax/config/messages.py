"""The groups of a config on what crosses the cut: forms of its numbers."""

import dataclasses
from typing import Annotated, Literal

from splitjax.fields import Bounds
from splitjax.wire.forms import Form


@dataclasses.dataclass(frozen=True)
class Rows:
  """How one row of numbers for each sample travels.

  Attributes:
    form: float32, float16 or bfloat16: rounded to nearest. int8: 255 levels and
      a scale, rounded up or down at random, so that the mean is exact. topk:
      the largest numbers and their places, 0 elsewhere. random: random numbers,
      the same places of all samples of a message, scaled so that the mean is
      exact; both sides draw the places from a shared seed, which is not priced.
      None: the method's own, 16 bits for HARMONY's features and else float32.
    share: of a row's numbers that topk and random send, as float32.
    scale: of int8, a float32 for each sample or one for a message.
  """

  form: Form | None = None
  share: Annotated[float, Bounds(above=0, at_most=1)] = 0.1
  scale: Literal["sample", "tensor"] = "sample"


@dataclasses.dataclass(frozen=True)
class Wire:
  """The form of messages; the ledger prices it, and results have its errors.

  Attributes:
    features: of activations that go up (`up/features`).
    gradients: of gradients of single samples (`down/feature_gradient`,
      `up/embedding_gradient`).
  """

  features: Rows = Rows()
  gradients: Rows = Rows()
