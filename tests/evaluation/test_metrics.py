"""Metrics and means over clients by hand: ours, of the page, one's own."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import tiny
from refusals import refused

import splitjax
from splitjax import METRICS, evaluation
from splitjax.evaluation import Answered, Exits, decide
from splitjax.options import Spec

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
  samples = rng.random((1, 3, 9)) < 0.7
  samples[0, 1] = False  # no sample: no value
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
  answers, _ = decide(answered, threshold[0])
  for n, (label, answer, sure) in zip((0, 2), seen, strict=True):
    rows = np.flatnonzero(samples[0, n])
    np.testing.assert_array_equal(label, labels[n][rows])
    np.testing.assert_array_equal(answer, answers[n][rows])
    np.testing.assert_array_equal(sure.argmax(axis=1), answer)


@pytest.mark.parametrize(
  "metric",
  [
    lambda labels, answers: 2,
    lambda labels, answers, **options: 2,
    lambda labels, answers, probabilities: 3,
    lambda labels, answers, probabilities, /: 3,
  ],
)
def test_a_third_argument_by_position_gets_the_probabilities(
  metric, monkeypatch
):
  monkeypatch.setitem(METRICS, "own", metric)
  client = LABELS[None]
  both = np.stack([SURE, SURE], axis=1)[None]
  exits = Exits(SURE[None, :, 0], SURE[None, :, 0], client, client, both)
  answered = Answered(exits, client, np.ones((1, *client.shape), bool))
  specs = {"own": Spec.at(METRICS, "own", "own")}
  evaluation.measure(specs, answered, np.zeros((1, 1)))  # it can be called


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
    splitjax.build(tiny.changed(tiny.tiny(), eval__metrics="own"))


def test_means_leave_out_the_empty_and_count_each_sample_once():
  values = np.array([[0.5, 1.0, np.nan], [np.nan] * 3])
  got = evaluation.over_clients(values)
  np.testing.assert_allclose(got, [0.75, np.nan])
  got = evaluation.over_clients(values, np.array([[4, 1, 0], [0, 0, 0]]))
  np.testing.assert_allclose(got, [3 / 5, np.nan])


def test_spread_over_clients():
  # 11 clients with samples: the worst tenth are two, 0.1 and 0.2.
  values = [0.9, 0.2, np.nan, 0.1, *[0.6] * 8]
  known = [x for x in values if not np.isnan(x)]
  got = evaluation.spread(np.array([values, [np.nan] * 12]))
  assert got["worst_tenth"] == pytest.approx([0.15, np.nan], nan_ok=True)
  assert got["std"] == pytest.approx([np.std(known), np.nan], nan_ok=True)
