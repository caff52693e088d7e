"""Whole small networks against PyTorch's own modules, with copied weights.

Both sides compute in float64, in another order.
"""

import functools

import jax
import numpy as np
import pytest
from numpy_nets import fill

from splitjax.models import BACKBONES, backbones, shapes

torch = pytest.importorskip("torch")
nets = pytest.importorskip("torch_nets")

pytestmark = pytest.mark.numeric


@pytest.fixture(autouse=True)
def double(float64):
  """PyTorch's modules are made in float64 too."""
  before = torch.get_default_dtype()
  torch.set_default_dtype(torch.float64)
  yield
  torch.set_default_dtype(before)


SMALL = (1, 1, 1, 2, 2, 1, 2, 1)
"""MobileNetV2's strides up to 32x32, the stem first."""
STANDARD = (2, 1, 2, 2, 2, 1, 2, 1)

# Name -> (our name, image, options, pool of the exits, the same in PyTorch).
NETWORKS = {
  "cnn8": ("cnn8", (28, 28, 1), {}, 3, lambda: nets.cnn8(1)),
  "cnn4": ("cnn4", (28, 28, 1), {}, 3, lambda: nets.cnn4(1, 2, 7)),
  "cnn4, valid": (
    "cnn4",
    (28, 28, 1),
    {"padding": "valid"},
    3,
    lambda: nets.cnn4(1, 0, 4),
  ),
  "vgg11": ("vgg11", (32, 32, 3), {}, 2, lambda: nets.vgg11(3)),
  "resnet18": (
    "resnet18",
    (40, 36, 3),
    {"depths": (2, 3, 5), "stages": (2, 1, 1, 1)},
    1,
    lambda: nets.resnet(3, (2, 1, 1, 1), False, False, False),
  ),
  "resnet18, 3x3": (
    "resnet18",
    (12, 12, 3),
    {"depths": (1, 2, 3), "stages": (2, 1, 1, 1), "stem": "3x3"},
    1,
    lambda: nets.resnet(3, (2, 1, 1, 1), False, True, False),
  ),
  "resnet50": (
    "resnet50",
    (33, 32, 3),
    {"depths": (1, 2, 3), "stages": (2, 1, 1, 1)},
    1,
    lambda: nets.resnet(3, (2, 1, 1, 1), True, False, True),
  ),
  "resnet101": (
    "resnet101",
    (40, 33, 3),
    {"depths": (2, 3), "stages": (1, 1, 2, 1)},
    1,
    lambda: nets.resnet(3, (1, 1, 2, 1), True, False, False),
  ),
  "mobilenet_v1": (
    "mobilenet_v1",
    (32, 32, 3),
    {"depths": (2, 5), "repeats": (1, 2, 1, 1, 1)},
    1,
    lambda: nets.mobilenet_v1(3, (1, 2, 1, 1, 1), 1),
  ),
  "mobilenet_v1, 48x40": (
    "mobilenet_v1",
    (48, 40, 3),
    {"depths": (1,), "repeats": (1, 1, 1, 1, 1)},
    1,
    lambda: nets.mobilenet_v1(3, (1, 1, 1, 1, 1), 2),
  ),
  "mobilenet_v2": (
    "mobilenet_v2",
    (32, 32, 3),
    {"depths": (1, 4), "repeats": (1, 2, 1, 1, 1, 1, 1)},
    1,
    lambda: nets.mobilenet_v2(3, (1, 2, 1, 1, 1, 1, 1), SMALL),
  ),
  "mobilenet_v2, 64x48": (
    "mobilenet_v2",
    (64, 48, 3),
    {"depths": (1,), "repeats": (1,) * 7},
    1,
    lambda: nets.mobilenet_v2(3, (1,) * 7, STANDARD),
  ),
}
TRAINED = ["vgg11", "resnet18", "resnet50", "mobilenet_v1", "mobilenet_v2"]


def ours(name):
  """Our network and a random segment of it."""
  kind, shape, options, *_ = NETWORKS[name]
  net = BACKBONES[kind](shape, 5, width=1 / 8, **options)
  return net, fill(
    jax.eval_shape(lambda: backbones.init(net, jax.random.key(0)))
  )


def theirs(name, net, full):
  """The same in PyTorch: name -> module, with exits and head."""
  *_, pool, make = NETWORKS[name]
  out = shapes.outputs(net)
  made = make()
  assert tuple(made) == net.names()
  made["head"] = nets.Dense(out[net.names()[-1]][-1], 5, False)
  for depth in net.cuts:
    channels = out[net.names()[depth - 1]][-1]
    made[backbones.exit_name(depth)] = nets.exit_of(channels, 5, pool)
  for key, module in made.items():
    own = module[1] if key.startswith("exit") else module
    nets.copy(own, full.params[key], full.stats[key])
  return made


def images(net, count):
  shape = (count, *net.shape)
  return np.random.default_rng(1).normal(size=shape)


@pytest.mark.parametrize("name", NETWORKS)
def test_inference_of_whole_networks(name):
  net, full = ours(name)
  modules, x = theirs(name, net, full), images(net, 2)

  @jax.jit
  def logits(x):
    said = {}
    for depth, block in enumerate(net.names(), start=1):
      x, _ = backbones.run(net, full, x, (block,), train=False)
      if depth in net.exits:
        place = backbones.exit_name(depth)
        said[place], _ = backbones.run(net, full, x, (place,), train=False)
    said["head"], _ = backbones.run(net, full, x, ("head",), train=False)
    return said

  said = logits(x)
  y = torch.tensor(x).permute(0, 3, 1, 2)
  with torch.no_grad():
    for depth, block in enumerate(net.names(), start=1):
      y = modules[block].eval()(y)
      if depth in net.exits:
        want = modules[backbones.exit_name(depth)](y).numpy()
        np.testing.assert_allclose(
          said[backbones.exit_name(depth)], want, rtol=1e-9, atol=1e-9
        )
    want = modules["head"](y).numpy()
  assert want.std() > 0.1
  np.testing.assert_allclose(said["head"], want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", TRAINED)
def test_one_training_pass_of_whole_networks(name):
  net, full = ours(name)
  modules, x = theirs(name, net, full), images(net, 6)
  names = (*net.names(), "head")
  run = functools.partial(backbones.run, net, names=names, train=True)
  said, stats = jax.jit(run)(full, x)
  y = torch.tensor(x).permute(0, 3, 1, 2)
  with torch.no_grad():
    for block in names:
      nets.watch(modules[block])
      y = modules[block].train()(y)
  np.testing.assert_allclose(said, y.numpy(), rtol=1e-8, atol=1e-8)
  # PyTorch keeps the unbiased variance, n / (n - 1) of ours; `read` undoes it.
  for block in net.names():
    want = nets.read(modules[block], full.stats[block])
    for a, b in zip(
      jax.tree.leaves(stats[block]), jax.tree.leaves(want), strict=True
    ):
      np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def leaf(x):
  """Our array as a tensor whose gradient is taken."""
  return torch.tensor(np.array(x), requires_grad=True)


def dense(x, own):
  return x @ own["kernel"] + own["bias"]


def mlp(own, names, x):
  """Dense layers with ReLU; our parameters as they are."""
  x = x.flatten(1)
  for name in names:
    x = torch.relu(dense(x, own[name]["Dense_0"]))
  return x


def cnn1d(own, names, x):
  """torch's conv1d and max_pool1d, on [B, c, T]."""
  x = x.transpose(1, 2)
  for name in names[:2]:
    kernel, bias = own[name]["Dense_0"]["kernel"], own[name]["Dense_0"]["bias"]
    kernel = kernel.reshape(-1, x.shape[1], len(bias)).permute(2, 1, 0)
    x = torch.nn.functional.conv1d(x, kernel, bias)
    x = torch.nn.functional.max_pool1d(torch.relu(x), 2)
  return mlp(own, names[2:], x.transpose(1, 2))


def transformer_text(own, names, x):
  """torch's own TransformerEncoderLayer behind an embedding."""
  first = own["block1"]
  tokens = first["tokens"][x]
  cls = first["cls"].expand(len(x), 1, -1)
  x = torch.cat([cls, tokens], 1) + first["positions"]
  dim = x.shape[-1]
  for name in names:
    layer = torch.nn.TransformerEncoderLayer(
      dim, 2, 4 * dim, 0.0, "gelu", 1e-6, batch_first=True, norm_first=True
    )
    x = torch.func.functional_call(layer, layer_of(own[name], dim), (x,))
  last = own[names[-1]]["LayerNorm_2"]
  return torch.nn.functional.layer_norm(
    x[:, 0], (dim,), last["scale"], last["bias"], 1e-6
  )


def layer_of(own, dim):
  """Our parameters of a block by torch's names."""
  heads = own["Attention_0"]
  inner = [heads[name] for name in ("query", "key", "value")]
  flat = [each["kernel"].reshape(dim, dim).T for each in inner]
  return {
    "self_attn.in_proj_weight": torch.cat(flat),
    "self_attn.in_proj_bias": torch.cat([x["bias"].flatten() for x in inner]),
    "self_attn.out_proj.weight": heads["out"]["kernel"].reshape(dim, dim).T,
    "self_attn.out_proj.bias": heads["out"]["bias"],
    "linear1.weight": own["Dense_0"]["kernel"].T,
    "linear1.bias": own["Dense_0"]["bias"],
    "linear2.weight": own["Dense_1"]["kernel"].T,
    "linear2.bias": own["Dense_1"]["bias"],
    "norm1.weight": own["LayerNorm_0"]["scale"],
    "norm1.bias": own["LayerNorm_0"]["bias"],
    "norm2.weight": own["LayerNorm_1"]["scale"],
    "norm2.bias": own["LayerNorm_1"]["bias"],
  }


@pytest.mark.parametrize(
  ("made", "shape", "given"),
  [
    (mlp, (7,), {"width": 5}),
    (cnn1d, (35, 3), {"width": 1 / 16, "kernel": 5}),
    (
      transformer_text,
      (6,),
      {"vocabulary": 11, "width": 8, "heads": 2, "length": 3},
    ),
  ],
)
def test_networks_of_other_inputs_and_their_gradients(made, shape, given):
  net = BACKBONES[made.__name__](shape, 4, depths=(1,), **given)
  full = fill(jax.eval_shape(lambda: backbones.init(net, jax.random.key(0))))
  rng, count = np.random.default_rng(1), (5, *shape)
  x = rng.normal(size=count)
  if net.vocabulary:
    x = rng.integers(0, net.vocabulary, count)

  def loss(params):
    path = (*net.names(), "head")
    segment = full._replace(params=params)
    logits, _ = backbones.run(net, segment, x, path, train=True)
    return (logits**2).mean(), logits

  (_, logits), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(
    full.params
  )
  own = jax.tree.map(leaf, full.params)
  theirs = dense(
    made(own, net.names(), torch.tensor(x)), own["head"]["Dense_0"]
  )
  np.testing.assert_allclose(logits, theirs.detach(), rtol=1e-9, atol=1e-9)
  (theirs**2).mean().backward()
  for name in (*net.names(), "head"):
    pairs = zip(*map(jax.tree.leaves, (grads[name], own[name])), strict=True)
    for mine, other in pairs:
      np.testing.assert_allclose(mine, other.grad, rtol=1e-8, atol=1e-10)
