"""The contract of networks: those that keep it, and mistakes in one's own."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from flax import linen as nn
from flax import nnx
from flax.nnx import bridge
from marks import slow
from refusals import refused
from tiny_networks import whole

import splitjax
from splitjax import BACKBONES, experiment, models
from splitjax.models import Backbone


class Flat(nn.Module):
  """A dense layer on the flattened input, and what goes wrong in it."""

  width: int = 5
  wrong: str = ""

  @nn.compact
  def __call__(self, x, train, real):
    batch = len(x) if self.wrong == "length" else x.shape[0]
    x = nn.Dense(self.width)(x.reshape(batch, -1))
    if self.wrong == "pairs":
      return x.reshape(-1, 2 * self.width)
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
      x = x + jax.lax.stop_gradient(
        self.param("fixed", nn.initializers.ones, (self.width,))
      )
    if self.wrong == "pair":
      return x, x
    if self.wrong == "nothing":
      return None
    if self.wrong == "dropout":
      return nn.Dropout(0.5)(x, deterministic=not train)
    if self.wrong == "statistics":
      seen = self.variable("batch_stats", "seen", lambda: jnp.zeros(()))
      if train and not self.is_initializing():
        seen.value = x.sum(axis=0)
    return nn.relu(x) if self.wrong != "names" else x


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
  made = {name: Flat() for name in blocks}
  made |= {blocks[0]: first, blocks[-1]: Flat(wrong=last)}
  exits = {k: Flat(classes) for k in depths}
  return Backbone("mine", shape, classes, made, exits, Flat(classes - head))


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


FIRST = "cnn1d", "cnn4"


@pytest.mark.parametrize(
  "name", [*FIRST, *slow(*sorted(BACKBONES.keys() - {*FIRST}))]
)
def test_the_forms_of_all(name):
  models.check_forms(whole(name))


def test_ones_own_keeps_it():
  """A gate of zero and a frozen parameter are no mistakes."""
  assert len(SMALL(functools.partial(mine, wrong="gate", last="frozen"))) == 7
  assert splitjax.check_backbone is models.check_backbone


WRONG = [
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
]


@pytest.mark.parametrize(("options", "said"), WRONG)
def test_a_network_that_breaks_it(options, said):
  with pytest.raises(models.Broken, match=said):
    SMALL(functools.partial(mine, **options))


@pytest.mark.parametrize("depths", [(), (1, 2)])
def test_exits_behind_blocks_that_can_be_cut(depths):
  with refused("backbone.name"):
    models.check_forms(mine((4, 4, 1), 4, depths=depths))


def test_a_network_without_cuts_in_its_options(monkeypatch):
  fixed = functools.partial(mine, depths=(1,))
  with pytest.raises(models.Broken, match="no option depths"):
    SMALL(fixed)
  monkeypatch.setitem(BACKBONES, "mine", fixed)
  draft = tiny.tiny(own="local")
  draft.backbone = splitjax.spec(BACKBONES, "mine")
  with refused("backbone.name"):
    experiment.build(tiny.resolved(draft))


def changed(**fields):
  """A factory of `mine` whose Backbone has other fields."""

  def factory(shape, classes, *, depths: tuple[int, ...] = (1,)):
    return dataclasses.replace(mine(shape, classes, depths=depths), **fields)

  return factory


def bare(shape, classes, *, depths: tuple[int, ...]):
  return mine(shape, classes, depths=depths)


OTHER = "asked for inputs, classes and exits .* its factory makes"
MISTAKES = [
  (changed(head=Flat(wrong=np.zeros(2))), "made twice .* it is not equal"),
  (changed(shape=(1, 4, 4)), OTHER),
  (changed(classes=5), OTHER),
  (changed(exits={2: Flat(4)}), OTHER),
  (bare, "option depths of bare: it needs a default"),
  (mine((4, 4, 1), 4), "a Backbone is no factory: give the function"),
  (lambda shape, classes, *, depths=(1,): None, "option depths of"),
]


@pytest.mark.parametrize(("factory", "said"), MISTAKES)
def test_what_is_no_network_is_one_line(factory, said):
  with pytest.raises(models.Broken, match=said) as caught:
    SMALL(factory)
  assert "\n" not in str(caught.value)


def test_a_factory_that_returns_nothing():
  def factory(shape, classes, *, depths: tuple[int, ...] = (1,)):
    mine(shape, classes, depths=depths)

  with pytest.raises(models.Broken, match="returns no Backbone, but None"):
    SMALL(factory)


def test_a_network_that_computes_in_float32_alone(monkeypatch):
  monkeypatch.setitem(BACKBONES, "mine", mine)
  draft = tiny.tiny(own="splitgp")
  draft.backbone = splitjax.spec(BACKBONES, "mine")
  draft.system.compute_dtype = "bfloat16"
  with refused("system.compute_dtype"):
    experiment.build(tiny.resolved(draft))


def test_options_that_no_config_can_hold(monkeypatch):
  def bare(shape, classes, *, width=3):
    return mine(shape, classes)

  def foreign(shape, classes, *, depths: "Nowhere" = (1,)):  # noqa: F821
    return mine(shape, classes, depths=depths)

  for factory in (bare, foreign):
    with pytest.raises(models.Broken, match=factory.__name__):
      SMALL(factory)
    monkeypatch.setitem(BACKBONES, "mine", factory)
    with refused("mine=mine"):
      splitjax.spec(BACKBONES, "mine")


class Normalised(nnx.Module):
  """A dense layer and batch norm of nnx."""

  def __init__(self, before, after, *, rngs):
    self.linear = nnx.Linear(before, after, rngs=rngs)
    self.norm = nnx.BatchNorm(after, rngs=rngs)

  def __call__(self, x, train, real):
    x = self.linear(x.reshape(x.shape[0], -1))
    mask = real[:, None]
    return nnx.relu(self.norm(x, use_running_average=not train, mask=mask))


@pytest.mark.slow
def test_modules_of_nnx_are_blocks():
  def network(shape, classes, *, depths: tuple[int, ...] = (1, 2)):
    widths = (int(np.prod(shape)), 8, 6, 5)
    blocks = {
      f"block{i}": bridge.to_linen(Normalised, *widths[i : i + 2])
      for i in range(3)
    }
    exits = {k: Flat(classes) for k in depths}
    return Backbone("nnx", shape, classes, blocks, exits, Flat(classes))

  sizes = models.parameters(network((4, 4, 1), 4))
  assert sizes["block1"] == 8 * 6 + 6 + 2 * 6
  assert len(SMALL(network)) == 7
