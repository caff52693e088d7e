"""Networks as wholes: parameters of the papers, shapes, names, strides."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow

from splitjax import models
from splitjax.models import BACKBONES, Style, is_norm

# (name, input, classes, options) -> parameters of the whole network, and by
# depth |phi|, |h|, |theta|. Depths that no paper prints were counted by hand.
TABLE = [
  # HARMONY, Table 1.
  ("cnn8", (28, 28, 1), 10, {}, 3_868_170, {
    2: (18_816, 5_770, 3_849_354),
    3: (92_672, 11_530, 3_775_498),
    4: (387_840, 23_050, 3_480_330)}),
  # conv3 128-256 with bias: 295,168, and its normalisation 512.
  ("vgg11", (32, 32, 3), 10, {}, 9_231_114, {
    2: (76_032, 5_130, 9_155_082),
    3: (371_712, 10_250, 8_859_402),
    4: (962_304, 10_250, 8_268_810)}),
  # Blocks 1 to 5: 896 + 5,136 + 8,832 + 10,000 + 14,848 behind the stem's 928.
  ("mobilenet_v2", (32, 32, 3), 100, {}, 2_351_972, {
    1: (928, 3_300, 2_351_044),
    6: (40_640, 3_300, 2_311_332),
    11: (239_360, 6_500, 2_112_612)}),
  # Bottlenecks 2 and 3 have 70,400 each.
  ("resnet50", (64, 64, 3), 200, {}, 23_917_832, {
    1: (84_544, 51_400, 23_833_288),
    3: (225_344, 51_400, 23_692_488),
    5: (884_800, 102_600, 23_033_032)}),
  # Depth 4 is depth 2 and two blocks of 1,774,464 =
  # 4 (384 * 384 + 384) + 2 * 384 * 1,536 + 1,536 + 384 + 4 * 384.
  ("vit_s16", (32, 32, 3), 100, {}, 21_704_164, {
    2: (3_920_256, 39_268, 17_783_908),
    4: (7_469_184, 39_268, 14_234_980),
    6: (11_018_112, 39_268, 10_686_052)}),
  # McMahan et al. 2017, section 3: "1,663,370 total parameters", and the 2NN.
  ("cnn4", (28, 28, 1), 10, {}, 1_663_370, {}),
  ("mlp", (28, 28, 1), 10, {"length": 2, "depths": (1,)}, 199_210, {}),
  # kuangliu/pytorch-cifar, MobileNet().
  ("mobilenet_v1", (32, 32, 3), 10, {}, 3_217_226, {}),
  # torchvision, resnet18: 11,689,512 with 1000 classes, 513,000 in the last
  # layer; with 200 that has 102,600.
  ("resnet18", (64, 64, 3), 200, {}, 11_279_112, {}),
  # By hand: 2,624 + 18,496 + 1,704,960 + 524,800 + 3,078.
  ("cnn1d", (128, 9), 6, {}, 2_253_958, {}),
  # 64 V + 65 * 64 + 64, four blocks of 49,984, 128 and 260.
  ("transformer_text", (64,), 4, {"vocabulary": 100}, 6_400 + 204_548, {}),
]  # fmt: skip
# With ImageNet's head: Keras (4,253,864 with 21,888 running statistics),
# torchvision's num_params of the published weights, timm.
IMAGENET = {
  "mobilenet_v1": 4_253_864 - 21_888,
  "mobilenet_v2": 3_504_872,
  "resnet18": 11_689_512,
  "resnet50": 25_557_032,
  "resnet101": 44_549_160,
  "vit_s16": 22_050_664,
  "vit_b16": 86_567_656,
}
ROWS = [
  *TABLE,
  *slow(*((n, (224, 224, 3), 1000, {}, k, {}) for n, k in IMAGENET.items())),
]
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
LARGE = "mobilenet_v2", "resnet50", "resnet101"
every = pytest.mark.parametrize(
  "name", [*sorted(LAYOUT.keys() - {*LARGE}), *slow(*LARGE)]
)


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


@pytest.mark.parametrize(
  ("name", "shape", "classes", "options", "whole", "by_depth"), ROWS
)
def test_parameters_are_those_published(
  name, shape, classes, options, whole, by_depth
):
  net = BACKBONES[name](shape, classes, **options)
  size = models.parameters(net)
  assert sum(size[n] for n in (*net.names(), "head")) == whole
  if not by_depth:
    return
  assert net.cuts == tuple(by_depth)
  full = models.shapes(net)
  for depth, (phi, h, theta) in by_depth.items():
    assert sum(size[n] for n in net.names(0, depth)) == phi
    assert size[models.exit_name(depth)] == h
    assert sum(size[n] for n in (*net.names(depth), "head")) == theta
    assert phi + theta == whole
    assert sum(size[n] for n in models.prefix(net, full, depth).params) == (
      phi + h
    )


@every
def test_length_cuts_and_maps(name):
  net = narrow(name)
  assert (net.length, net.cuts, maps(net)[-1][:2]) == LAYOUT[name]
  assert tuple(models.outputs(net)) == net.names()
  # What the head reads is the embedding, flat.
  assert len(models.outputs(net)[net.names()[-1]]) == 1
  # The narrowest has one channel everywhere.
  thin = short(name, width=1e-6)
  assert {shape[-1] for shape in models.outputs(thin).values()} == {1}


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


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("name", ["vgg11", "resnet18", "mobilenet_v2"])
def test_norms_are_known_by_their_path(name, norm):
  net = short(name, width=1 / 32, style=Style(norm=norm))
  full, kind = models.shapes(net), f"{norm.title()}Norm"
  assert bool(jax.tree.leaves(full.stats)) == (norm == "batch")
  for path, _ in jax.tree_util.tree_leaves_with_path(full):
    kinds = ("BatchNorm", "GroupNorm", "LayerNorm")
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    named = [k for k in kinds if is_norm(name, k)]
    # Nothing else has a scale or statistics; a bias may be a norm's or not.
    certain = path[-1].key in ("scale", "mean", "var")
    assert named == [kind] if certain else named in ([], [kind])


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
