"""Runs whose messages are rounded and noisy: refused, accounted."""

import pytest
from refusals import refused
from runs import config
from selected import selected

import splitjax
from splitjax import experiment
from splitjax.evaluation import Release, dp_library

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
  with refused("wire.features and privacy.features"):
    experiment.build(config("dfl", wire__features__form="int8"))


def releases(name, served, **changes):
  """What a run with these log lines has sent of each message with noise."""
  task = experiment.build(config(name, **NOISY, **changes))
  setup = experiment.make_setup(task, "own")
  lines = [
    {"clients": {"number": range(len(each)), "steps": each}} for each in served
  ]
  whole = experiment.read_history(lines, len(served[0]))
  return setup, experiment.releases(setup, whole)


def test_releases_of_splitgp_by_hand():
  # 20 samples in batches of 10, three epochs: six steps a round. The second
  # client missed a round, the third had the server for two steps in all.
  served = [[6, 6, 1, 0, 6, 6], [6, 0, 1, 0, 6, 6]]
  setup, found = releases("splitgp", served, local_epochs=3)
  assert list(setup.sizes) == [20] * 6
  assert found.keys() == {"up/features", "down/feature_gradient"}
  for name, noise in (("up/features", 0.5), ("down/feature_gradient", 0.25)):
    assert found[name][:4] == [
      Release(noise, 6, 12, 10, 20),
      Release(noise, 3, 6, 10, 20),
      Release(noise, 2, 2, 10, 20),
      Release(noise, 0, 0, 10, 20),
    ]


def test_harmony_sends_features_of_two_views():
  _, found = releases("harmony", [[2] * 6] * 4)
  # Four passes, in each of which both views send every sample's features.
  assert found["up/features"][0] == Release(0.5, 8, 16, 10, 20)
  for name in ("up/embedding_gradient", "down/feature_gradient"):
    assert found[name][0] == Release(0.25, 4, 8, 10, 20)


@pytest.mark.slow
def test_a_report_has_the_account_and_what_it_leaves_out(tmp_path):
  pytest.importorskip("dp_accounting")
  noise = {"privacy__features__clip": 1.0, "privacy__features__noise": 4.0}
  results = experiment.run(config("splitgp", **noise), tmp_path / "run")
  assert results.rows == ["own"]
  parts = selected(results, "epsilon", part=True).part.tolist()
  assert parts == ["up/features", "up"]
  # Four passes with noise 4: as one with noise 2.
  for metric in ("epsilon:up", "epsilon_median:up"):
    assert results.value("own", metric) == pytest.approx(4.377178)
  again = config("splitgp", **noise, privacy__delta=1e-3)
  other = splitjax.evaluate_again(tmp_path / "run", again)
  # 4.377 at 1e-5: dp-accounting's, of noise 1 per sensitivity, at 1e-3.
  assert other.value("own", "epsilon:up") == pytest.approx(
    dp_library().get_epsilon_gaussian(1.0, 1e-3)
  )
  text = (tmp_path / "run/report.md").read_text()
  assert "up/features" in text and "4.38" in text
