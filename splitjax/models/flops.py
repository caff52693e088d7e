"""FLOPs of a network, block by block, from XLA's cost analysis."""

import functools

import jax
import jax.numpy as jnp

from splitjax.models import backbones, drawing, shapes, target
from splitjax.models.backbones import Backbone
from splitjax.types import Net, UserError


@functools.lru_cache(maxsize=64)
def forward(backbone: Backbone) -> dict[str, float]:
  """Counts FLOPs of one input's forward pass, by block, exit or head name.

  Each block is lowered as for a TPU, whose convolutions are XLA's own, and the
  CPU's cost analysis counts its FLOPs. The numbers thus do not depend on the
  machine, and nothing is compiled. For other devices XLA analyses only compiled
  programs, and it cannot count inside the libraries that compiled programs
  call.

  Raises:
    UserError: JAX has no CPU among its platforms, or no cost analysis for
      the CPU.
  """
  full, found = shapes.network(backbone), dict[str, float]()

  def count(name, x):
    found[name] = _block(backbone, full, name, x)
    out, *_ = shapes.drawn(backbone.block(name), x)
    return jax.ShapeDtypeStruct(out.shape, jnp.result_type(float))

  drawing.walk(backbone, count, backbone.inputs(1))
  return found


def _block(
  backbone: Backbone, full: Net, name: str, x: jax.ShapeDtypeStruct
) -> float:
  def apply(segment, x):
    return backbones.run(backbone, segment, x, (name,), train=False)[0]

  with jax.default_device(target.host().devices[0]):
    traced = jax.jit(apply).trace(backbones.select(full, (name,)), x)
    lowered = traced.lower(lowering_platforms=("tpu",))
  analysis = lowered.cost_analysis()
  if analysis is None:
    raise UserError(
      f"FLOPs are not known: jax {jax.__version__} has no cost analysis for the"
      " CPU"
    )
  return float(analysis.get("flops", 0.0))  # absent where nothing is computed


def of_cut(backbone: Backbone, depth: int) -> tuple[float, float]:
  """Counts FLOPs of one input's forward pass at client and at server.

  The client's part includes its classifier: the head if the client has the
  whole network, otherwise the exit at its depth, if the network has one there.
  """
  each = forward(backbone)
  own, rest = backbones.classifier_at(backbone, depth), backbone.names(depth)
  near = sum(each[name] for name in backbone.names(0, depth))
  far = sum(each[name] for name in (*rest, "head")) if rest else 0.0
  return near + each.get(own, 0.0), far
