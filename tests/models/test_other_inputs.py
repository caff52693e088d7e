"""Networks of series, tables and texts against NumPy, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import numpy_vit
import pytest
from numpy_nets import fill

from splitjax import models
from splitjax.models import BACKBONES

pytestmark = [pytest.mark.usefixtures("float64"), pytest.mark.numeric]


def drawn(net):
  """A random segment without zeros, and its outputs behind every block."""
  key = jax.random.key(0)
  full = fill(jax.eval_shape(lambda: models.init(net, key)))
  return full, inputs(net, 3)


def inputs(net, count):
  rng = np.random.default_rng(1)
  if net.vocabulary:
    return rng.integers(0, net.vocabulary, (count, *net.shape))
  return rng.normal(size=(count, *net.shape))


def outputs(net, full, x):
  """Name -> output of each block, each exit and the head."""
  out = {}
  for depth, name in enumerate(net.names(), start=1):
    x, _ = models.run(net, full, x, (name,), train=False)
    out[name] = x
    if depth in net.exits:
      exit_ = models.exit_name(depth)
      out[exit_], _ = models.run(net, full, x, (exit_,), train=False)
  out["head"], _ = models.run(net, full, x, ("head",), train=False)
  return out


def compare(net, full, x, block):
  """Compares all outputs with those of `block`(name, x, parameters)."""
  found = jax.jit(lambda full, x: outputs(net, full, x))(full, x)
  x = np.asarray(x)
  for depth, name in enumerate(net.names(), start=1):
    x = block(name, x, full.params[name], full.stats[name])
    np.testing.assert_allclose(found[name], x, rtol=1e-10, atol=1e-10)
    if depth in net.exits:
      exit_ = models.exit_name(depth)
      logits = block(exit_, x, full.params[exit_], {})
      np.testing.assert_allclose(found[exit_], logits, rtol=1e-10, atol=1e-10)
  logits = block("head", x, full.params["head"], {})
  np.testing.assert_allclose(found["head"], logits, rtol=1e-10, atol=1e-10)


def dense(x, params):
  return x.reshape(len(x), -1) @ params["kernel"] + params["bias"]


def convolved(x, params):
  """Step by step: the sum over a window; then the larger of each two."""
  kernel = params["kernel"].reshape(-1, x.shape[-1], params["bias"].size)
  k = len(kernel)
  steps = x.shape[1] - k + 1
  out = np.zeros((len(x), steps, kernel.shape[-1]))
  for t in range(steps):
    for i in range(k):
      out[:, t] += x[:, t + i] @ kernel[i]
  return out + params["bias"]


@pytest.mark.parametrize("steps", [28, 31])
def test_cnn1d_equals_the_loops(steps):
  given = {"width": 1 / 16, "depths": (1, 2, 3)}
  net = BACKBONES["cnn1d"]((steps, 3), 4, **given)

  def block(name, x, params, stats):
    if not name.startswith("conv"):
      x = dense(x, params["Dense_0"])
      return np.maximum(x, 0) if name[0] == "d" else x
    x = convolved(x, params["Dense_0"])
    pairs = range(0, x.shape[1] - 1, 2)
    pooled = [np.maximum(x[:, t], x[:, t + 1]) for t in pairs]
    return np.maximum(np.stack(pooled, 1), 0)

  compare(net, *drawn(net), block)


def test_mlp_equals_matrix_products():
  net = BACKBONES["mlp"]((5, 2), 3, width=4)

  def block(name, x, params, stats):
    x = dense(x, params["Dense_0"])
    return np.maximum(x, 0) if name.startswith("block") else x

  compare(net, *drawn(net), block)


def file_of(params):
  """A block's parameters by the names of `numpy_vit`, as its block 0."""
  at, found = "Transformer/encoderblock_0", {}
  inner = f"{at}/MultiHeadDotProductAttention_1"
  for name, (ours, kinds) in {
    f"{at}/LayerNorm_0": ("LayerNorm_0", ("scale", "bias")),
    f"{at}/LayerNorm_2": ("LayerNorm_1", ("scale", "bias")),
    f"{at}/MlpBlock_3/Dense_0": ("Dense_0", ("kernel", "bias")),
    f"{at}/MlpBlock_3/Dense_1": ("Dense_1", ("kernel", "bias")),
  }.items():
    found |= {f"{name}/{kind}": params[ours][kind] for kind in kinds}
  for name in ("query", "key", "value", "out"):
    for kind in ("kernel", "bias"):
      found[f"{inner}/{name}/{kind}"] = params["Attention_0"][name][kind]
  return found


def test_transformer_text_equals_the_loops():
  net = BACKBONES["transformer_text"](
    (6,), 3, vocabulary=11, width=8, heads=2, length=3
  )

  def block(name, x, params, stats):
    if not name.startswith("block"):
      if x.ndim == 3:
        norm = {f"n/{k}": v for k, v in params["LayerNorm_0"].items()}
        x = numpy_vit.norm(x[:, 0], norm, "n")
      return dense(x, params["Dense_0"])
    if name == "block1":
      first = np.broadcast_to(params["cls"], (len(x), 1, 8))
      words = np.stack([[params["tokens"][i] for i in row] for row in x])
      x = np.concatenate([first, words], 1) + params["positions"]
    x = numpy_vit.block(x, file_of(params), 0)
    if name != "block3":
      return x
    norm = {f"n/{k}": v for k, v in params["LayerNorm_2"].items()}
    return numpy_vit.norm(x[:, 0], norm, "n")

  compare(net, *drawn(net), block)


@pytest.mark.parametrize(
  ("name", "shape", "classes", "given", "count"),
  [
    # McMahan et al. 2017, section 3: the 2NN.
    ("mlp", (28, 28, 1), 10, {"length": 2, "depths": (1,)}, 199_210),
    # By hand: 2,624 + 18,496 + 1,704,960 + 524,800 + 3,078.
    ("cnn1d", (128, 9), 6, {}, 2_253_958),
    # 64 V + 65 * 64 + 64, four blocks of 49,984, 128 and 260.
    ("transformer_text", (64,), 4, {"vocabulary": 100}, 6_400 + 204_548),
  ],
)
def test_parameters_are_those_said(name, shape, classes, given, count):
  size = models.parameters(BACKBONES[name](shape, classes, **given))
  assert sum(n for k, n in size.items() if not k.startswith("exit")) == count


def test_texts_are_told_apart_by_their_vocabulary():
  net = BACKBONES["transformer_text"]((6,), 3, vocabulary=11, width=8)
  assert net.inputs(2) == jax.ShapeDtypeStruct((2, 6), jnp.int32)
  assert net != BACKBONES["transformer_text"]((6,), 3, vocabulary=12, width=8)
