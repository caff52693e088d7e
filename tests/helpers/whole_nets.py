"""Whole networks an eighth as wide as in the papers, filled by a rule.

The rule needs nothing but a parameter's path, so that PyTorch's side
(`torch_logits`) and ours have the same networks.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from numpy_nets import fill

from splitjax import models
from splitjax.models import BACKBONES, Backbone
from splitjax.types import Net

CLASSES = 5
SHOWN, TRAINED = 2, 6
"""Images of inference and of the training step."""


class Case(NamedTuple):
  """A network: its name in BACKBONES, its input's shape, its options."""

  name: str
  shape: tuple[int, ...]
  options: dict[str, Any] = {}


CASES = {
  name: Case(name, shape, {"width": 1 / 8, **options})
  for name, shape, options in (
    ("mlp", (7,), {"width": 9}),
    ("cnn1d", (40, 3), {"depths": (1, 2, 3)}),
    ("cnn4", (28, 28, 1), {}),
    ("cnn8", (28, 28, 1), {}),
    ("vgg11", (32, 32, 3), {}),
    ("resnet18", (40, 36, 3), {"depths": (2, 3, 5), "stages": (2, 1, 1, 1)}),
    ("resnet50", (33, 32, 3), {"depths": (1, 2, 3), "stages": (2, 1, 1, 1)}),
    ("resnet101", (40, 33, 3), {"depths": (2, 3), "stages": (1, 1, 2, 1)}),
    (
      "mobilenet_v1",
      (32, 32, 3),
      {"depths": (2, 5), "repeats": (1, 2, 1, 1, 1)},
    ),
    (
      "mobilenet_v2",
      (32, 32, 3),
      {"depths": (1, 4), "repeats": (1, 2, 1, 1, 1, 1, 1)},
    ),
  )
}


def filled(case: Case) -> tuple[Backbone, Net]:
  """The network, and its parameters and statistics by the rule."""
  net = BACKBONES[case.name](case.shape, CLASSES, **case.options)
  return net, fill(jax.eval_shape(lambda: models.init(net, jax.random.key(0))))


def inputs(case: Case, count: int) -> np.ndarray:
  return np.random.RandomState(count).normal(size=(count, *case.shape))


def labels() -> np.ndarray:
  return np.arange(TRAINED) % CLASSES


def projected(tree) -> np.ndarray:
  """One number of a tree of arrays, in which every one of theirs counts."""
  weights = fill(tree, seed=1)
  products = jax.tree.map(np.vdot, tree, weights)
  return sum(jax.tree.leaves(products))
