"""The convolutional networks as wholes: sizes, shapes, names, options."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow

from splitjax import models
from splitjax.models import BACKBONES, Style

# (name, image, classes) -> parameters, and who says so.
PUBLISHED = {
  # McMahan et al. 2017, section 3: "1,663,370 total parameters".
  ("cnn4", (28, 28, 1), 10): 1_663_370,
  # kuangliu/pytorch-cifar, MobileNet().
  ("mobilenet_v1", (32, 32, 3), 10): 3_217_226,
  # Keras applications, MobileNet: 4,253,864 with 21,888 running statistics.
  ("mobilenet_v1", (224, 224, 3), 1000): 4_253_864 - 21_888,
  # torchvision, mobilenet_v2: num_params of the published weights.
  ("mobilenet_v2", (224, 224, 3), 1000): 3_504_872,
  # torchvision, resnet18: 11,689,512 with 1000 classes, 513,000 in the last
  # layer; with 200 that has 102,600.
  ("resnet18", (224, 224, 3), 1000): 11_689_512,
  ("resnet18", (64, 64, 3), 200): 11_279_112,
  # torchvision, resnet50 and resnet101: num_params of the published weights.
  ("resnet50", (224, 224, 3), 1000): 25_557_032,
  ("resnet101", (224, 224, 3), 1000): 44_549_160,
}
# Name -> L, default cuts, and the last map that a block hands on, of 32x32.
LAYOUT = {
  "cnn4": (3, (1, 2), (8, 8)),
  "cnn8": (7, (2, 3, 4), (4, 4)),
  "vgg11": (8, (2, 3, 4), (2, 2)),
  "mobilenet_v1": (26, (4, 15, 23), (2, 2)),
  "mobilenet_v2": (19, (1, 6, 11), (4, 4)),
  "resnet18": (11, (2, 6, 10), (1, 1)),
  "resnet50": (17, (1, 3, 5), (1, 1)),
  "resnet101": (36, (2, 10, 33), (1, 1)),
}
NORMALISED = sorted(LAYOUT.keys() - {"cnn4", "cnn8"})
FAST = {"cnn4", "cnn8", "vgg11", "mobilenet_v1", "resnet18"}


def some_slow(names):
  """Runs a test with each network, with the larger ones if all tests run."""
  marks = {name: [pytest.mark.slow] * (name not in FAST) for name in names}
  params = [pytest.param(name, marks=marks[name]) for name in names]
  return pytest.mark.parametrize("name", params)


every, normalised = some_slow(LAYOUT), some_slow(NORMALISED)


def narrow(name, shape=(32, 32, 3), **options):
  return BACKBONES[name](shape, 10, width=1 / 32, **options)


def short(name, shape=(32, 32, 3), **options):
  """One block per stage, where there are stages."""
  for option in ("stages", "repeats"):
    usual = inspect.signature(BACKBONES[name]).parameters.get(option)
    if usual:
      options[option] = (1,) * len(usual.default)
  return BACKBONES[name](shape, 10, depths=(1, 2), **options)


def maps(net):
  """The maps [H, W, c] that blocks hand on, in order, as far as there are."""
  return [shape for shape in models.outputs(net).values() if len(shape) == 3]


def keys(tree):
  """Every leaf's path, as a tuple of keys -> its shape."""
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  return {tuple(str(k.key) for k in path): x.shape for path, x in leaves}


@pytest.mark.parametrize(
  "row",
  [
    pytest.param(row, marks=[pytest.mark.slow] * (row[1] == (224, 224, 3)))
    for row in PUBLISHED
  ],
  ids=lambda row: f"{row[0]}-{row[2]}",
)
def test_parameters_are_those_published(row):
  name, shape, classes = row
  size = models.parameters(BACKBONES[name](shape, classes))
  whole = sum(n for k, n in size.items() if not k.startswith("exit"))
  assert whole == PUBLISHED[row]


@every
def test_length_cuts_and_maps(name):
  length, cuts, last = LAYOUT[name]
  net = narrow(name)
  assert net.name == name
  assert net.length == length
  assert net.cuts == cuts
  assert tuple(models.outputs(net)) == net.names()
  assert maps(net)[-1][:2] == last
  # What the head reads is the embedding, flat.
  assert len(models.outputs(net)[net.names()[-1]]) == 1


def test_hydra_counts_layers_so():
  names = narrow("mobilenet_v1").names()
  assert names[:5] == ("stem", "dw1", "pw1", "dw2", "pw2")
  assert names[-3:] == ("dw12", "pw12", "block13")
  # 12 layers with the classifier, 37 with 33 residual blocks.
  for name, blocks, layers in [("resnet18", 8, 12), ("resnet101", 33, 37)]:
    residual = [f"block{i}" for i in range(1, blocks + 1)]
    names = (*narrow(name).names(), "head")
    assert names == ("stem", "pool", *residual, "mean", "head")
    assert len(names) == layers


@pytest.mark.slow
def test_strides_follow_the_image():
  def last(name, edge):
    return maps(short(name, (edge, edge, 3), width=1 / 32))[-1][0]

  assert [last("mobilenet_v2", n) for n in (32, 33, 64, 224)] == [4, 2, 2, 7]
  # One more stride lies in the last block.
  assert [last("mobilenet_v1", n) for n in (32, 33, 64, 224)] == [4, 3, 4, 14]
  assert [last("resnet18", n) for n in (32, 64, 224)] == [1, 2, 7]
  assert last("vgg11", 64) == 4


@normalised
def test_normalisation_is_told_by_the_path(name):
  batch, group = map(
    models.shapes, (short(name), short(name, style=Style(norm="group")))
  )
  for path in keys(batch.params):
    inside = any("Norm_" in key for key in path)
    assert inside == (path[-2] == "BatchNorm_0")
    assert path[-1] in (("scale", "bias") if inside else ("kernel", "bias"))
  stats = keys(batch.stats)
  assert stats and all(path[-2] == "BatchNorm_0" for path in stats)
  # Group norm: as many parameters at the same places, no statistics.
  assert keys(group.stats) == {}
  participating = {
    tuple(key.replace("GroupNorm", "BatchNorm") for key in path): shape
    for path, shape in keys(group.params).items()
  }
  assert participating == keys(batch.params)


@every
def test_every_width_has_a_channel(name):
  net = short(name, width=1e-6)
  channels = {shape[-1] for shape in models.outputs(net).values()}
  # At one channel each; the 8-layer CNN's dense layers too.
  assert channels == {1}


@pytest.mark.parametrize(
  ("name", "dtype"),
  [
    ("cnn4", "bfloat16"),
    *slow(("resnet18", "bfloat16"), ("mobilenet_v2", "bfloat16")),
  ],
)
def test_only_the_computation_is_in_half_precision(name, dtype):
  net = short(name, width=1 / 32, style=Style(dtype))
  full = models.shapes(net)
  assert {x.dtype for x in jax.tree.leaves(full)} == {np.dtype("float32")}

  def walk(train):
    segment = models.init(net, jax.random.key(0))
    x, out = jnp.zeros((2, *net.shape)), {}
    names = (*net.names(), "head")
    for name in names:
      x, new = models.run(net, segment, x, (name,), train=train)
      out[name] = x, new
      depth = models.depth_of(net, models.select(segment, out))
      if depth in net.exits and name != "head":
        exit_ = models.exit_name(depth)
        out[exit_] = models.run(net, segment, x, (exit_,), train=train)
    return out

  for train in (False, True):
    for name, (x, new) in jax.eval_shape(lambda t=train: walk(t)).items():
      logits = name == "head" or name.startswith("exit")
      want = "float32" if logits else dtype
      assert x.dtype == want, name
      assert all(s.dtype == "float32" for s in jax.tree.leaves(new))


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
