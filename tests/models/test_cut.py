"""What cannot be cut or held is one line before any array is made."""

import jax
import pytest
from refusals import refused

from splitjax import models
from splitjax.models import BACKBONES
from splitjax.options import Spec, declared


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
  free = {key for key, (hint, _) in known if hint in numbers}
  assert not free


def test_large_networks_are_cut():
  assert cut("vit_b16", depths=(11,)).cuts == (11,)
  assert cut("vgg11", width=30.0).length == 8  # 8.3 billion
