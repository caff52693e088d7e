"""The network of texts against NumPy, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import numpy_vit
import pytest
from numpy_nets import fill

from splitjax import models
from splitjax.models import BACKBONES

pytestmark = [pytest.mark.usefixtures("float64"), pytest.mark.numeric]


def dense(x, params):
  return x.reshape(len(x), -1) @ params["kernel"] + params["bias"]


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

  def block(name, x, params):
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

  full = fill(jax.eval_shape(lambda: models.init(net, jax.random.key(0))))
  x = np.random.default_rng(1).integers(0, 11, (3, 6))
  features = x
  for depth, name in enumerate(net.names(), start=1):
    features = block(name, features, full.params[name])
    ends = {models.exit_name(depth)} & full.params.keys()
    for end in ends | {"head"} if depth == net.length else ends:
      names = (*net.names(0, depth), end)
      logits, _ = models.run(net, full, x, names, train=False)
      want = block(end, features, full.params[end])
      np.testing.assert_allclose(logits, want, rtol=1e-10, atol=1e-10)


def test_texts_are_told_apart_by_their_vocabulary():
  net = BACKBONES["transformer_text"]((6,), 3, vocabulary=11, width=8)
  assert net.inputs(2) == jax.ShapeDtypeStruct((2, 6), jnp.int32)
  assert net != BACKBONES["transformer_text"]((6,), 3, vocabulary=12, width=8)
