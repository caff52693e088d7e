"""The examples in Python of README and docs do what the pages say."""

import json
import re
from pathlib import Path

import jax
import made_up
import numpy as np
import pytest
from marks import slow

import splitjax
from splitjax import methods, models
from splitjax.methods import METHODS
from splitjax.simulation import sandbox
from splitjax.types import Number

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def blocks(page):
  text = page.read_text(encoding="utf-8")
  return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def names_of(page, *words, **scope):
  """The names of a page's examples, or of those with a word, once they ran."""
  for example in blocks(page):
    if not words or any(word in example for word in words):
      exec(compile(example, page.name, "exec"), scope)
  return scope


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "index.md"])
def test_the_first_run_is_a_valid_config(page, monkeypatch):
  """All of the example but the training: names exist, the config is checked."""
  calls = []

  class Results:
    def value(self, row, metric, set):
      return calls.append((row, metric))

  class Loaded:
    config = None

    def predict(self, client, images, threshold):
      return calls.append("predict"), None

  def run(config, workdir):
    calls.append(splitjax.Config.from_dict(config))
    return Results()

  monkeypatch.setattr(splitjax, "set_up", lambda: None)
  monkeypatch.setattr(splitjax, "run", run)
  monkeypatch.setattr(splitjax, "load", lambda workdir, key: Loaded())
  (example,) = [block for block in blocks(page) if "splitjax.run(" in block]
  exec(compile(example, page.name, "exec"), {})
  assert len(calls[0].methods) == 2
  assert ("predict" in calls) == ("predict" in example)


def test_the_readmes_method_is_one(monkeypatch):
  monkeypatch.setattr(splitjax, "METHODS", dict(METHODS))
  monkeypatch.setattr(splitjax, "check_method", lambda factory: None)
  scope = names_of(ROOT / "README.md", "@pytree")
  network = splitjax.BACKBONES["toy"]((8, 8, 1), 10, depths=(1, 2))
  sgd = methods.Optimizer(lr=0.1)
  method = scope["MyMethod"](backbone=network, optimizer=sgd)
  assert method.answers == ("client", "server")


def test_the_tables_and_figures_of_the_page(monkeypatch, tmp_path, capsys):
  (tmp_path / "runs/first/methods/splitgp").mkdir(parents=True)
  line = {"round": 1, "by_client": {"HARMONY": {"0.8": [0.5, 0.7]}}}
  log = tmp_path / "runs/first/methods/splitgp/rounds.jsonl"
  log.write_text(json.dumps(line) + "\n")
  monkeypatch.chdir(tmp_path)
  row = {"row": "HARMONY", "set": "0.8"}
  more = [
    *(Number("worst_tenth", 0.1 * n, **row, round=n) for n in (1, 2)),
    *(Number("accuracy", 0.1 * n, **row, threshold=n) for n in (1, 2)),
    *(Number("latency", 9.0 / n, **row, threshold=n) for n in (1, 2)),
  ]
  results = made_up.seeds(2, more=more)
  monkeypatch.setattr(splitjax, "report_again", lambda folder: results)
  scope = names_of(DOCS / "reports.md")
  assert "HARMONY" in capsys.readouterr().out
  assert set(scope["mean"]) == set(results.rows)
  assert {x.name for x in tmp_path.glob("*.png")} >= {"curves.png"}


@pytest.mark.parametrize("tried", [False, *slow(True)])
def test_the_network_of_the_page_keeps_the_contract(tried, monkeypatch):
  monkeypatch.setattr(splitjax, "BACKBONES", dict(splitjax.BACKBONES))
  if not tried:

    def built(make):
      return [*models.shapes(make((8, 8, 1), 4)).params]

    monkeypatch.setattr(splitjax, "check_backbone", built)
  names_of(DOCS / "own_networks.md")
  assert "my_network" in splitjax.BACKBONES


@pytest.mark.slow
def test_the_data_sets_of_the_page(monkeypatch, tmp_path, capsys):
  """Images, a table that trains, a series, texts and an own source."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.setitem(splitjax.SOURCES, "spectra", None)  # removed at the end
  scope = names_of(DOCS / "own_data.md")
  said = capsys.readouterr().out
  for line in (
    "images (12, 12, 1)",
    "('Ada', 'Bo', 'Cy', 'Di') (32, 9)",
    "('run', 'sit', 'walk') ('Ada', 'Bo', 'Cy', 'Di')",
    "token ids 16384",
  ):
    assert line in said
  assert scope["results"].final.value.iloc[0] > 0.6


OWN_METHODS = (
  *("Proximal", "Mine", "OwnBiases", "HeadThenBody"),
  *("WarmUp", "SlowServer", "ByLoss"),
)


def methods_of_the_page(monkeypatch):
  """What the examples define, whose registrations end with the test."""
  monkeypatch.setattr(splitjax, "METHODS", dict(METHODS))
  monkeypatch.setitem(splitjax.MESSAGES, "up/loss", "")
  monkeypatch.setitem(splitjax.LOSSES, "poly", None)
  monkeypatch.setattr(splitjax, "check_method", lambda factory: [])
  return names_of(DOCS / "own_methods.md")


@pytest.mark.slow
def test_a_method_of_the_page_is_a_round(monkeypatch):
  trial = sandbox.small(methods_of_the_page(monkeypatch)["ByLoss"])
  state = trial.state()
  after, metrics = jax.eval_shape(trial.round, state)
  assert jax.tree.structure(after) == jax.tree.structure(state)
  assert metrics.losses and "up/loss" in metrics.wire
  assert metrics.wire.keys() <= splitjax.MESSAGES.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN_METHODS)
def test_the_methods_of_the_page_keep_the_contract(name, monkeypatch):
  check = splitjax.check_method
  scope = methods_of_the_page(monkeypatch)
  assert check(scope[name])


def test_the_shift_and_the_augmentation_of_the_page_are_tasks(monkeypatch):
  monkeypatch.setitem(splitjax.AUGMENTATIONS, "fade", None)
  monkeypatch.setitem(splitjax.SHIFTS, "first_classes", None)
  c = splitjax.default(backbone="toy")
  c.data.name, c.data.train_samples, c.data.test_samples = "digits", 120, 50
  c.num_clients, c.data.partition.num_shards = 6, 12
  words = "def fade", "def first_classes"
  names_of(DOCS / "data.md", *words, splitjax=splitjax, c=c)
  task = splitjax.build(splitjax.Config.from_dict(c))
  sets = task.test_sets
  assert sets.names == ("first", "rest") and sets.sets.sum(axis=0).all()
  assert (sets.sets[0] == (sets.label < 4)).all()
  assert task.config.data.augment == ("fade",)
  image = np.full((3, 4, 4, 1), 200, np.uint8)
  faded = splitjax.AUGMENTATIONS["fade"](image, jax.random.key(0))
  assert 140 <= faded.min() <= faded.max() <= 200


def test_the_domains_of_the_page_are_tasks(monkeypatch, capsys):
  monkeypatch.setitem(splitjax.CORRUPTIONS, "negative", None)
  scope = names_of(DOCS / "drift.md")
  data, test_sets = scope["task"].data, scope["task"].test_sets
  assert data.domain_names[:2] == ("clean", "negative 5")
  c = scope["c"]
  c.data.domains = c.eval.domains = ()
  c.eval.shift = splitjax.spec(splitjax.SHIFTS, "global")
  plain = splitjax.build(c).data.train_image
  for rows in test_sets.parts:
    (domain,) = set(data.train_domain[rows])
    want = 255 - plain[rows] if domain else plain[rows]
    np.testing.assert_array_equal(data.train_image[rows], want)
  said = capsys.readouterr().out
  assert "('own domain', 'clean', 'rotation 5', 'contrast 4')" in said
  assert "'gaussian_blur 5'" in said
