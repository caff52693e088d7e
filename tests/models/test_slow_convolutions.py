"""Convolutions that are slow on a CPU are said: who made them, and where."""

import functools
import re

import jax
import pytest
import tiny
from flax import linen as nn
from flax import nnx
from flax.nnx import bridge
from marks import slow

import splitjax
from splitjax import BACKBONES, experiment, models, target
from splitjax.models import Backbone


@pytest.mark.parametrize("name", ["cnn8", *slow("mobilenet_v2")])
def test_our_own_convolutions_are_not_slow(name):
  net = BACKBONES[name]((32, 32, 3), 10)
  assert models.slow_convolutions(net) == ""


class Convolved(nn.Module):
  """An embedding behind a convolution of one of several makers."""

  maker: str

  @nn.compact
  def __call__(self, x, train, real):
    if self.maker == "splitjax":
      x = models.Conv(3)(x)
    elif self.maker == "flax":
      x = nn.remat(nn.Conv)(3, (3, 3))(x)
    elif self.maker == "nnx":
      new = functools.partial(nnx.Conv, kernel_size=(3, 3))
      x = bridge.ToLinen(new, args=(x.shape[-1], 3))(x)
    elif self.maker == "lax":
      kernel = self.param("kernel", nn.initializers.ones, (3, 3, 1, 3))
      where = ("NHWC", "HWIO", "NHWC")
      x = jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=where
      )
    return nn.Dense(4)(nn.relu(x).reshape(x.shape[0], -1))


class Plain(nn.Module):
  """A dense layer."""

  width: int = 4

  @nn.compact
  def __call__(self, x, train, real):
    return nn.Dense(self.width)(x)


def network(shape, classes, *, depths: tuple[int, ...] = (1,), maker: str):
  blocks = {"one": Convolved(maker), "two": Plain()}
  exits = dict.fromkeys(depths, Plain(classes))
  return Backbone("mine", shape, classes, blocks, exits, Plain(classes))


SAID = "the convolutions of one are slow on a CPU: a round takes .* "


class Series(nn.Module):
  """An embedding behind a convolution along time."""

  @nn.compact
  def __call__(self, x, train, real):
    x = nn.relu(nn.Conv(3, (3,))(x))
    return nn.Dense(4)(x.reshape(x.shape[0], -1))


def along_time(shape, classes, *, depths: tuple[int, ...] = (1,)):
  blocks = {"one": Series(), "two": Plain()}
  exits = dict.fromkeys(depths, Plain(classes))
  return Backbone("mine", shape, classes, blocks, exits, Plain(classes))


@pytest.mark.parametrize("maker", ["splitjax", "flax", "nnx", "lax"])
def test_slow_convolutions_are_said(maker):
  net = network((4, 4, 1), 4, maker=maker)
  sentence = models.slow_convolutions(net)
  if maker == "splitjax":
    assert not sentence
  else:
    assert re.match(f"{SAID}splitjax.models.layers.Conv", sentence)
  with target.aimed_at(target.current()._replace(platform="gpu")):
    assert models.slow_convolutions(net) == ""


@pytest.mark.parametrize(
  ("factory", "shape", "remedy"),
  [
    (functools.partial(network, maker="flax"), (4, 4, 1), "models.layers.Conv"),
    (along_time, (8, 2), "models.windows"),
  ],
)
def test_the_check_of_a_network_says_what_is_fast(factory, shape, remedy):
  *_, sentence = models.check_backbone(factory, shape=shape)
  assert re.match(f"{SAID}.*{remedy}", sentence)


@pytest.mark.slow
def test_describe_says_that_convolutions_are_slow(monkeypatch):
  factory = functools.partial(network, maker="flax")
  monkeypatch.setitem(BACKBONES, "mine", factory)
  draft = tiny.tiny(own="local")
  draft.backbone = splitjax.spec(BACKBONES, "mine")
  page = experiment.describe_text(experiment.describe_run(tiny.resolved(draft)))
  assert "  the convolutions of one are slow on a CPU: a round" in page
