"""One block of each kind against plain loops in NumPy (`numpy_nets.py`)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow
from numpy_nets import Net, draw, max_pool

from splitjax import models
from splitjax.models import (
  BACKBONES,
  Chain,
  ConvBlock,
  DenseBlock,
  DepthwiseBlock,
  How,
  Inverted,
  Pool,
  Residual,
  begin,
)

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

RNG = np.random.default_rng(0)
BATCH = How(norm="batch")
bare = functools.partial(ConvBlock, bias=False)


def unit(pool=lambda y: y, **options):
  """A ConvBlock or DepthwiseBlock in NumPy, and what pools behind it."""

  def loops(net, x, params, stats):
    y, new = net.unit(x, params, stats, **options)
    return pool(y), new

  return loops


def chain(*parts):
  """A Chain in NumPy."""

  def loops(net, x, params, stats):
    new = {}
    for i, part in enumerate(parts):
      name = f"parts_{i}"
      own = params.get(name, {}), stats.get(name, {})
      x, new[name] = part(net, x, *own)
    return x, new

  return loops


def pool3(net, x, params, stats):
  return max_pool(x, 3, 2, 1), {}


def mean(x):
  return x.mean(axis=(1, 2))


# Name -> its block, its image, and the same in NumPy.
BLOCKS = {
  "conv, norm, pool": (
    lambda how: ConvBlock(5, pool="max", how=how),
    (7, 6, 3),
    unit(lambda y: max_pool(y, 2, 2, 0)),
  ),
  "conv 5x5": (
    lambda how: ConvBlock(4, kernel=5, how=how),
    (7, 6, 2),
    unit(),
  ),
  "last of MobileNetV2": (
    lambda how: bare(6, kernel=1, act="relu6", pool="mean", how=how),
    (3, 4, 5),
    unit(mean, act="relu6"),
  ),
  "stem": (
    lambda how: Chain(begin(1 / 16, how)),
    (9, 10, 3),
    chain(unit(stride=2), pool3),
  ),
  "depthwise": (
    lambda how: DepthwiseBlock(1, "relu", how),
    (5, 6, 4),
    unit(),
  ),
  "separable, stride 2": (
    lambda how: Chain(
      (DepthwiseBlock(2, "relu", how), bare(6, 1, pool="mean", how=how))
    ),
    (5, 6, 4),
    chain(unit(stride=2), unit(mean)),
  ),
  "inverted, t = 1": (
    lambda how: Inverted(3, 1, 1, how),
    (5, 6, 4),
    Net.inverted,
  ),
}
for stride, features in ((1, 4), (1, 6), (2, 4)):
  where = f"stride {stride}, 4 to {features}"
  BLOCKS[f"inverted, {where}"] = (
    functools.partial(Inverted, features, 3, stride),
    (5, 6, 4),
    functools.partial(Net.inverted, stride=stride),
  )
  for kind, inner in (("bottleneck", 2), ("basic", features)):
    deep = kind == "bottleneck"
    BLOCKS[f"{kind}, {where}"] = (
      functools.partial(Residual, inner, features, stride, deep),
      (5, 6, 4),
      functools.partial(Net.residual, stride=stride),
    )


def forward(block, params, stats, x, train):
  """The block's output and its new statistics."""
  variables = {"params": params, **({"batch_stats": stats} if stats else {})}
  mutable = ["batch_stats"] if train and stats else False
  out = block.apply(
    variables, x, train, jnp.ones(len(x), bool), mutable=mutable
  )
  return (out[0], out[1]["batch_stats"]) if mutable else (out, {})


def check(a, b):
  assert jax.tree.structure(a) == jax.tree.structure(b)
  for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("train", [True, *slow(False)])
def test_a_block_equals_the_loops(train):
  # All blocks are one program: compiling is what takes time.
  made = {name: make(BATCH) for name, (make, *_) in BLOCKS.items()}
  x = {k: RNG.normal(size=(3, *shape)) for k, (_, shape, _) in BLOCKS.items()}
  own = {name: draw(block, x[name]) for name, block in made.items()}

  @jax.jit
  def run(own, x):
    return {
      name: forward(block, *own[name], x[name], train)
      for name, block in made.items()
    }

  for name, (out, new) in run(own, x).items():
    params, stats = own[name]
    want, moved = BLOCKS[name][2](Net(train), x[name], params, stats)
    check(out, np.float64(want))
    if train:
      check(new, jax.tree.map(np.float64, prune(moved)))


def prune(tree):
  """Without what has no statistics."""
  if not isinstance(tree, dict):
    return tree
  kept = {key: prune(value) for key, value in tree.items()}
  return {k: v for k, v in kept.items() if not isinstance(v, dict) or v}


def test_shortcuts_are_the_input_where_shapes_allow():
  x = jnp.zeros((1, 5, 6, 4))
  for stride, features, convolved in [
    (1, 4, False),
    (2, 4, True),
    (1, 6, True),
  ]:
    params, _ = draw(Residual(2, features, stride, True, BATCH), x)
    assert ("shortcut" in params) == convolved
  assert "expand" in draw(Inverted(4, 6, 1, BATCH), x)[0]
  assert "expand" not in draw(Inverted(4, 1, 1, BATCH), x)[0]


def test_a_dense_block_and_a_pool():
  x = np.asarray(RNG.normal(size=(3, 2, 2, 2)))
  block = DenseBlock(4, BATCH)
  params, stats = draw(block, x)
  out, new = forward(block, params, stats, x, True)
  dense = params["Dense_0"]
  y = np.float64(x).reshape(3, -1) @ dense["kernel"] + dense["bias"]
  want, moved = Net(True).norm(y, params, stats)
  check(out, np.maximum(want, 0))
  check(new, moved)
  out, _ = forward(Pool("mean"), {}, {}, x, True)
  check(out, np.float64(x).mean(axis=(1, 2)))
  out, _ = forward(ConvBlock(4, pool="max, mean"), *draw(ConvBlock(4), x), x, 0)
  assert out.shape == (3, 4)


@pytest.mark.slow
def test_small_images_stand_in_the_middle_of_zeros():
  """As the same network on images with two zeros on every side."""
  small, large = (
    BACKBONES["vgg11"]((n, n, 1), 10, width=1 / 32, pad=n < 32)
    for n in (28, 32)
  )
  full, names = models.init(large, jax.random.key(0)), large.names()
  x = jax.random.normal(jax.random.key(1), (3, 28, 28, 1))
  framed = jnp.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0)))
  got, _ = models.run(small, full, x, names=names, train=False)
  want, _ = models.run(large, full, framed, names=names, train=False)
  np.testing.assert_array_equal(got, want)
  assert models.parameters(small) == models.parameters(large)
