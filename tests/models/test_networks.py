"""Methods on every backbone, tiny in width and depth."""

import itertools

import jax
import numpy as np
import pytest
import tiny
from tiny_networks import IMAGES, TINY

import splitjax
from splitjax import BACKBONES, PARTITIONS, SHIFTS, experiment
from splitjax.engine.round import run_round
from splitjax.experiment import Programs


@pytest.fixture(name="colours", scope="module")
def draw_colours(tmp_path_factory):
  """A data set of 20 training and 4 test images 32x32x3 of two classes."""
  rng = np.random.default_rng(0)
  arrays = {}
  for split, count in (("train", 20), ("test", 4)):
    arrays[f"{split}_image"] = rng.integers(
      0, 256, (count, 32, 32, 3), np.uint8
    )
    arrays[f"{split}_label"] = np.arange(count) % 2
  path = tmp_path_factory.mktemp("colours") / "colours.npz"
  np.savez(path, **arrays)
  return f"npz:{path}"


def config(colours, backbone, method):
  """Two clients, of different depth with HARMONY, two steps a round."""
  c = tiny.tiny(only=method)
  options = {**TINY[backbone]}
  if method != "harmony":
    options["depths"] = options["depths"][:1]
  c.backbone = splitjax.spec(BACKBONES, backbone, **options)
  if backbone in SIXTEEN:
    c.system.compute_dtype = "bfloat16"
  c.data.name = colours
  c.data.partition = splitjax.spec(PARTITIONS, "iid")
  c.data.train_samples = c.data.test_samples = None
  c.num_clients, c.batch_size = 2, 5
  c.eval.shift, c.eval.rhos = splitjax.spec(SHIFTS, "global"), None
  return tiny.resolved(c)


def begin(resolved):
  """The method in its world, and its state before the first round."""
  task = experiment.build(resolved)
  setup = experiment.make_setup(task, "only")
  full = experiment.fresh_network(task)
  return setup, Programs(setup).init(full)


KINDS = "harmony", "hydra", "fedpac", "moon", "supersfl"
"""Of each kind of step; all methods are traced in test_task_losses.py. The
longer ones meet the shorter networks."""
SIXTEEN = {"cnn8", "vit_s16"}  # whose states stay float32
SAME = {"vit_b16", "resnet101"}  # as others, but for sizes
EVERY = [name for name in IMAGES if name not in SAME]
PAIRS = [*zip(itertools.cycle(KINDS), EVERY, strict=False)]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "backbone"), PAIRS)
def test_a_method_on_every_backbone(method, backbone, colours):
  # Traced, not compiled: whether they go together is a question of shapes.
  setup, state = begin(config(colours, backbone, method))
  after, told = jax.eval_shape(
    lambda *given: run_round(*given, layout=setup.layout, plans=setup.plans),
    *(setup.method, state, setup.shards),
  )
  for old, new in zip(*map(jax.tree.leaves, (state, after)), strict=True):
    assert (old.shape, old.dtype) == (new.shape, new.dtype)
  assert told.losses
