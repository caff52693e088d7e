"""Runs whose images drift: what tells them apart, and what they repeat."""

import dataclasses

import numpy as np
import pytest
import tiny
from refusals import refused
from runs import draft, same_run, stopped

import splitjax
from splitjax import DOMAINS, PARTITIONS, SHIFTS, experiment

NAMES = "none, contrast, gaussian_noise"


def config(shift="covariate", domain="drawn", name="local", **changes):
  """A run of clients in three domains, with labels alike."""
  c = draft(name)
  c.data.partition = splitjax.spec(PARTITIONS, "iid")
  c.data.domain = splitjax.spec(DOMAINS, domain)
  if domain == "drawn":
    c.data.domain.corruptions = NAMES
  c.eval.shift = splitjax.spec(SHIFTS, shift)
  if shift == "covariate":
    c.eval.shift.corruptions = "brightness"
  c.eval.rhos = None
  return tiny.resolved(tiny.changed(c, **changes))


def test_a_run_is_known_by_its_images_and_shares_equal_ones():
  built = experiment.Tasks()
  plain = built.of(config("global", "none"))
  assert "looks" not in plain.facts
  digests, pools = {plain.facts["digest"]}, [plain.pool]
  for shift, seed in (("global", 0), ("global", 1), ("covariate", 0)):
    task = built.of(config(shift, seed=seed))
    # Statistics are those of the images before they were changed.
    for fact in ("mean", "std"):
      assert task.facts[fact] == plain.facts[fact]
    digests.add(task.facts["digest"])
    pools.append(task.pool)
    np.testing.assert_array_equal(task.pool, task.data.test_image)
    np.testing.assert_array_equal(task.image, task.data.train_image)
    assert (task.image != plain.image).any()
  # Test sets that drift do not make other training images.
  assert len(digests) == 3
  # A pair of an image and a look is there if some client needs it.
  label, sets = plain.data.test_label, task.test_sets
  clients = np.array(sets.domains.clients)
  needed = [
    sets.main[clients == domain].any(axis=0)[label].sum()
    for domain in np.unique(clients)
  ]
  assert [len(pool) for pool in pools] == [50, 150, 150, 6 * sum(needed)]
  again = built.of(config("covariate", rounds=7))
  assert again.pool is pools[-1] and again.image is task.image


def test_notes_name_domains():
  made = config("unseen_domain", data__train_samples=900)
  notes = experiment.notes(experiment.build(made))
  (domains,) = (note for note in notes if note.startswith("Domains of"))
  for name in ("none of ", "contrast:3 of ", "gaussian_noise:3 of "):
    assert name in domains
  assert "The domain left out of training: brightness:3." in notes
  assert not [x for x in notes if "classes that a client lacks" in x]
  with refused("eval.shift.corruption"):
    experiment.build(
      config("unseen_domain", eval__shift__corruption="contrast")
    )


@pytest.mark.slow
def test_a_stopped_run_resumes_bit_for_bit(tmp_path, figures, blank):
  made = config(name="splitgp", eval__metrics="ece")
  experiment.run(made, tmp_path / "whole")
  stopped(made, tmp_path / "parts", 2)
  results = experiment.run(made, tmp_path / "parts")
  same_run(tmp_path / "whole", tmp_path / "parts")
  assert results["sets"] == [f"severity {s}" for s in range(6)]
  assert (tmp_path / "parts/accuracy_over_severity.png").exists()
  page = (tmp_path / "parts/report.md").read_text()
  assert "Domains of clients' images: contrast:3 of" in page


@pytest.mark.slow
def test_a_trained_run_is_tested_on_other_drifts(tmp_path):
  made = config("global")
  experiment.run(made, tmp_path)
  for shift in ("covariate", "unseen_domain"):
    other = dataclasses.replace(made, eval=config(shift).eval)
    found = experiment.evaluate_again(tmp_path, other)
    want = experiment.run(config(shift), tmp_path / shift)
    kept = ("accuracy", "offload")
    assert [found["rows"][0]["summary"][k] for k in kept] == [
      want["rows"][0]["summary"][k] for k in kept
    ]
