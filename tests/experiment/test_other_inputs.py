"""Runs on series, tables and texts: what they keep, and what is refused."""

import jax
import jax.export
import numpy as np
import pytest
import tiny
from marks import slow
from refusals import refused

import splitjax
from splitjax import (
  BACKBONES,
  PARTITIONS,
  SHIFTS,
  SOURCES,
  experiment,
)
from splitjax.data import Dataset
from splitjax.engine.round import run_round
from splitjax.experiment import Programs

RNG = np.random.default_rng(0)


def learnable(base, count=96):
  """Samples of three classes, each a shifted `base` [...], and owners."""
  y = np.arange(count) % 3
  noise = RNG.normal(size=(count, *base.shape))
  return noise + 2 * base * (y - 1).reshape(-1, *[1] * base.ndim), y


def texts(count=96):
  """Ten tokens; those of class k are mostly from k * 8 to k * 8 + 7."""
  y = np.arange(count) % 3
  return 8 * y[:, None] + RNG.integers(0, 8, (count, 10)), y


SERIES, LABEL = learnable(np.ones((28, 9)))
KINDS = {
  "series": (
    {"x": (100 * SERIES).astype("i2"), "y": LABEL},
    "cnn1d",
    {"width": 1 / 16},
  ),
  "table": (
    {"x": learnable(np.ones(5))[0].astype("f4") * 1e4 + 7, "y": LABEL},
    "mlp",
    {"width": 8},
  ),
  "token ids": (
    {"x": texts()[0].astype("u2"), "y": LABEL, "vocabulary": 24},
    "transformer_text",
    {"width": 8, "heads": 2, "length": 2},
  ),
}


def config(tmp_path, kind, method="splitgp", **changes):
  """Four clients of a file of one kind of inputs, natural by owner."""
  held, backbone, options = KINDS[kind]
  owner = np.arange(len(held["y"])) % 4
  arrays = {"train_label": held["y"], "test_label": held["y"][:24]}
  arrays |= {"train_image": held["x"], "test_image": held["x"][:24]}
  arrays |= {"train_client": owner, "test_client": owner[:24]}
  arrays |= {k: v for k, v in held.items() if k not in "xy"}
  np.savez(tmp_path / "mine.npz", **arrays)
  c = tiny.tiny(own=method)
  c.data.name = f"npz:{tmp_path / 'mine.npz'}"
  c.data.train_samples = c.data.test_samples = None
  c.data.partition = splitjax.spec(PARTITIONS, "natural")
  c.backbone = splitjax.spec(BACKBONES, backbone, depths=(1,), **options)
  c.eval.shift, c.eval.rhos = splitjax.spec(SHIFTS, "own_test"), None
  c.num_clients, c.rounds, c.batch_size = 4, 2, 8
  c.optimizer.lr = 0.05
  if kind == "token ids":
    c.optimizer.name, c.optimizer.lr = "adam", 0.01
  return tiny.changed(c, **changes)


@pytest.mark.parametrize("kind", ["table", *slow("token ids", "series")])
def test_a_run_keeps_inputs_as_they_are(kind, tmp_path):
  """Standardised on the device; learns; predicts and exports the same."""
  method = "local" if kind == "table" else "splitgp"  # quick, and with a server
  c = config(tmp_path, kind, method, rounds=8, eval__every=8)
  resolved = tiny.resolved(c)
  results = experiment.run(resolved, tmp_path / "run")
  x = KINDS[kind][0]["x"]
  task = experiment.build(resolved)
  assert task.image.dtype == x.dtype and task.data.kind == kind
  assert task.network.backbone.shape == x.shape[1:]
  # By hand, in float64.
  mean, std = task.network.mean, task.network.std
  if kind == "token ids":
    assert mean == std == ()
  else:
    flat = x.reshape(-1, x.shape[-1]).astype(float)
    np.testing.assert_allclose(mean, flat.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(std, flat.std(axis=0), rtol=1e-9)
  assert results.value("own", "accuracy", results.sets[0]) > 0.6
  # Predictions and the exported client.
  trained = splitjax.load(tmp_path / "run", "own")
  assert trained.network.dtype == x.dtype.name
  label, away = trained.predict(1, x[:7], threshold=100.0)
  assert not away.any()
  path = trained.export(1, tmp_path / "client.bin")
  program = jax.export.deserialize(path.read_bytes())
  said, _ = program.call(x[:7], np.float32(100.0))
  np.testing.assert_array_equal(said, label)
  # Wider numbers of the same kind are cast.
  wide = x[:7].astype(">f8" if x.dtype.kind == "f" else ">i8")
  said, _ = trained.predict(1, wide, threshold=100.0)
  np.testing.assert_array_equal(said, label)
  wrong = x[:7].copy()
  if kind == "token ids" or x.dtype.kind == "f":
    wrong[0, 0] = task.data.vocabulary if kind == "token ids" else np.nan
    with refused("image"):
      trained.predict(1, wrong, threshold=0.1)


@pytest.mark.parametrize(
  ("method", "kind"),
  [
    ("hydra", "series"),
    *slow(("harmony", "token ids"), ("per_fedavg", "token ids")),
  ],
)
def test_methods_take_other_inputs(method, kind, tmp_path):
  """Traced, not compiled: the state keeps its form."""
  c = config(tmp_path, kind, method)
  subject = experiment.make_subject(experiment.build(tiny.resolved(c)), "own")
  state = Programs(subject).begin()
  after, told = jax.eval_shape(
    lambda *given: run_round(
      *given, layout=subject.fleet.layout, plans=subject.plans
    ),
    *(subject.method, state, subject.shards),
  )
  for old, new in zip(*map(jax.tree.leaves, (state, after)), strict=True):
    assert (old.shape, old.dtype) == (new.shape, new.dtype)
  assert told.losses


@pytest.mark.parametrize(
  ("kind", "changes", "field"),
  [
    ("table", {"data__augment": "crop"}, "data.augment"),
    ("series", {"eval__holdout": 0.2}, "eval.threshold_rule"),
  ],
)
def test_what_is_for_images_is_refused_in_a_line(
  kind, changes, field, tmp_path
):
  with refused(field):
    experiment.build(tiny.resolved(config(tmp_path, kind, **changes)))


def test_a_network_of_other_inputs_is_refused(tmp_path):
  c = config(tmp_path, "series")
  c.backbone = splitjax.spec(BACKBONES, "cnn4")
  with refused("backbone.name"):
    experiment.build(tiny.resolved(c))


def test_a_source_of_ones_own(monkeypatch, tmp_path):
  """With names instead of numbers of classes."""
  x = KINDS["table"][0]["x"].astype(float)
  names = np.array(["low", "middle", "up"])[LABEL]

  def source(data_dir):
    return Dataset("mine", 0, x, names, x[:24], names[:24])

  monkeypatch.setitem(SOURCES, "mine", source)
  c = config(tmp_path, "table", "fedavg", data__name="mine")
  c.data.partition = splitjax.spec(PARTITIONS, "iid")
  c.eval.shift = splitjax.spec(SHIFTS, "global")
  task = experiment.build(tiny.resolved(c))
  assert task.data.class_names == ("low", "middle", "up")
  assert task.data.train_image.dtype == np.float32
  experiment.run(tiny.resolved(c), tmp_path / "run")
  x[3, 1] = np.nan
  with refused("data.name"):
    experiment.build(tiny.resolved(c))
