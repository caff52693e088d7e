"""The options that several networks share."""

import dataclasses
from typing import Any, Literal

import jax.numpy as jnp

from splitjax.models import conv as conv_ops
from splitjax.types import UserError

Dtype = Literal["float32", "bfloat16"]
Norm = Literal["batch", "group"]


@dataclasses.dataclass(frozen=True)
class How:
  """How a network computes: the options of all its blocks.

  Attributes:
    conv: formulation of the convolutions, see `conv.conv2d`.
    dtype: of convolutions, dense layers and the outputs of blocks, see
      `array_dtype`. Parameters, statistics and classifiers have the default
      float, in which biases, normalisation and mean pools are computed.
    norm: see `layers.normalise`; None: no normalisation.
  """

  conv: conv_ops.Conv = "auto"
  dtype: Dtype = "float32"
  norm: Norm | None = None


def array_dtype(dtype: Dtype) -> Any:
  """The dtype of arrays that an option names.

  "float32" is jax's default float: float64 under `jax.enable_x64`.
  """
  return jnp.result_type(float) if dtype == "float32" else dtype


def scaled(width: float, channels: int) -> int:
  """A number of channels times the width, rounded, at least 1."""
  return max(1, round(width * channels))


def check_counts(name: str, given: tuple[int, ...], usual: tuple) -> None:
  """Checks the number of blocks in each stage of a network.

  Args:
    name: of the option.
    given: its value.
    usual: its default, which has one entry per stage.

  Raises:
    UserError: a wrong number of stages, or a stage without a block.
  """
  if len(given) != len(usual) or min(given) < 1:
    raise UserError(
      f"backbone.{name}={given} must be {len(usual)} numbers of blocks, each at"
      f" least 1, such as {usual}"
    )


def check_size(name: str, shape: tuple[int, int, int], least: int) -> None:
  """Checks that images are large enough for the network's pools.

  Raises:
    UserError: an edge has fewer than `least` pixels.
  """
  if min(shape[:2]) < least:
    raise UserError(
      f"backbone.name={name!r}: needs images of at least {least}x{least},"
      f" these are {shape[0]}x{shape[1]}; choose another backbone"
    )
