"""Layers: who counts in a norm, masks through blocks, half precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layers import Alone
from numpy_nets import EPS, draw, group_norm

from splitjax import models
from splitjax.models import (
  BACKBONES,
  Chain,
  Conv,
  ConvBlock,
  Dense,
  DepthwiseBlock,
  Inverted,
  Pool,
  Residual,
  Style,
)

numeric = pytest.mark.numeric

RNG = np.random.default_rng(0)
HUGE = 1e4
"""In rows that are padding: seen anywhere, it would be noticed."""
BLOCKS = {
  "conv": lambda style: ConvBlock(4, pool="max", style=style),
  "stem": lambda style: Chain(
    (ConvBlock(4, 7, 2, bias=False, style=style), Pool("max 3x3"))
  ),
  "basic": lambda style: Residual(6, 6, 2, False, style),
  "bottleneck": lambda style: Residual(2, 3, 1, True, style),
  "inverted": lambda style: Inverted(3, 2, 1, style),
  "separable": lambda style: Chain(
    (
      DepthwiseBlock(2, "relu", style),
      ConvBlock(6, 1, pool="mean", style=style),
    )
  ),
}


def normal(*shape):
  return jnp.asarray(RNG.normal(size=shape))


def everyone(x):
  return jnp.ones(x.shape[0], bool)


def check(a, b, atol=1e-10, rtol=1e-10):
  for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)


def training(block):
  """Compiles (params, stats, x, real) -> output, statistics, gradient.

  The gradient is that of the real outputs' sum of sines, by the parameters.
  """

  def scalar(params, stats, x, real):
    variables = {"params": params, "batch_stats": stats}
    out, new = block.apply(variables, x, True, real, mutable=["batch_stats"])
    each = jnp.sin(out).reshape(len(x), -1).sum(axis=1)
    return jnp.where(real, each, 0).sum(), (out, new.get("batch_stats", {}))

  def run(*args):
    grads, (out, stats) = jax.grad(scalar, has_aux=True)(*args)
    return out, stats, grads

  return run


@numeric
@pytest.mark.slow
def test_padding_changes_nothing_for_the_others(float64):
  # All blocks are one program: compiling is what takes time.
  style = Style(norm="batch")
  blocks = {name: make(style) for name, make in BLOCKS.items()}
  x = normal(2, 5, 6, 5, 3)
  # Two clients, each with weights of its own and padding of its own.
  real = jnp.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]], bool)
  mask = real[:, :, None, None, None]
  rows = [np.flatnonzero(mine) for mine in real]
  own = {
    name: [draw(block, x[0], seed) for seed in (0, 1)]
    for name, block in blocks.items()
  }

  @jax.jit
  def run(own, x):
    found = {}
    for name, block in blocks.items():
      stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *own[name])
      padded = jax.vmap(training(block))(
        *stacked, jnp.where(mask, x, HUGE), real
      )
      few = [x[n][rows[n]] for n in range(2)]
      alone = [
        training(block)(*own[name][n], few[n], everyone(few[n]))
        for n in range(2)
      ]
      found[name] = padded, alone
    return found

  for padded, alone in run(own, x).values():
    for n in range(2):
      out, *rest = jax.tree.map(lambda v, n=n: v[n], padded)
      check(out[rows[n]], alone[n][0])
      check(rest, list(alone[n][1:]))


def test_a_batch_of_padding_alone_is_finite():
  x, real = normal(3, 4, 4, 2), jnp.zeros(3, bool)
  block = ConvBlock(2, style=Style(norm="batch"))
  found = jax.jit(training(block))(*draw(block, x), x, real)
  assert all(bool(jnp.isfinite(v).all()) for v in jax.tree.leaves(found))
  assert all(float(abs(g).max()) == 0 for g in jax.tree.leaves(found[2]))


def alone(norm, x, train, real=None, params=None, stats=None, **style):
  """`normalise` of x, compiled: the output and the new running statistics."""
  block = Alone(Style(norm=norm, **style))
  kind, c = f"{norm.title()}Norm_0", x.shape[-1]
  params = params or {"scale": jnp.ones(c), "bias": jnp.zeros(c)}
  variables = {"params": {kind: params}}
  if norm == "batch":
    stats = stats or {"mean": jnp.zeros(c), "var": jnp.ones(c)}
    variables["batch_stats"] = {kind: stats}

  @jax.jit
  def run(variables, x, real):
    return block.apply(variables, x, train, real, mutable=["batch_stats"])

  out, new = run(variables, x, everyone(x) if real is None else real)
  return out, new.get("batch_stats", {}).get(kind)


@numeric
def test_running_statistics_move_by_a_tenth_to_the_biased_variance(float64):
  x, mean, var = normal(3, 2, 2, 4), jnp.arange(4.0), 1 + jnp.arange(4.0)
  real = jnp.array([True, True, False])
  _, found = alone("batch", x, True, real, stats={"mean": mean, "var": var})
  rows = np.float64(x[:2]).reshape(8, 4)
  check(found["mean"], 0.9 * mean + 0.1 * rows.mean(0))
  check(found["var"], 0.9 * var + 0.1 * rows.var(0))
  # The unbiased variance would be a seventh larger.
  unbiased = 0.9 * var + 0.1 * rows.var(0, ddof=1)
  assert abs(found["var"] - unbiased).min() > 1e-3


@numeric
@pytest.mark.parametrize(("pixels", "count"), [((), 1), ((1, 1), 1), ((), 2)])
def test_one_value_per_channel_moves_no_running_statistics(
  pixels, count, float64
):
  # Its variance is 0 exactly, whatever the channel's is.
  x = normal(3, *pixels, 4)
  _, found = alone("batch", x, True, jnp.arange(3) < count)
  rows, moves = np.float64(x[:count]).reshape(-1, 4), 0.1 * (count > 1)
  check(found["mean"], moves * rows.mean(0), atol=1e-10 * (count > 1))
  check(found["var"], 1 - moves + moves * rows.var(0))


@numeric
@pytest.mark.parametrize(("channels", "groups"), [(34, 17), (37, 1), (96, 32)])
def test_groups_are_the_largest_divisor_up_to_32(channels, groups, float64):
  x = normal(2, 3, 3, channels)
  params = {"scale": normal(channels), "bias": normal(channels)}
  for train in (False, True):
    out, _ = alone("group", x, train, params=params)
    check(out, group_norm(np.float64(x), params, groups))


@numeric
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_variances_below_1e_5_are_not_blown_up(norm, float64):
  x = 1e-3 * normal(4, 6, 6, 3)
  out, _ = alone(norm, x, True)
  axes = (0, 1, 2) if norm == "batch" else (1, 2)
  exact = np.float64(x)
  spread = np.sqrt(exact.var(axes, keepdims=True) + 1e-5)
  check(out, (exact - exact.mean(axes, keepdims=True)) / spread)


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_half_precision_is_normalised_in_single(norm):
  # Means of 4 and deviations of 1/4: in 8 bits the variance would be noise.
  x = (4 + normal(8, 6, 6, 3) / 4).astype(jnp.bfloat16)
  out, stats = alone(norm, x, True, dtype="bfloat16")
  assert out.dtype == jnp.bfloat16
  exact = np.asarray(x, np.float64)
  axes = (0, 1, 2) if norm == "batch" else (1, 2)
  mean = exact.mean(axes, keepdims=True)
  want = (exact - mean) / np.sqrt(exact.var(axes, keepdims=True) + EPS)
  # Half a unit in the last of 8 bits.
  error = abs(np.asarray(out, np.float64) - want)
  assert (error <= 2**-8 * abs(want) + 1e-3).all()
  if norm == "batch":
    check(stats["mean"], 0.1 * mean.ravel(), 1e-5, 1e-4)
    check(stats["var"], 0.9 + 0.1 * exact.var(axes), 1e-5, 1e-4)


def test_relu6_ends_at_6():
  x = 100 * normal(2, 4, 4, 3)
  block = ConvBlock(4, act="relu6")
  params, _ = draw(block, x)
  out = jax.jit(block.apply, static_argnums=2)(
    {"params": params}, x, False, everyone(x)
  )
  assert float(out.max()) == 6 and float(out.min()) == 0


HALF = Style("bfloat16")
LAYERS = {
  "conv": (Conv(4, style=HALF), (8, 28, 28, 3)),
  "dense": (Dense(4, style=HALF), (2000, 3)),
  "heads": (Dense((2, 3), style=HALF), (40, 50, 6)),
  "from heads": (Dense(4, 2, style=HALF), (40, 50, 2, 3)),
}


def test_a_bias_gradient_counts_every_sample():
  """In bfloat16 a running sum of ones stays at 256."""
  x = {name: jnp.ones(shape) for name, (_, shape) in LAYERS.items()}
  key = jax.random.key(0)
  params = {
    name: jax.tree.map(
      lambda like: jnp.zeros(like.shape, like.dtype),
      jax.eval_shape(layer.init, key, x[name]),
    )
    for name, (layer, _) in LAYERS.items()
  }

  def total(params):
    out = [layer.apply(params[n], x[n]) for n, (layer, _) in LAYERS.items()]
    return sum(y.astype(jnp.float32).sum() for y in out)

  grads = jax.jit(jax.grad(total))(params)
  for name, (layer, _) in LAYERS.items():
    found = grads[name]["params"]["bias"]
    rows = jax.eval_shape(layer.apply, params[name], x[name]).size / found.size
    np.testing.assert_array_equal(found, np.full(found.shape, rows))


@pytest.mark.slow
def test_gradients_stay_close_and_logits_are_float32():
  x = jax.random.normal(jax.random.key(1), (16, 32, 32, 3))
  passes = {}
  for dtype in ("float32", "bfloat16"):
    style = Style(dtype)
    net = BACKBONES["cnn8"]((32, 32, 3), 10, width=1 / 16, style=style)
    full = models.init(net, jax.random.key(0))

    def loss(params, net=net, full=full):
      segment = full._replace(params=params)
      names = (*net.names(), "head")
      logits, _ = models.run(net, segment, x, names, train=True)
      return -jax.nn.log_softmax(logits)[:, 0].mean(), logits

    grads, logits = jax.jit(jax.grad(loss, has_aux=True))(full.params)
    leaves = jax.tree.leaves((logits, grads))
    assert all(leaf.dtype == jnp.float32 for leaf in leaves)
    row = np.concatenate([np.ravel(g) for g in jax.tree.leaves(grads)])
    passes[dtype] = np.asarray(logits), row
  (exact, b), (rough, a) = passes["float32"], passes["bfloat16"]
  # Not rounded to 8 bits: the classifier itself computes in float32.
  assert (rough.astype(jnp.bfloat16).astype(np.float32) != rough).any()
  np.testing.assert_allclose(rough, exact, atol=0.1)
  # 8 bits a product: the direction must hold.
  assert np.linalg.norm(a - b) < 0.4 * np.linalg.norm(b)
  assert a @ b > 0.93 * np.linalg.norm(a) * np.linalg.norm(b)
