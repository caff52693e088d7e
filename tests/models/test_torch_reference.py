"""Whole small networks against PyTorch's own modules, with copied weights.

Both sides compute in float64, in another order.
"""

import functools

import jax
import numpy as np
import pytest
from numpy_nets import fill

from splitjax.models import BACKBONES, backbones, drawing, shapes

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
    lambda: nets.mobilenet_v1(3, (1, 2, 1, 1, 1)),
  ),
  "mobilenet_v2": (
    "mobilenet_v2",
    (32, 32, 3),
    {"depths": (1, 4), "repeats": (1, 2, 1, 1, 1, 1, 1)},
    1,
    lambda: nets.mobilenet_v2(3, (1, 2, 1, 1, 1, 1, 1), SMALL),
  ),
}
TRAINED = ["vgg11", "resnet18", "resnet50", "mobilenet_v1", "mobilenet_v2"]


def ours(name):
  """Our network and a random segment of it."""
  kind, shape, options, *_ = NETWORKS[name]
  net = BACKBONES[kind](shape, 5, width=1 / 8, **options)
  return net, fill(jax.eval_shape(lambda: drawing.init(net, jax.random.key(0))))


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
