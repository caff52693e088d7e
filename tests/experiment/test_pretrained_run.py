"""A run that starts from a checkpoint: it is known by it, and outlives it."""

import copy
import dataclasses
from pathlib import Path

import jax
import numpy as np
import numpy_vit
import pytest
import tiny
from refusals import refused
from selected import timeless, values
from tiny_vit import TINY

import splitjax
from splitjax import BACKBONES, UserError, experiment


@pytest.fixture(name="start")
def save_start(tmp_path):
  """A checkpoint file, and the config of a run from it on colour images."""
  rng = np.random.default_rng(0)
  arrays = {}
  for split in ("train", "test"):
    arrays[f"{split}_image"] = rng.integers(0, 256, (40, 8, 8, 3), np.uint8)
    arrays[f"{split}_label"] = np.arange(40) % 4
  np.savez(tmp_path / "own.npz", **arrays)
  np.savez(tmp_path / "vit.npz", **numpy_vit.draw(length=TINY["length"]))
  c = tiny.tiny(own="local")
  c.data.name = f"npz:{tmp_path / 'own.npz'}"
  c.data.train_samples = c.data.test_samples = None
  path = str(tmp_path / "vit.npz")
  options = {**TINY, "depths": (2,), "pretrained": path}
  c.backbone = splitjax.spec(BACKBONES, "vit_s16", **options)
  return tiny.resolved(c), Path(path)


def at(config, path):
  """The config with another checkpoint, or None."""
  spec = copy.deepcopy(config.backbone)
  spec.pretrained = path and str(path)
  return dataclasses.replace(config, backbone=spec)


def other_weights(path):
  """Other weights in the place of a checkpoint."""
  with np.load(path) as file:
    arrays = dict(file)
  np.savez(path, **{**arrays, "cls": arrays["cls"] + 1})


@pytest.mark.slow
def test_a_run_says_where_it_starts_and_outlives_the_file(start, tmp_path):
  config, path = start
  said = f"The networks start from weights of {path}"
  assert said in experiment.describe_text(experiment.describe_run(config))
  results = splitjax.run(config, tmp_path / "w")
  assert any(note.startswith(said) for note in results.runs[0].notes)
  other_weights(path)
  with pytest.raises(UserError, match="pretrained is"):  # though all is trained
    splitjax.run(config, tmp_path / "w")
  path.unlink()
  trained = splitjax.load(tmp_path / "w", "own")
  assert trained.config == config
  moved = str(tmp_path / "elsewhere.npz")
  again = splitjax.evaluate_again(
    tmp_path / "w", {"backbone.pretrained": moved}
  )
  assert any(note.startswith(said) for note in again.runs[0].notes)
  assert timeless(splitjax.report_again(tmp_path / "w")) == timeless(results)
  assert values(again, "accuracy") == values(results, "accuracy")
  with pytest.raises(UserError, match="backbone.pretrained="):
    splitjax.run(config, tmp_path / "other")


@pytest.mark.slow
def test_a_run_begins_with_the_weights_of_the_file(start):
  config, path = start
  task = experiment.build(config)
  full = experiment.fresh_network(task)
  given = task.network.backbone.start.params
  assert len(given) == TINY["length"] + (task.data.classes == 5)
  for name, params in given.items():
    jax.tree.map(np.testing.assert_array_equal, full.params[name], params)
  with np.load(path) as file:
    np.testing.assert_array_equal(full.params["block1"]["cls"], file["cls"])


def test_a_run_is_of_its_weights_wherever_they_lie(start, tmp_path):
  def take(config):
    facts = experiment.build(config).facts
    assert ("pretrained" in facts) == (config != plain)
    with experiment.claimed(tmp_path / "w", config, facts):
      pass

  config, path = start
  plain, elsewhere = at(config, None), tmp_path / "elsewhere.npz"
  take(config)
  moved = at(config, path.rename(elsewhere))
  take(moved)
  with refused("--workdir"):
    take(plain)
  other_weights(elsewhere)
  with refused("--workdir"):
    take(moved)


def test_seeds_share_their_weights(start, tmp_path):
  config, path = start
  facts = experiment.build(config).facts
  facts = {
    k: v for k, v in facts.items() if k not in ("mean", "std", "partition")
  }
  with experiment.claimed(tmp_path / "w", config, facts, over_seeds=True):
    pass
  other_weights(path)
  with refused("--workdir"):
    splitjax.run_seeds(config, tmp_path / "w", [0])
