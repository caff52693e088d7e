"""The options that several networks share, and what they mean."""

import dataclasses
from typing import Any, Literal

import jax.numpy as jnp

from splitjax.models import conv as conv_ops
from splitjax.types import UserError

Dtype = Literal["float32", "bfloat16"]
Norm = Literal["batch", "group"]


@dataclasses.dataclass(frozen=True)
class How:
  """How a network computes: what all its blocks have in common.

  Attributes:
    conv: formulation of the convolutions, see `ops.conv2d`.
    dtype: of convolutions, dense layers and what blocks hand on. Parameters,
      statistics and classifiers are float32 all the same, and biases,
      normalisation and mean pools are computed in it.
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
  """Checks the numbers of blocks of a network's stages.

  Args:
    name: of the option.
    given: its value.
    usual: its default, which has as many entries.

  Raises:
    UserError: another number of stages, or one without a block.
  """
  if len(given) != len(usual) or min(given) < 1:
    raise UserError(
      f"backbone.{name}={given} must be {len(usual)} numbers of blocks, each at"
      f" least 1, such as {usual}"
    )


def check_size(name: str, shape: tuple[int, int, int], least: int) -> None:
  """Checks that an image survives the network's pools.

  Raises:
    UserError: it has fewer than `least` pixels along an edge.
  """
  if min(shape[:2]) < least:
    raise UserError(
      f"backbone.name={name!r}: needs images of at least {least}x{least},"
      f" these are {shape[0]}x{shape[1]}; choose another backbone"
    )
