"""What clients see in an evaluation: parts, and shares of the split."""

import jax
import numpy as np
import pytest
import tiny
from marks import slow

from splitjax import evaluation, experiment
from splitjax.experiment import Programs

pytestmark = pytest.mark.usefixtures("float64")


UNEQUAL = {
  "eval__rhos": None,
  "data__partition": "dirichlet(alpha=0.5, min_samples=8)",
}


def built(name, samples=None, shift="id_ood"):
  """Setup and first state of six clients of unequal test sets."""
  fields = {} if shift == "id_ood" else {**UNEQUAL}
  fields |= {"eval__samples": samples, "eval__shift": shift}
  subject = tiny.subject(name, **fields, eval__metrics="ece")
  return subject, Programs(subject).begin()


def trained(name, samples=None, shift="id_ood"):
  """The same after a round."""
  subject, state = built(name, samples, shift)
  return subject, Programs(subject).round(state)[0]


def evaluated(subject, state, samples=None):
  (row,) = Programs(subject).evaluate(state, samples=samples)
  return row.test


def assert_equal(one, two):
  for a, b in zip(*map(jax.tree.leaves, (one, two)), strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
  ("name", "shift"), [("splitfed_v1", "global"), *slow(("fedavg", "id_ood"))]
)
def test_clients_that_are_alike_share_the_split(name, shift, monkeypatch):
  """The exits are those of each client by itself."""
  subject, state = trained(name, shift=shift)
  seen = experiment.show(subject, None, personal=False)
  apart = experiment.show(subject, None, personal=True)
  assert seen.chunks.sum() < apart.chunks.sum()
  one = evaluated(subject, state)
  monkeypatch.setattr(evaluation, "alike", lambda method, depth: False)
  two = evaluated(subject, state)
  real = subject.task.test_sets.rows >= 0
  if name == "splitfed_v1":
    # 50 images are three chunks of 20 for either of the two depths.
    assert seen.chunks.sum() == 6
    sure = one.probabilities[real][:, 1]
    np.testing.assert_allclose(sure.sum(axis=-1), 1, rtol=1e-5)
    np.testing.assert_array_equal(sure.argmax(-1), one.server[real])
  assert_equal(*(jax.tree.map(lambda x: x[real], x) for x in (one, two)))


def test_what_clients_see_is_no_program_of_its_own():
  subject, state = built("multi_exit")
  programs = Programs(subject)
  for samples in (None, 1):
    programs.evaluate(state, samples=samples)
  assert len(programs.compiled()) == 1


@pytest.mark.parametrize(
  ("name", "samples"), [("splitgp", 7), *slow(("fedavg", 999))]
)
def test_a_part_is_the_first_of_all(name, samples):
  subject, state = trained(name, samples)
  whole = evaluated(subject, state)
  part = evaluated(subject, state, samples)
  size = min(samples, whole.entropy.shape[1])
  assert part.entropy.shape == (6, size)
  real = subject.task.test_sets.rows[:, :size] >= 0
  whole = jax.tree.map(lambda x: x[:, :size], whole)
  assert_equal(*(jax.tree.map(lambda x: x[real], x) for x in (part, whole)))


def test_only_chunks_with_samples_are_computed():
  subject, _ = built("splitgp", shift="local")
  sizes = (subject.task.test_sets.rows >= 0).sum(axis=1)
  assert sizes.min() < sizes.max()
  most = experiment.show(subject, None, personal=False).chunks
  np.testing.assert_array_equal(most, -(-sizes // subject.task.shown.shape[-1]))
  part = experiment.show(subject, 1, personal=False).chunks
  np.testing.assert_array_equal(part, np.ones(6))


def test_a_random_order_of_every_client():
  whole = built("splitgp")[0].task.test_sets
  mixed = whole.in_random_order(3)
  again, other = (whole.in_random_order(seed) for seed in (3, 4))
  np.testing.assert_array_equal(mixed.rows, again.rows)
  assert (mixed.rows != other.rows).any()
  for n in range(6):
    real = mixed.rows[n] >= 0
    assert not real[real.sum() :].any()  # padding stays last

    def facts(sets, n=n):
      columns = np.stack([sets.rows[n], sets.label[n], *sets.sets[:, n]])
      return sorted(map(tuple, columns.T))

    assert facts(mixed) == facts(whole)
  few = mixed.first(10)
  assert few.rows.shape == (6, 10) and few.sets.shape == (2, 6, 10)
  np.testing.assert_array_equal(few.known, mixed.known[:, :10])
