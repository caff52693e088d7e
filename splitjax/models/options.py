"""The options that several networks share."""

import dataclasses
from typing import Annotated, Any, Literal

import jax.numpy as jnp

from splitjax.fields import Bounds
from splitjax.types import UserError

# Beyond these bounds array sizes overflow, or tracing takes too long to count
# the parameters.
Width = Annotated[float, Bounds(above=0, at_most=10**6)]
Edge = Annotated[int, Bounds(at_least=1, at_most=10**6)]
Length = Annotated[int, Bounds(at_least=2, at_most=1000)]
Counts = Annotated[tuple[int, ...], Bounds(at_least=1, at_most=250)]
Depths = Annotated[tuple[int, ...], Bounds(at_least=1)]

Dtype = Literal["float32", "bfloat16"]
Norm = Literal["batch", "group"]


@dataclasses.dataclass(frozen=True)
class How:
  """The options of computation that all blocks of a network share.

  Attributes:
    dtype: dtype of convolutions, dense layers and the outputs of blocks, see
      `array_dtype`. Parameters, statistics and classifiers have the default
      float, in which normalisation, mean pools and bias sums are computed.
    norm: see `layers.normalise`; None: no normalisation.
  """

  dtype: Dtype = "float32"
  norm: Norm | None = None


def array_dtype(dtype: Dtype) -> Any:
  """Maps an option to the dtype of arrays.

  "float32" is jax's default float: float64 under `jax.enable_x64`.
  """
  return jnp.result_type(float) if dtype == "float32" else dtype


def scaled(width: float, channels: int) -> int:
  """Returns width * channels, rounded, and at least 1."""
  return max(1, round(width * channels))


def check_counts(name: str, given: tuple[int, ...], usual: tuple) -> None:
  """Raises a UserError if `given` is not as long as `usual`."""
  if len(given) != len(usual):
    raise UserError(
      f"backbone.{name}={given} must be {len(usual)} numbers of blocks, such as"
      f" {usual}"
    )


def check_size(
  name: str, shape: tuple[int, int, int], least: int, remedy: str = ""
) -> None:
  """Raises a UserError if images are too small for a network's pools."""
  if min(shape[:2]) < least:
    raise UserError(
      f"backbone.name={name!r}: needs images of at least {least}x{least},"
      f" these are {shape[0]}x{shape[1]}; {remedy}choose another backbone"
    )
