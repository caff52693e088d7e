"""The examples in Python of README and docs do what the pages say."""

import json
import re
from pathlib import Path
from unittest.mock import Mock

import jax
import made_up
import numpy as np
import pytest

import splitjax
from splitjax.methods import METHODS
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
  run, load = Mock(), Mock()
  load.return_value.predict.return_value = ("label", "offloaded")
  for name, stub in {"set_up": Mock(), "run": run, "load": load}.items():
    monkeypatch.setattr(splitjax, name, stub)
  scope = names_of(page, "splitjax.run(")
  (config, _), _ = run.call_args
  assert len(splitjax.Config.from_dict(config).methods) == 2
  assert load.called == ("harmony.predict" in page.read_text("utf-8"))
  assert scope["c"] is config


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


@pytest.mark.slow
def test_the_network_of_the_page_keeps_the_contract(monkeypatch):
  monkeypatch.setattr(splitjax, "BACKBONES", dict(splitjax.BACKBONES))
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


OWN_METHODS = """Proximal Mine OwnBiases BlendedKernels HeadThenBody WarmUp
SlowServer ByLoss"""


@pytest.mark.slow
@pytest.mark.parametrize(
  ("page", "name"),
  [
    (ROOT / "README.md", "MyMethod"),
    *((DOCS / "own_methods.md", name) for name in OWN_METHODS.split()),
  ],
)
def test_the_methods_of_a_page_keep_the_contract(page, name, monkeypatch):
  check = splitjax.check_method
  # What the examples register ends with the test.
  monkeypatch.setattr(splitjax, "METHODS", dict(METHODS))
  monkeypatch.setitem(splitjax.MESSAGES, "up/loss", "")
  monkeypatch.setitem(splitjax.LOSSES, "poly", None)
  monkeypatch.setattr(splitjax, "check_method", lambda factory: [])
  words = ("@pytree",) if page.name == "README.md" else ()
  assert check(names_of(page, *words)[name])


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
  task = names_of(DOCS / "drift.md")["task"]
  assert task.data.domain_names[:2] == ("clean", "negative 5")
  for rows in task.test_sets.parts:  # every client is in one of them
    assert len(set(task.data.train_domain[rows])) == 1
  said = capsys.readouterr().out
  assert "('own domain', 'clean', 'rotation 5', 'contrast 4')" in said
  assert "'gaussian_blur 5'" in said
