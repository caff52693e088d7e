"""Vision transformers: sizes, parts, types.

The whole function is compared with NumPy in test_pretrained.py.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_vit import CLASSES, SHAPE, fresh, images, rough, tiny

from splitjax import models
from splitjax.models import vit_s16 as small


@pytest.mark.slow
def test_the_start():
  _, full = fresh(depths=(2,), width=1.0)
  for path, leaf in jax.tree.flatten_with_path(full.params)[0]:
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    if name.endswith("scale"):
      assert (leaf == 1).all(), name
    elif name.endswith(("kernel", "positions")):
      # Cut off at two sigma, where the standard deviation is 0.88 sigma.
      assert np.abs(leaf).max() <= 0.04, name
      if leaf.size > 10_000:
        assert abs(float(leaf.std()) - 0.88 * 0.02) < 3e-4, name
    else:
      assert name.endswith(("bias", "cls"))
      assert not leaf.any(), name


@pytest.mark.slow
def test_products_are_bfloat16_and_the_rest_float32():
  x, real = images(2, *SHAPE), jnp.ones(2, bool)
  (net, full), (wide, _) = fresh(style=models.Style("bfloat16")), fresh()
  full = full._replace(params=rough(full.params))
  assert all(x.dtype == np.float32 for x in jax.tree.leaves(full.params))
  z = x
  for name in net.names():
    block = functools.partial(run_one, net, full, name)
    operations = list(inside(block, z))
    dots = [e for e in operations if e.primitive.name == "dot_general"]
    assert len(dots) == 8 + (name == "block1")
    for e in dots:
      assert all(v.aval.dtype == jnp.bfloat16 for v in e.invars), e
    for e in operations:
      if e.primitive.name in ("exp", "rsqrt"):
        assert e.invars[0].aval.dtype == np.float32
    z = block(z)
    assert z.dtype == np.float32
  names = (*net.names(), "head")
  near, _ = models.run(net, full, x, names, train=True, real=real)
  want, _ = models.run(wide, full, x, names, train=True, real=real)
  assert near.dtype == np.float32
  gap = float(jnp.abs(near - want).max())
  assert 1e-4 < gap < 0.1 * float(jnp.abs(want).max())


def run_one(net, full, name, x):
  return models.run(net, full, x, (name,), train=True)[0]


def inside(function, *args):
  """Every operation that a function traces to, also in functions it calls."""

  def walk(jaxpr):
    for e in jaxpr.eqns:
      yield e
      for value in e.params.values():
        if hasattr(value, "jaxpr"):
          yield from walk(value.jaxpr)

  return walk(jax.make_jaxpr(function)(*args).jaxpr)


def test_width_scales_every_head_alike():
  for width, dim in ((1 / 6, 66), (1 / 32, 12), (1e-3, 6), (2, 768)):
    net = small(SHAPE, CLASSES, width=width, length=2, depths=(1,))
    assert net.blocks["block1"].dim == dim
  assert dataclasses.asdict(net)["name"] == "vit_s16"


def test_the_program_hardly_grows_with_equal_blocks():
  """A call, its arguments and results for each block more."""

  def lines(length):
    net = tiny(length=length)
    full = models.shapes(net)
    x = jax.ShapeDtypeStruct((2, *SHAPE), float)

    def value(params, x):
      segment = full._replace(params=params)
      return models.run(net, segment, x, net.names(), train=True)[0].sum()

    text = jax.jit(jax.grad(value)).lower(full.params, x).as_text()
    return text.count("\n"), text.count("dot_general")

  (short, few), (deep, many) = lines(4), lines(12)
  assert many == few
  assert deep < 1.25 * short
