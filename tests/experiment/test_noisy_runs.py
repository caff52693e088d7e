"""Runs whose messages are rounded and noisy: refused, accounted."""

import pytest
from refusals import refused
from runs import config
from selected import selected

import splitjax
from splitjax import evaluation, experiment
from splitjax.evaluation import Release

NOISY = {
  "privacy__features__clip": 1.0,
  "privacy__features__noise": 0.5,
  "privacy__gradients__clip": 1.0,
  "privacy__gradients__noise": 0.25,
  "privacy__delta": None,
}


def test_what_no_message_of_a_run_can_have_is_refused():
  with refused("privacy.gradients.noise"):
    experiment.build(config("splitgp", privacy__gradients__noise=2.0))
  with refused("methods.own"):
    experiment.build(config("dfl", wire__features__form="int8"))


def releases(name, served, **changes):
  """What a run with these log lines has sent of each message with noise."""
  changes = {**NOISY, "privacy__delta": 1e-5, **changes}
  subject = experiment.make_subject(
    experiment.build(config(name, **changes)), "own"
  )
  lines = [
    {"clients": {"number": range(len(steps)), "steps": steps}}
    for steps in served
  ]
  rows = subject.method.rows
  _, totals = experiment.read_history(lines, subject.task.config, rows)
  end = evaluation.End(
    subject=subject, scores=(), state=None, personal=(), lines=(), totals=totals
  )
  return subject, evaluation.releases(end)


def test_releases_of_splitgp_by_hand():
  # 20 samples in batches of 10, three epochs: six steps a round. The second
  # client missed a round, the third had the server for two steps in all.
  served = [[6, 6, 1, 0, 6, 6], [6, 0, 1, 0, 6, 6]]
  subject, sent = releases("splitgp", served, local_epochs=3)
  assert list(subject.sizes) == [20] * 6
  assert sent.keys() == {"up/features", "down/feature_gradient"}
  for name, noise in (("up/features", 0.5), ("down/feature_gradient", 0.25)):
    times = [release.times for release in sent[name]]
    assert times == [6, 3, 2, 0, 6, 6]
    assert {release.noise for release in sent[name]} == {noise}


def test_harmony_sends_features_of_two_views():
  _, sent = releases("harmony", [[2] * 6] * 4)
  # Four passes, in each of which both views send every sample's features.
  assert sent["up/features"][0] == Release(0.5, 8)
  for name in ("up/embedding_gradient", "down/feature_gradient"):
    assert sent[name][0] == Release(0.25, 4)


@pytest.mark.slow
def test_a_report_has_the_account_and_what_it_leaves_out(tmp_path):
  noise = {"privacy__features__clip": 1.0, "privacy__features__noise": 4.0}
  results = experiment.run(config("splitgp", **noise), tmp_path / "run")
  assert results.rows == ["own"]
  parts = selected(results, "epsilon", part=True).part.tolist()
  assert parts == ["up/features", "up"]
  # Four passes with noise 4: as one with noise 2.
  for metric in ("epsilon:up", "epsilon_median:up"):
    assert results.value("own", metric) == pytest.approx(4.377178)
  assert not protects_nothing(results)
  text = (tmp_path / "run/report.md").read_text()
  assert "up/features" in text and "4.38" in text
  # Another account of the same run, which has no noise to speak of.
  changes = {"privacy.delta": 1e-30}
  other = splitjax.evaluate_again(tmp_path / "run", changes)
  epsilon = evaluation.epsilon([Release(4.0, 4)], 1e-30)
  assert other.value("own", "epsilon:up") == pytest.approx(epsilon)
  (note,) = protects_nothing(other)
  assert f"{evaluation.noise_for(1.0, 1e-30, 4):.3g}" in note
  assert "sends a sample 4 times" in note


def protects_nothing(results):
  return [x for x in results.runs[0].notes if "protects nothing" in x]
