"""Equal blocks: lowered once, and scanned over where they ask for it.

A scan computes what the loop does, fused differently.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine import assert_close
from marks import slow
from tiny_vit import SHAPE, fresh, images, rough, tiny

from splitjax.models import backbones, block, drawn_cut, shapes
from splitjax.types import Segment

pytestmark = pytest.mark.usefixtures("float64")


def graded(net, full, x, depth):
  """Value, gradients and whatever else, of run or (depth given) inject."""
  slope = images(len(x), 12, seed=5)

  def value(params, x):
    segment = Segment(params, full.stats)
    if depth is None:
      z, stats = backbones.run(net, segment, x, net.names(), train=True)
      passed = {}
    else:
      z, stats, passed = drawn_cut.inject(
        net, segment, {2: x, 4: x[:, ::-1]}, depth, train=True
      )
    return (z * slope).sum(), (z, stats, passed)

  return jax.jit(jax.grad(value, (0, 1), has_aux=True))(full.params, x)


@pytest.mark.slow
@pytest.mark.parametrize("depth", [None, 2])
def test_a_scan_is_the_loop(depth):
  given = {"length": 9 if depth else 5, "depths": (2, 4)}
  (loop, full), (scan, again) = fresh(**given), fresh(**given, scan=True)
  assert_close(full, again)
  full = full._replace(params=rough(full.params, scale=0.1))
  x = images(3, *SHAPE) if depth is None else images(3, 5, 12)
  depth = depth and jnp.int32(depth)
  one, two = (graded(net, full, x, depth) for net in (loop, scan))
  assert any(np.abs(leaf).max() > 0.1 for leaf in jax.tree.leaves(one[0]))
  chex.assert_trees_all_close(one, two, rtol=1e-10, atol=1e-10)


def test_what_is_scanned():
  net = tiny(length=9, depths=(2, 4), scan=True)
  full, names = shapes.network(net), net.names()
  stretches = functools.partial(block.stretches, net.block, full)
  middle = names[1:8]
  assert stretches(names) == [names[:1], middle, names[8:]]
  assert stretches(names[1:4]) == [names[1:4]]
  assert stretches(names[1:3]) == [("block2",), ("block3",)]
  # Not what differs in size, has statistics or does not ask for it.
  odd = dict(full.params)
  odd["block5"] = jax.tree.map(lambda x: jnp.zeros(1), odd["block5"])
  apart = block.stretches(net.block, full._replace(params=odd), middle)
  assert apart == [middle[:3], ("block5",), middle[4:]]
  stats = {**full.stats, "block8": {"mean": jnp.zeros(1)}}
  apart = block.stretches(net.block, full._replace(stats=stats), middle)
  assert apart == [middle[:6], ("block8",)]
  loop = tiny(length=9, depths=(2, 4))
  full = shapes.network(loop)
  assert all(len(s) == 1 for s in block.stretches(loop.block, full, middle))


# A call's arguments and results for each block more, or for a scan the stacking
# and unstacking of its 16 arrays.
@pytest.mark.parametrize(
  ("scan", "most"),
  [(False, 1.25), *slow((True, 1.8))],
)
def test_the_program_hardly_grows_with_depth(scan, most):
  def lines(length):
    net = tiny(scan=scan, length=length)
    full = shapes.network(net)
    x = jax.ShapeDtypeStruct((2, *SHAPE), float)

    def value(params, x):
      segment = full._replace(params=params)
      return backbones.run(net, segment, x, net.names(), train=True)[0].sum()

    text = jax.jit(jax.grad(value)).lower(full.params, x).as_text()
    return text.count("\n"), text.count("dot_general")

  (short, few), (deep, many) = lines(4), lines(12)
  assert many == few
  assert deep < most * short
