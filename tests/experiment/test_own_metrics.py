"""Metrics of eval.metrics: by hand, in every place of a report, one's own."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import runs
from refusals import refused
from selected import values

import splitjax
from splitjax import METRICS, evaluation
from splitjax.evaluation import Answered, Exits, predictions
from splitjax.options import Spec

FIGURES = "blank"
ROOT = Path(__file__).resolve().parents[2]
LABELS = np.array([0, 0, 0, 1, 1, 3])
ANSWERS = np.array([0, 0, 1, 1, 2, 3])
SURE = np.array(
  [
    [0.7, 0.1, 0.1, 0.1],
    [0.6, 0.2, 0.1, 0.1],
    [0.3, 0.4, 0.2, 0.1],
    [0.1, 0.8, 0.0, 0.1],
    [0.0, 0.2, 0.7, 0.1],
    [0.1, 0.1, 0.2, 0.6],
  ]
)


def test_the_calibration_error_by_hand():
  # Bins of 1/15: (0.6, 2/3] has two right answers of 0.6, (2/3, 11/15] a
  # right and a wrong one of 0.7; of floats 0.6 is above 9/15 or in its bin.
  by_hand = (2 * (1 - 0.6) + abs(1 - 2 * 0.7) + 0.4 + 0.2) / 6
  got = METRICS["ece"](LABELS, ANSWERS, SURE)
  assert math.isclose(got, by_hand, rel_tol=1e-12)
  one = METRICS["ece"](LABELS, ANSWERS, SURE, bins=1)
  assert math.isclose(one, abs(4 / 6 - SURE.max(axis=1).mean()))
  sure = np.array([[1.0, 0.0], [0.0, 1.0]])
  assert METRICS["ece"](np.array([0, 1]), np.array([0, 1]), sure) == 0
  with refused("bins"):
    METRICS["ece"](LABELS, ANSWERS, SURE, bins=0)

  lost = np.full_like(SURE, np.nan)
  assert np.isnan(METRICS["ece"](LABELS, ANSWERS, lost))


def test_the_exit_that_answers_gives_the_probabilities():
  rng = np.random.default_rng(0)
  both = rng.dirichlet(np.ones(4), (3, 9, 2)).astype(np.float32)
  entropy = rng.uniform(0, 1, (3, 9))
  client, server = both.argmax(axis=-1).transpose(2, 0, 1)
  exits = Exits(entropy, entropy, client, server, both)
  labels, threshold = rng.integers(0, 4, (3, 9)), np.array([[0.3, 0.5, 0.9]])
  samples = rng.integers(0, 3, (1, 3, 9))
  samples[0, 1] = 0  # no sample: no value
  seen = []

  def look(labels, answers, probabilities):
    seen.append((labels, answers, probabilities))
    return len(labels)

  with pytest.MonkeyPatch.context() as patch:
    patch.setitem(METRICS, "look", look)
    specs = {"look": Spec.at(METRICS, "look", "look")}
    answered = Answered(exits, labels, samples)
    found = evaluation.measure(specs, answered, threshold)["look"]
  counts = samples[0].sum(axis=1)
  np.testing.assert_array_equal(found, [[counts[0], np.nan, counts[2]]])
  answers = predictions(answered, threshold[0])
  for n, (label, answer, sure) in zip((0, 2), seen, strict=True):
    rows = np.repeat(np.arange(9), samples[0, n])
    np.testing.assert_array_equal(label, labels[n][rows])
    np.testing.assert_array_equal(answer, answers[n][rows])
    np.testing.assert_array_equal(sure.argmax(axis=1), answer)


SHORT = {"backbone__depths": (1,), "rounds": 2, "eval__every": 1}


def config(metrics, name="splitgp", **changes):
  changes = {"eval__confusion": True, **SHORT, **changes}
  return runs.config(name, eval__metrics=metrics, **changes)


def mine(labels, answers, probabilities, *, factor: float = 1.0):
  """The mean probability of the right class."""
  return factor * probabilities[np.arange(len(labels)), labels].mean()


def recall(labels, answers):
  """The mean recall of the classes: it takes no probabilities."""
  right = labels == answers
  return np.mean([right[labels == c].mean() for c in np.unique(labels)])


OURS = ("recall", "ece", "mine")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  """A run with metrics of every kind, and the same without."""
  place = tmp_path_factory.mktemp("runs")
  with pytest.MonkeyPatch.context() as patch:
    patch.setitem(METRICS, "mine", mine)
    patch.setitem(METRICS, "recall", recall)
    results = splitjax.run(config(OURS), place / "a")
    splitjax.run(runs.config("splitgp", **SHORT), place / "b")
    yield place, results


def test_metrics_stand_in_the_report(run):
  place, results = run
  for key in OURS:
    for name in results.sets:
      clients = values(results, key, "own", set=name, client=True)
      mean = results.value("own", key, name)
      assert mean == pytest.approx(np.nanmean(clients)) and 0 <= mean <= 1
  page = (place / "a/report.md").read_text()
  (head, *_) = [line for line in page.splitlines() if line.startswith("| m")]
  for key in OURS:
    assert key.replace("_", " ") in head
  names = {path.name for path in (place / "a").glob("*.png")}
  plain = {path.name for path in (place / "b").glob("*.png")}
  assert names - plain == {"confusion_own.png"}
  assert plain <= names


def test_metrics_stand_in_the_log_and_the_curves(run):
  place, results = run
  log = place / "a/methods/own/rounds.jsonl"
  last = json.loads(log.read_text().splitlines()[-1])
  for key in OURS:
    logged = last["metrics"]["own"][key]
    for name in results.sets:
      curve = values(results, key, "own", set=name, round=True)
      assert len(curve) == 2 and curve[-1] == logged[name]
      assert logged[name] == results.value("own", key, name)


def test_what_is_measured_changes_nothing_else(run):
  place, _ = run
  bits = [runs.bits(place / w) for w in "ab"]
  assert bits[0] == bits[1]
  measured = [runs.lines(place / w) for w in "ab"]
  for line in measured[0]:
    line.pop("metrics", None)
  assert measured[0] == measured[1]
  exits = [np.load(place / w / "methods/own/exits.npz") for w in "ab"]
  more = {"own/probabilities", "own+FT/probabilities"}
  assert set(exits[0].files) - set(exits[1].files) <= more
  for name in exits[1].files:
    np.testing.assert_array_equal(exits[0][name], exits[1][name])
  real = exits[0]["rows"] >= 0
  sure, server = (
    exits[0][f"own/{x}"][real] for x in ("probabilities", "server")
  )
  np.testing.assert_allclose(sure.sum(axis=-1), 1, rtol=1e-5)
  np.testing.assert_array_equal(sure[:, 1].argmax(-1), server)


def test_the_answers_are_counted(run):
  place, results = run
  counts = np.load(place / "a/methods/own/confusion.npz")
  exits = np.load(place / "a/methods/own/exits.npz")
  for row in results.rows:
    table = counts[row]
    right = np.trace(table, axis1=2, axis2=3) / table.sum(axis=(2, 3))
    for shares, name in zip(right, results.sets, strict=True):
      clients = values(results, "accuracy", row, set=name, client=True)
      np.testing.assert_allclose(shares, clients)
    for r in range(len(exits["sets"])):
      for n, tested in enumerate(exits["sets"][r]):
        every = np.bincount(exits["label"][n][tested], minlength=10)
        np.testing.assert_array_equal(table[r, n].sum(axis=1), every)


@pytest.mark.slow
def test_a_saved_run_gets_other_metrics(run):
  place, results = run
  changes = {"eval.metrics": ("recall", "ece"), "eval.confusion": False}
  again = splitjax.evaluate_again(place / "b", changes)
  assert values(again, "recall", "own")
  found, first = (values(each, "ece", "own") for each in (again, results))
  np.testing.assert_allclose(found, first, rtol=1e-6)
  assert all(x > 0 for x in values(again, "best", "own"))


@pytest.mark.slow
def test_clients_may_share_the_answers(tmp_path, undrawn):
  made = config("ece", "splitfed_v1", rounds=1)
  splitjax.run(made, tmp_path)
  exits = np.load(tmp_path / "methods/own/exits.npz")
  sure = exits["own/probabilities"]
  np.testing.assert_allclose(sure[:, :, 1].sum(axis=-1), 1, rtol=1e-5)
  np.testing.assert_array_equal(sure[:, :, 1].argmax(-1), exits["own/server"])
  assert np.isnan(sure[:, :, 0]).all()  # an exit that does not answer


def test_the_metric_of_the_page(monkeypatch):
  monkeypatch.setattr(splitjax, "METRICS", METRICS)
  for name in ("macro_f1", "brier"):
    monkeypatch.setitem(METRICS, name, None)  # undone afterwards
  text = (ROOT / "docs/sweeps.md").read_text(encoding="utf-8")
  (example,) = (
    each
    for each in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    if "METRICS" in each
  )
  exec(compile(example, "sweeps.md", "exec"), {})
  by_hand = ((SURE - np.eye(4)[LABELS]) ** 2).sum(axis=1).mean()
  score = METRICS["brier"](LABELS, ANSWERS, SURE)
  assert math.isclose(score, by_hand)
  # F1 of classes 0, 1, 3; 2 has no sample: its answer is a mistake of 1.
  score = METRICS["macro_f1"](LABELS, ANSWERS)
  assert math.isclose(score, (2 * 2 / 5 + 2 * 1 / 4 + 1) / 3)


@pytest.mark.parametrize("answer", [LABELS, "0.5"])
def test_a_mistaken_metric_of_ones_own_is_one_line(answer, monkeypatch):
  monkeypatch.setitem(METRICS, "own", lambda labels, answers: answer)
  with refused("eval.metrics.own"):
    splitjax.build(config("own"))


@pytest.mark.parametrize(
  ("metrics", "field"),
  [
    ("ec", "eval.metrics.ec"),
    (("ece", "ece"), "eval.metrics"),
    ({"e": {"name": "ece", "bins": 0}}, "eval.metrics.e"),
    ({"accuracy": {"name": "ece"}}, "eval.metrics.accuracy"),
    (3, "eval.metrics"),
  ],
)
def test_a_mistake_in_a_config_is_one_line(metrics, field):
  with refused(field):
    splitjax.build(config(metrics))
