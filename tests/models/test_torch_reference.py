"""Whole small networks against PyTorch's own modules and NumPy, in float64.

PyTorch's outputs are committed; `helpers/torch_logits.py` wrote them. Vision
transformers are compared with `helpers/numpy_vit.py` in test_vit.py.
"""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpy_vit
import pytest
import whole_nets
from marks import slow
from numpy_nets import fill

from splitjax import losses, models
from splitjax.models import BACKBONES

pytestmark = [pytest.mark.numeric, pytest.mark.usefixtures("float64")]

WANTED = np.load(Path(__file__).resolve().parents[1] / "golden" / "torch.npz")

STEPS = [
  *("mlp", "cnn1d", "cnn8", "vgg11", "resnet18"),
  *slow("mobilenet_v2", "cnn4", "resnet50", "resnet101", "mobilenet_v1"),
]


def assert_equal(name, said):
  for key, value in said.items():
    want = WANTED[f"{name}/{key}"]
    np.testing.assert_allclose(value, want, rtol=1e-8, atol=1e-9, err_msg=key)


@pytest.mark.parametrize("name", whole_nets.CASES)
def test_inference_of_whole_networks(name):
  case = whole_nets.CASES[name]
  net, full = whole_nets.filled(case)

  @jax.jit
  def logits(x):
    said = {}
    for depth, block in enumerate(net.names(), start=1):
      x, _ = models.run(net, full, x, (block,), train=False)
      if depth in net.exits:
        place = models.exit_name(depth)
        said[place], _ = models.run(net, full, x, (place,), train=False)
    said["head"], _ = models.run(net, full, x, ("head",), train=False)
    return said

  assert WANTED[f"{name}/head"].std() > 0.1
  assert_equal(name, logits(whole_nets.inputs(case, whole_nets.SHOWN)))


@pytest.mark.parametrize("name", STEPS)
def test_one_training_step_of_whole_networks(name):
  case = whole_nets.CASES[name]
  net, full = whole_nets.filled(case)
  names = (*net.names(), "head")
  images = whole_nets.inputs(case, whole_nets.TRAINED)

  @jax.jit
  @functools.partial(jax.value_and_grad, has_aux=True)
  def loss(params):
    part = full._replace(params=params)
    logits, stats = models.run(net, part, images, names, train=True)
    each = losses.each_cross_entropy(logits, whole_nets.labels())
    return each.mean(), (logits, stats)

  (_, (logits, stats)), gradients = loss(full.params)
  said = {
    "trained": logits,
    "statistics": [whole_nets.projected(stats[block]) for block in names],
    "gradients": [whole_nets.projected(gradients[block]) for block in names],
  }
  assert_equal(name, said)


def test_every_other_network_has_a_reference_in_numpy():
  told = {case.name for case in whole_nets.CASES.values()}
  others = BACKBONES.keys() - told
  assert others == {"toy", "transformer_text", "vit_b16", "vit_s16"}


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
