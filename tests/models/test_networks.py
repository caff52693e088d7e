"""Methods on every backbone, tiny in width and depth; a round in bfloat16."""

import itertools

import jax
import numpy as np
import pytest
import tiny
from tiny_networks import IMAGES, TINY

import splitjax
from splitjax import BACKBONES, PARTITIONS, SHIFTS
from splitjax.engine import rounds
from splitjax.experiment.setup import tasks, training_setup
from splitjax.experiment.trainers.trainer import Trainer


@pytest.fixture(name="colours", scope="module")
def draw_colours(tmp_path_factory):
  """A data set of 20 training and 4 test images 32x32x3 of two classes."""
  rng = np.random.default_rng(0)
  arrays = {}
  for split, count in (("train", 20), ("test", 4)):
    arrays[f"x_{split}"] = rng.integers(0, 256, (count, 32, 32, 3), np.uint8)
    arrays[f"y_{split}"] = np.arange(count) % 2
  path = tmp_path_factory.mktemp("colours") / "colours.npz"
  np.savez(path, **arrays)
  return f"npz:{path}"


def config(colours, backbone, method, dtype="float32", **options):
  """Two clients, of different depth with HARMONY, two steps a round."""
  c = tiny.tiny(only=method)
  options = {**TINY[backbone], **options}
  if method != "harmony":
    options["depths"] = options["depths"][:1]
  c.backbone = splitjax.spec(BACKBONES, backbone, **options)
  c.system.compute_dtype = dtype
  c.data.name = colours
  c.data.partition = splitjax.spec(PARTITIONS, "iid")
  c.data.train_samples = c.data.test_samples = None
  c.num_clients, c.batch_size = 2, 5
  c.eval.shift, c.eval.rhos = splitjax.spec(SHIFTS, "global"), None
  return tiny.resolved(c)


def begin(resolved):
  """The method in its world, and its state before the first round."""
  task = tasks.build(resolved)
  setup = training_setup.make_setup(task, "only")
  full = tasks.fresh_network(task)
  return setup, Trainer(setup).init(full)


KINDS = "harmony", "moon", "hydra", "supersfl", "fedpac"
"""Of each kind of step; all methods are traced in test_task_losses.py."""
SAME = {"vit_b16", "resnet101"}  # as others, but for sizes
PAIRS = zip(itertools.cycle(KINDS), sorted({*IMAGES} - SAME), strict=False)


def one_round(colours, *chosen, **options):
  """Every parameter before a round and after, losses, and the program."""
  setup, state = begin(config(colours, *chosen, **options))
  made = rounds.make_round(setup.method, setup.plans, setup.fleet)
  before = flat(state)
  text = made.lower(state, setup.shards).as_text()
  state, told = made(state, setup.shards)
  losses = {name: float(loss) for name, loss in told.losses.items()}
  return before, flat(state), losses, text


def flat(state):
  """Every parameter, one vector; all that a state holds is finite float32."""
  halves = jax.device_get([*state.clients, state.server])
  leaves = jax.tree.leaves(halves)
  assert {x.dtype for x in leaves} == {np.dtype("float32")}
  assert all(np.isfinite(x).all() for x in leaves)
  params = jax.tree.leaves([half.segment.params for half in halves])
  return np.concatenate([np.ravel(x) for x in params])


# Products have 8 bits, 0.4 %; norms and sums are float32. The update is off by
# 0.7 % of its length, losses agree to 0.01.
@pytest.mark.slow
def test_a_round_in_sixteen_bits_stays_close(colours):
  given, chosen = {"depths": (1,)}, (colours, "vit_s16", "splitgp")
  start, exact, losses, _ = one_round(*chosen, **given)
  same, rough, near, text = one_round(*chosen, "bfloat16", **given)
  assert "bf16" in text
  np.testing.assert_array_equal(start, same)
  off = np.linalg.norm(rough - exact) / np.linalg.norm(exact - start)
  assert 0 < off < 0.02
  assert near == pytest.approx(losses, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "backbone"), PAIRS)
def test_a_method_on_every_backbone(method, backbone, colours):
  # Traced, not compiled: whether they go together is a question of shapes.
  setup, state = begin(config(colours, backbone, method))
  made = rounds.make_round(setup.method, setup.plans, setup.fleet)
  after, told = jax.eval_shape(made, state, setup.shards)
  for old, new in zip(*map(jax.tree.leaves, (state, after)), strict=True):
    assert (old.shape, old.dtype) == (new.shape, new.dtype)
  assert told.losses
