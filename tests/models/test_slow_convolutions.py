"""Convolutions that are slow on a CPU are said: who made them, and where."""

import functools

import jax
import pytest
import tiny
from flax import linen as nn
from flax import nnx
from flax.nnx import bridge
from marks import slow

import splitjax
from splitjax import BACKBONES, experiment, models
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


TOLD = "the convolutions of one are slow on a CPU"


@pytest.mark.parametrize("maker", ["splitjax", "flax", "nnx", "lax"])
def test_slow_convolutions_are_said(maker):
  net = network((4, 4, 1), 4, maker=maker)
  told = models.slow_convolutions(net)
  assert told.startswith(TOLD) == (maker != "splitjax")
  with models.aimed_at(models.current()._replace(platform="gpu")):
    assert models.slow_convolutions(net) == ""


def test_the_check_of_a_network_says_it():
  made = functools.partial(network, maker="flax")
  said = models.check_backbone(made, shape=(4, 4, 1), classes=4)
  assert said[-1].startswith(TOLD)


@pytest.mark.slow
def test_describe_says_that_convolutions_are_slow(monkeypatch):
  made = functools.partial(network, maker="flax")
  monkeypatch.setitem(BACKBONES, "mine", made)
  draft = tiny.tiny(own="local")
  draft.backbone = splitjax.spec(BACKBONES, "mine")
  found = experiment.describe_run(tiny.resolved(draft))
  assert f"  {TOLD}: a round" in experiment.describe_text(found)
