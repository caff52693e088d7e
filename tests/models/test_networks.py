"""Methods on every backbone, tiny in width and depth."""

import itertools

import jax
import numpy as np
import pytest
from tiny_networks import IMAGES, TINY

from splitjax import BACKBONES, METHODS
from splitjax.engine.round import run_round
from splitjax.methods import Optimizer
from splitjax.models import Style
from splitjax.simulation import sandbox

KINDS = "harmony", "hydra", "fedpac", "moon", "supersfl"
"""Of each kind of step; all methods are traced in test_task_losses.py. The
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
  state = jax.eval_shape(trial.state)
  after, metrics = jax.eval_shape(
    lambda *arguments: run_round(*arguments, **trial.how),
    *(kind, state, trial.shards),
  )
  for old, new in zip(*map(jax.tree.leaves, (state, after)), strict=True):
    assert (old.shape, old.dtype) == (new.shape, new.dtype)
  assert metrics.losses
