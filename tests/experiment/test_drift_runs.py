"""Runs in domains: what tells them apart, and what they repeat."""

import numpy as np
import pytest
import tiny
from refusals import refused
from runs import draft, same_run, stopped
from selected import values

import splitjax
from splitjax import PARTITIONS, SHIFTS, experiment
from splitjax.data import load
from splitjax.experiment import client_data

TRAINED = "clean", "contrast 3", "gaussian_noise 3"


def config(shift="by_domain", domains=TRAINED, tested=(), **changes):
  """A run of clients in three domains, with labels alike."""
  c = draft(changes.pop("method", "local"))
  c.data.partition = splitjax.spec(PARTITIONS, "iid")
  c.data.domains = domains
  c.eval.shift = splitjax.spec(SHIFTS, shift)
  c.eval.rhos, c.eval.domains = None, tested
  return tiny.resolved(tiny.changed(c, **changes))


def test_every_corruption_and_severity_is_a_test_set():
  task = experiment.build(config(tested="pixelate, gaussian_noise 3"))
  pixelated = [f"pixelate {severity}" for severity in range(1, 6)]
  assert task.test_sets.names == ("own domain", *TRAINED, *pixelated)
  assert len(task.pool) == 50 * 8
  # Clients train in their domain, and their own set is the one of its name.
  plain = load("digits", train_samples=120, test_samples=50)
  for rows, sets in zip(
    task.test_sets.parts, task.test_sets.sets.swapaxes(0, 1), strict=True
  ):
    (domain,) = np.unique(task.data.train_domain[rows])
    np.testing.assert_array_equal(sets[0], sets[1 + domain])
    same = task.data.train_image[rows] == plain.train_image[rows]
    assert same.all() == (domain == 0)
  notes = experiment.notes(task)
  (said,) = (note for note in notes if note.startswith("Domains of"))
  assert all(f"{domain} of " in said for domain in TRAINED)
  # Without domains of the clients, unchanged images are the first set.
  task = experiment.build(config(domains=(), tested="pixelate"))
  assert task.test_sets.names == ("clean", *pixelated)
  np.testing.assert_array_equal(task.data.train_image, plain.train_image)


def test_a_run_is_known_by_its_images():
  plain = experiment.build(config("global", ()))
  digests, pools = {plain.facts["digest"]}, [plain.pool]
  cases = ("global", 0, ()), ("global", 1, ()), ("by_domain", 0, "pixelate")
  for shift, seed, tested in cases:
    task = experiment.build(config(shift, tested=tested, seed=seed))
    # Statistics are those of the images before they were changed.
    for fact in ("mean", "std"):
      assert task.facts[fact] == plain.facts[fact]
    digests.add(task.facts["digest"])
    pools.append(task.pool)
    np.testing.assert_array_equal(task.pool, task.data.test_image)
    np.testing.assert_array_equal(task.image, task.data.train_image)
    assert (task.image != plain.image).any()
  # Domains of the test split do not make other training images.
  assert len(digests) == 3
  assert [len(pool) for pool in pools] == [50, 150, 150, 50 * 8]


def test_a_run_is_known_by_its_labels_too():
  made = config("global", ())
  task = experiment.build(made)
  digests = {task.facts["digest"]}
  for field in ("train_label", "test_label", "train_image", "test_image"):
    other = np.array(getattr(task.data, field))
    other[0] = (other[0] + 1) % 10
    data = task.data._replace(**{field: other})
    facts = client_data.facts_of(made, data, task.test_sets)
    digests.add(facts["digest"])
  assert len(digests) == 5


def test_domains_that_no_test_set_shows_are_refused():
  with refused("eval.shift"):
    experiment.build(config(domains=()))
  for shift in ("id_ood", "own_test"):
    with refused("data.domains"):
      config(shift)


def test_ratios_are_for_mixtures_alone():
  with refused("eval.rhos"):
    experiment.build(config("global", eval__rhos=(0.2,)))


@pytest.mark.slow
def test_a_stopped_run_resumes_bit_for_bit(tmp_path, figures, blank):
  made = config(tested="contrast", method="splitgp", eval__metrics="ece")
  experiment.run(made, tmp_path / "whole")
  stopped(made, tmp_path / "parts", 2)
  experiment.run(made, tmp_path / "parts")
  same_run(tmp_path / "whole", tmp_path / "parts")
  page = (tmp_path / "parts/report.md").read_text()
  assert "Domains of clients' images: clean of" in page
  assert all(f"contrast {severity}" in page for severity in range(1, 6))


@pytest.mark.slow
def test_a_trained_run_is_tested_in_other_domains(tmp_path):
  made = config("global")
  experiment.run(made, tmp_path)
  other = config(tested="contrast")
  changes = {"eval": other.to_dict()["eval"]}
  tested = experiment.evaluate_again(tmp_path, changes)
  trained = experiment.run(other, tmp_path / "other")
  for metric in ("accuracy", "offload"):
    assert values(tested, metric) == values(trained, metric)
