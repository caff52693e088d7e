"""The choice of a convolution's formulation; `convolution` computes them.

"auto" takes "in_turn" on a CPU. Which is the fastest on an accelerator must be
measured: there, and with "measured" everywhere, each layer of a network takes
the formulation of the least time (`engine.tuning`). The choices are part of the
target of programs, and so of the keys of jax's caches.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

import jax

from splitjax.models import target
from splitjax.models.windows import Padding
from splitjax.types import Array

Conv = Literal["auto", "measured", "in_turn", "patches", "native"]

NAMES = ("in_turn", "patches", "native")
MEASURED = ("auto", "measured")
"""Values that let a layer take the formulation that was measured for it."""

VERSION = 1
"""Raised when a formulation changes: times of other versions are stale."""

_PLAIN = jax.make_user_context(False)

_HEARD: ContextVar[dict["Layer", int] | None] = ContextVar(
  "heard", default=None
)


class Layer(NamedTuple):
  """A convolution of images, without their number.

  Attributes:
    image: (H, W, c) of its input.
    kernel: (k, k, c, f), or (k, k, 1, c) of a depthwise one.
    stride: the step of the windows.
    padding: see `convolution.conv2d`.
    dtype: name of the dtype of image and kernel.
    depthwise: whether every channel has its own filter.
  """

  image: tuple[int, ...]
  kernel: tuple[int, ...]
  stride: int
  padding: Padding
  dtype: str
  depthwise: bool = False

  @property
  def name(self) -> str:
    """The layer in words, which identify it."""
    k, _, _, f = self.kernel
    *size, c = self.image
    channels = f"each of {c} channels" if self.depthwise else f"{c} to {f}"
    edges = "x".join(map(str, size))
    said = f"{k}x{k}, {channels}, {edges}, stride {self.stride}"
    return f"{said}, {self.padding}, {self.dtype}"

  @property
  def formulations(self) -> list[Conv]:
    """The formulations that compute this layer differently on the target."""
    turn = self.stride == 1 and self.padding == "same" and not self.depthwise
    on_cpu = target.current().platform == "cpu"
    first: list[Conv] = ["in_turn"] if turn and on_cpu else []
    return [*first, "patches", "native"]


def plain() -> Any:
  """Makes a context in which all traced convolutions are "native"."""
  return _PLAIN(True)


@contextlib.contextmanager
def listening() -> Iterator[dict[Layer, int]]:
  """Records the convolutions traced within if their formulation is left open.

  A 1x1 convolution is the same product in every formulation, and left out.

  Yields:
    Layer -> the largest number of images it got at once, in the order in which
    layers were first traced.
  """
  heard: dict[Layer, int] = {}
  token = _HEARD.set(heard)
  try:
    yield heard
  finally:
    _HEARD.reset(token)


def measured(conv: Conv) -> bool:
  """Tells whether layers take the formulations that `engine.tuning` chose.

  They do with "measured", and with "auto" on accelerators; on devices that are
  only described they never do.
  """
  goal = target.current()
  automatic = conv == "auto" and goal.platform != "cpu"
  return (conv == "measured" or automatic) and not goal.described


def formulation(conv: Conv, layer: Layer | None = None) -> Conv:
  """Resolves "auto" and "measured": the target's choice for a layer.

  Without a choice it is "in_turn" on CPUs, "native" on other devices; within
  `plain` it is always "native".
  """
  if _PLAIN.value:
    return "native"
  if conv not in MEASURED:
    return conv
  goal = target.current()
  usual: Conv = "in_turn" if goal.platform == "cpu" else "native"
  chosen: Any = dict(goal.formulations)
  return usual if layer is None else chosen.get(layer.name, usual)


def of_call(
  conv: Conv,
  x: Array,
  kernel: Array,
  stride: int,
  padding: Padding,
  depthwise: bool = False,
) -> Conv:
  """Resolves the formulation of one call, and records it for `listening`."""
  forms = tuple(x.shape[1:]), tuple(kernel.shape)
  layer = Layer(*forms, stride, padding, x.dtype.name, depthwise)
  heard = _HEARD.get()
  if heard is not None and conv in MEASURED:
    heard[layer] = max(heard.get(layer, 0), x.shape[0])
  return formulation(conv, layer)
