"""The contract of networks, mistakes in one's own, and what cannot be cut."""

import dataclasses
import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from flax import linen as nn
from marks import slow
from refusals import refused
from tiny_networks import IMAGES, TINY, whole

import splitjax
from splitjax import BACKBONES, METHODS, experiment, models, target
from splitjax.methods import Optimizer
from splitjax.models import Backbone, Style
from splitjax.options import Spec, declared
from splitjax.simulation import sandbox


class Flat(nn.Module):
  """A dense layer on the flattened input, and what goes wrong in it."""

  width: int = 5
  wrong: str = ""

  @nn.compact
  def __call__(self, x, train, real):
    if self.wrong in MAKERS:
      x = nn.relu(MAKERS[self.wrong](x, self))
    batch = len(x) if self.wrong == "length" else x.shape[0]
    x = nn.Dense(self.width)(x.reshape(batch, -1))
    if self.wrong == "first":
      return jnp.concatenate([x, x]) if len(x) > 1 else x
    if self.wrong == "map":
      return x[:, None, None, :]
    if self.wrong == "half":
      return x.astype(jnp.float16)
    if self.wrong == "padding":
      mean = x.mean(axis=0)
      return x - (mean if train else 0.0)
    if self.wrong == "others":
      return x - (0.0 if train else x.mean(axis=0))
    if self.wrong == "unused":
      self.param("spare", nn.initializers.ones, (3,))
    if self.wrong == "root":
      return jnp.sqrt(jnp.abs(0.0 * x))
    if self.wrong == "gate":  # not wrong
      x = x * self.param("gate", nn.initializers.zeros, ())
    if self.wrong == "frozen":  # neither
      fixed = self.param("fixed", nn.initializers.ones, (self.width,))
      x = x + jax.lax.stop_gradient(fixed)
    if self.wrong == "statistics":
      seen = self.variable("batch_stats", "seen", lambda: jnp.zeros(()))
      if train and not self.is_initializing():
        seen.value = x.sum(axis=0)
    return nn.relu(x)


def by_lax(x, module):
  kernel = module.param("kernel", nn.initializers.ones, (3, 3, 1, 3))
  where = ("NHWC", "HWIO", "NHWC")
  return jax.lax.conv_general_dilated(
    x, kernel, (1, 1), "SAME", dimension_numbers=where
  )


MAKERS = {
  "flax": lambda x, _: nn.remat(nn.Conv)(3, (3, 3))(x),
  "series": lambda x, _: nn.Conv(3, (3,))(x),
  "lax": by_lax,
}
"""Who makes a convolution that is slow on a CPU."""


class Odd:
  """A block that equals no other."""

  def __init__(self):
    self.module = Flat()
    self.init, self.apply = self.module.init, self.module.apply


def mine(
  shape,
  classes,
  *,
  depths: tuple[int, ...] = (1,),
  wrong: str = "",
  last: str = "",
  head: int = 0,
  blocks: tuple[str, ...] = ("one", "two"),
):
  first = Odd() if wrong == "odd" else Flat(wrong=wrong)
  parts = {name: Flat() for name in blocks}
  parts |= {blocks[0]: first, blocks[-1]: Flat(wrong=last)}
  exits = {k: Flat(classes) for k in depths}
  return Backbone("mine", shape, classes, parts, exits, Flat(classes - head))


SMALL = functools.partial(models.check_backbone, shape=(4, 4, 1), classes=4)


@pytest.mark.parametrize(
  ("name", "options"),
  [
    ("toy", {}),
    ("cnn1d", {"width": 1 / 16}),
    *slow(("transformer_text", {"width": 8}), ("cnn4", {})),
  ],
)
def test_our_own_keep_it_on_inputs_of_their_kind(name, options):
  factory = functools.partial(BACKBONES[name], **options)
  parts = models.check_backbone(factory)
  assert len(parts) == 7 and "depths" in parts[0]


QUICK = "cnn1d", "cnn4"


@pytest.mark.parametrize(
  "name", [*QUICK, *slow(*sorted(BACKBONES.keys() - {*QUICK}))]
)
def test_the_forms_of_all(name):
  models.check_forms(whole(name))


def test_ones_own_keeps_it():
  """A gate of zero and a frozen parameter are no mistakes."""
  assert len(SMALL(functools.partial(mine, wrong="gate", last="frozen"))) == 7
  # An option that is bound counts as one, also the cuts.
  assert len(SMALL(functools.partial(mine, depths=(1,)))) == 7
  assert splitjax.check_backbone is models.check_backbone


def changed(**fields):
  """A factory of `mine` whose Backbone has other fields."""

  def factory(shape, classes, *, depths: tuple[int, ...] = (1,)):
    return dataclasses.replace(mine(shape, classes, depths=depths), **fields)

  return factory


def bare(shape, classes, *, depths: tuple[int, ...]):
  return mine(shape, classes, depths=depths)


def nothing(shape, classes, *, depths: tuple[int, ...] = (1,)):
  mine(shape, classes, depths=depths)


def foreign(shape, classes, *, depths: "Nowhere" = (1,)):  # noqa: F821
  return mine(shape, classes, depths=depths)


OTHER = "asked for inputs, classes and exits .* its factory makes"
MISTAKES = [
  ({"head": 1}, r"head gives float32 \[6, 3\] of a batch of 6: .* logits"),
  ({"last": "map"}, r"two gives float32 \[6, 1, 1, 5\] .*\[B, D\]"),
  ({"wrong": "first"}, r"one gives float32 \[12, 5\]"),
  ({"wrong": "half"}, "one gives float16 .* hand float32 on"),
  ({"wrong": "statistics"}, "one changes the form of its running statistics"),
  ({"blocks": ("one", "head")}, "no block with the name of an exit"),
  ({"wrong": "odd"}, "made twice with the same options it is not equal"),
  ({"wrong": "length"}, r"one cannot take a batch of any size, .*x.shape\["),
  ({"wrong": "unused"}, "one/spare has no effect"),
  ({"wrong": "padding"}, "up to exit1 samples of padding change the others"),
  ({"wrong": "others"}, "at inference the logits of exit1 depend on other"),
  ({"wrong": "root"}, "the gradient of one/.* is not finite"),
  (changed(head=Flat(wrong=np.zeros(2))), "made twice .* it is not equal"),
  (changed(shape=(1, 4, 4)), OTHER),
  (changed(classes=5), OTHER),
  (changed(exits={2: Flat(4)}), OTHER),
  (nothing, "returns no Backbone, but None"),
  (BACKBONES["toy"]((4, 4, 1), 2), "a Backbone is no factory"),
  (bare, "option depths of bare: it needs a default"),
  (foreign, "foreign"),
  (lambda shape, classes, *, depths=(1,): None, "option depths of"),
  (lambda shape, classes: None, "no option depths"),
]


@pytest.mark.parametrize(("factory", "said"), MISTAKES)
def test_a_network_that_breaks_it_is_one_line(factory, said):
  if isinstance(factory, dict):
    factory = functools.partial(mine, **factory)
  with pytest.raises(models.Broken, match=said) as caught:
    SMALL(factory)
  assert "\n" not in str(caught.value)


def test_exits_are_behind_blocks_that_can_be_cut():
  for depths in ((), (1, 2)):
    with refused("backbone.name"):
      models.check_forms(mine((4, 4, 1), 4, depths=depths))


@pytest.mark.parametrize(
  ("factory", "dtype", "field"),
  [
    (lambda shape, classes: mine(shape, classes), "float32", "backbone.name"),
    (mine, "bfloat16", "system.compute_dtype"),
  ],
)
def test_a_config_names_a_network_that_lacks_something(
  factory, dtype, field, monkeypatch
):
  monkeypatch.setitem(BACKBONES, "mine", factory)
  draft = tiny.changed(tiny.tiny(own="splitgp"), system__compute_dtype=dtype)
  draft.backbone = splitjax.spec(BACKBONES, "mine")
  with refused(field):
    experiment.build(tiny.resolved(draft))


def test_an_annotation_that_names_nothing_is_refused(monkeypatch):
  monkeypatch.setitem(BACKBONES, "mine", foreign)
  with refused("mine=mine"):
    splitjax.spec(BACKBONES, "mine")


@pytest.mark.parametrize("name", ["cnn8", *slow("mobilenet_v2")])
def test_our_own_convolutions_are_not_slow(name):
  assert models.slow_convolutions(BACKBONES[name]((32, 32, 3), 10)) == ""


@pytest.mark.parametrize("maker", MAKERS)
def test_slow_convolutions_are_said(maker):
  shape = (8, 2) if maker == "series" else (4, 4, 1)
  factory = functools.partial(mine, wrong=maker)
  sentence = models.slow_convolutions(factory(shape, 4))
  assert re.match("the convolutions of one are slow on a CPU: .*Conv", sentence)
  assert "models.windows for series" in sentence
  if maker != "lax":
    assert models.check_backbone(factory, shape=shape)[-1] == sentence
  with target.aimed_at(target.current()._replace(platform="gpu")):
    assert models.slow_convolutions(factory(shape, 4)) == ""


KINDS = "harmony", "hydra", "fedpac", "moon", "supersfl"
"""Of each kind of step; all methods are traced in test_losses.py. The
longer ones meet the shorter networks."""
SIXTEEN = {"cnn8", "vit_s16"}  # whose states stay float32
SAME = {"vit_b16", "resnet101"}  # as others, but for sizes
EVERY = [name for name in IMAGES if name not in SAME]
PAIRS = [*zip(itertools.cycle(KINDS), EVERY, strict=False)]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "backbone"), PAIRS)
def test_a_method_on_every_backbone(method, backbone):
  # Traced, not compiled: whether they go together is a question of shapes.
  options = dict(TINY[backbone])
  if method != "harmony":
    options["depths"] = options["depths"][:1]
  style = Style("bfloat16" if backbone in SIXTEEN else "float32", "batch")
  shape = (32, 32, 3)
  net = BACKBONES[backbone](shape, sandbox.CLASSES, style=style, **options)
  kind = METHODS[method](backbone=net, optimizer=Optimizer(lr=0.1))
  sizes = (10, 10)
  trial = sandbox.build(
    kind, sandbox.fleet_of(kind, clients=2), sizes, batch=5,
    image=np.zeros((sum(sizes) + 5, *shape), np.uint8),
  )  # fmt: skip
  state = jax.eval_shape(trial.start, kind)
  after, metrics = jax.eval_shape(trial.round, kind, state)
  for old, new in zip(*map(jax.tree.leaves, (state, after)), strict=True):
    assert (old.shape, old.dtype) == (new.shape, new.dtype)
  assert metrics.losses


def cut(name, shape=(64, 64, 3), vocabulary=0, **given):
  spec = Spec.at(BACKBONES, "backbone", {"name": name, **given})
  return models.cut(name, shape, 10, spec.options, vocabulary)


@pytest.mark.parametrize(
  ("name", "given", "field"),
  [
    ("vgg11", {"width": 101.0}, "backbone.width"),
    ("vgg11", {"width": float("nan")}, "backbone.width"),
    ("toy", {"width": 10**9}, "backbone.width"),
    ("vit_s16", {"resolution": 16 * 10**5}, "backbone.resolution"),
    ("vit_s16", {"resolution": 30}, "backbone.resolution"),
    ("vit_s16", {"length": 10**9}, "backbone.length"),
    ("resnet18", {"stages": (1, 1, 1, 10**9)}, "backbone.stages"),
    ("resnet18", {"stages": (1, 1)}, "backbone.stages"),
    ("mobilenet_v1", {"repeats": (1,)}, "backbone.repeats"),
    ("vgg11", {"shape": (28, 28, 1)}, "backbone.name"),
    ("cnn8", {"shape": (7, 9, 1)}, "backbone.name"),
    ("vgg11", {"depths": (2, 3, 2)}, "backbone.depths"),
    ("vgg11", {"depths": ()}, "backbone.depths"),
    ("cnn8", {"shape": (128, 9)}, "backbone.name"),
    ("vit_s16", {"shape": (9,)}, "backbone.name"),
    ("vgg11", {"shape": (1, 32, 32, 3)}, "backbone.name"),
    ("cnn1d", {}, "backbone.name"),
    ("cnn1d", {"shape": (24, 9)}, "backbone.name"),
    ("cnn4", {"shape": (9,), "vocabulary": 5}, "backbone.name"),
    ("transformer_text", {"shape": (9,)}, "backbone.name"),
    ("transformer_text", {}, "backbone.name"),
    (
      "transformer_text",
      {"shape": (9,), "vocabulary": 5, "width": 10},
      "backbone.width",
    ),
  ],
)
def test_what_cannot_be_is_one_line(name, given, field):
  before = jax.live_arrays()  # held, so that none is gone below
  with refused(field):
    cut(name, **given)
  assert len(jax.live_arrays()) == len(before)


@pytest.mark.parametrize("name", BACKBONES)
def test_every_number_of_an_option_has_an_end(name):
  numbers = {int, float, tuple[int, ...]}
  known = declared(BACKBONES[name]).items()
  free = {key for key, option in known if option.annotation in numbers}
  assert not free


def test_large_networks_are_cut():
  assert cut("vit_b16", depths=(11,)).cuts == (11,)
  assert cut("vgg11", width=30.0).length == 8  # 8.3 billion
