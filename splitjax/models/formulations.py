"""The choice of a convolution's formulation, which `convolution` computes.

On a CPU "auto" stands for "in_turn". On an accelerator the fastest formulation
must be found by measuring. So with "auto" on an accelerator, and with
"measured" on every device, each layer of a network takes the formulation that
took the least time (`engine.tuning`). The choices are a field of
`target.Target`, and so a part of the keys of jax's caches.
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
"""Values of `Conv` by which a layer takes the formulation measured for it."""

VERSION = 1
"""Version of the formulations; times measured with other versions are stale."""

_PLAIN = jax.make_user_context(False)

_HEARD: ContextVar[dict["Layer", int] | None] = ContextVar(
  "heard", default=None
)


class Layer(NamedTuple):
  """Shapes, dtype and options of an image convolution, for any batch size.

  Attributes:
    image: (H, W, c) of its input.
    kernel: (k, k, c, f), or (k, k, 1, c) of a depthwise convolution.
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
    """A text that describes all fields and identifies the layer."""
    k, _, _, f = self.kernel
    *size, c = self.image
    channels = f"each of {c} channels" if self.depthwise else f"{c} to {f}"
    edges = "x".join(map(str, size))
    said = f"{k}x{k}, {channels}, {edges}, stride {self.stride}"
    return f"{said}, {self.padding}, {self.dtype}"

  @property
  def formulations(self) -> list[Conv]:
    """The formulations that are measured for this layer on the target."""
    turn = self.stride == 1 and self.padding == "same" and not self.depthwise
    on_cpu = target.current().platform == "cpu"
    first: list[Conv] = ["in_turn"] if turn and on_cpu else []
    return [*first, "patches", "native"]


def plain() -> Any:
  """Makes a context in which all traced convolutions are "native"."""
  return _PLAIN(True)


@contextlib.contextmanager
def listening() -> Iterator[dict[Layer, int]]:
  """Records the convolutions that are traced with "auto" or "measured".

  It leaves out 1x1 convolutions that are not depthwise: they are the same
  product in every formulation.

  Yields:
    Layer -> the largest number of images that it was traced with. Layers are
    in the order in which they were first traced.
  """
  heard: dict[Layer, int] = {}
  token = _HEARD.set(heard)
  try:
    yield heard
  finally:
    _HEARD.reset(token)


def measured(conv: Conv) -> bool:
  """Tells whether layers take the formulations that `engine.tuning` chose.

  They do if `conv` is "measured", and on accelerators if it is "auto". On
  devices that are only described they never do.
  """
  goal = target.current()
  automatic = conv == "auto" and goal.platform != "cpu"
  return (conv == "measured" or automatic) and not goal.described


def formulation(conv: Conv, layer: Layer | None = None) -> Conv:
  """Resolves "auto" and "measured" to the target's choice for a layer.

  If the target has no choice for the layer, or `layer` is None, the result is
  "in_turn" on CPUs and "native" on other devices. Within `plain` it is always
  "native".
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
