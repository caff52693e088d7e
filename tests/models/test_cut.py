"""What cannot be cut or held is one line before any array is made."""

import jax
import pytest

from splitjax import registry
from splitjax.models import BACKBONES, build
from splitjax.types import UserError


def cut(name, shape=(64, 64, 3), vocabulary=0, **given):
  spec = registry.read_spec(BACKBONES, {"name": name, **given}, "backbone")
  return build.cut(name, shape, 10, spec.options, vocabulary)


@pytest.mark.parametrize(
  ("name", "given", "said"),
  [
    # 9,216,000 w^2 + 40,704 w + 40, of which the last are biases of exits.
    ("vgg11", {"width": 1e6}, "9,216,000,040,704,000,040 parameters"),
    ("vgg11", {"width": float("nan")}, "backbone.width=nan must be a number"),
    ("vgg11", {"width": 1e30}, "must be above 0 and at most 1e+06"),
    ("toy", {"width": 10**9}, "must be at least 1 and at most 1e+06"),
    ("vit_s16", {"width": 1e6}, "more than 10,000,000,000; choose a smaller"),
    ("vit_s16", {"resolution": 16 * 10**5}, "backbone.resolution=1600000"),
    ("vit_s16", {"resolution": 30}, "multiple of backbone.patch=16"),
    ("vit_s16", {"length": 10**9}, "backbone.length=1000000000 must be"),
    ("resnet18", {"stages": (1, 1, 1, 10**9)}, "at most 250, each"),
    ("resnet18", {"stages": (1, 1)}, "backbone.stages=(1, 1) must be 4"),
    ("mobilenet_v1", {"repeats": (1,)}, "such as (1, 2, 2, 6, 2)"),
    ("vgg11", {"shape": (28, 28, 1)}, "28x28; set backbone.pad=True or"),
    ("cnn8", {"shape": (7, 9, 1)}, "at least 8x8, these are 7x9"),
    (
      "cnn4",
      {"shape": (14, 15, 1), "padding": "valid"},
      "at least 16x16",
    ),
    ("vgg11", {"depths": (2, 3, 2)}, "depths=(2, 3, 2) must differ"),
    ("vgg11", {"depths": ()}, "backbone.depths=() must have one number"),
    ("cnn8", {"shape": (128, 9)}, "takes images [H, W, c], and these data are"),
    ("vit_s16", {"shape": (9,)}, "are tables [F], [9]; choose another backbo"),
    ("vgg11", {"shape": (1, 32, 32, 3)}, "these data are inputs of 4 axes, [1"),
    ("cnn1d", {}, "takes series [T, c], and these data are images [H, W, c]"),
    ("cnn1d", {"shape": (24, 9)}, "series of 24 steps are too short for"),
    ("cnn1d", {"shape": (64, 9), "kernel": 4}, "backbone.kernel=4 must be odd"),
    ("cnn4", {"shape": (9,), "vocabulary": 5}, "takes numbers, and these data"),
    ("transformer_text", {"shape": (9,)}, "takes token ids, integers [Z, T],"),
    ("transformer_text", {}, "takes token ids [T], and these data are images"),
    (
      "transformer_text",
      {"shape": (9,), "vocabulary": 5, "width": 10},
      "backbone.width=10 must be a multiple of backbone.heads=4",
    ),
  ],
)
def test_what_cannot_be_is_one_line(name, given, said):
  before = jax.live_arrays()  # held, so that none is gone below
  with pytest.raises(UserError) as caught:
    cut(name, **given)
  message = str(caught.value)
  assert message.startswith("backbone.") and said in message
  assert "\n" not in message
  assert len(jax.live_arrays()) == len(before)


@pytest.mark.parametrize("name", BACKBONES)
def test_every_number_of_an_option_has_an_end(name):
  numbers = {int, float, tuple[int, ...]}
  known = registry.options(BACKBONES[name]).items()
  free = {key for key, (hint, _) in known if hint in numbers}
  assert not free


def test_large_networks_are_cut():
  assert cut("vit_b16", depths=(11,)).cuts == (11,)
  assert cut("vgg11", width=30.0).length == 8  # 8.3 billion
