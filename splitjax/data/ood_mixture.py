"""Test sets under shift: mixtures of known and unknown classes.

This is HARMONY's protocol (eq. 11; SplitGP, INFOCOM 2023, section VI). A
client's in-distribution (ID) samples are all test samples of the classes that
it trained on. Its test set mixes them with samples of other classes, which are
out of distribution (OOD), in the ratio rho = #OOD / #ID. A set is a mask over
the test split, so that each network runs once, not once per set.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

Ood = Literal["balanced", "natural"]
"""Class frequencies of OOD samples: equal, or as in the test split."""


def main_classes(
  labels: np.ndarray, parts: Sequence[np.ndarray], classes: int
) -> np.ndarray:
  """Finds the classes in each client's training samples: [N, C] bool.

  `labels` [Z] belong to the training split; `parts` are N arrays [S_n] of rows.
  """
  counts = [np.bincount(labels[rows], minlength=classes) for rows in parts]
  return np.stack(counts) > 0


def id_ood_sets(
  test_label: np.ndarray,
  main: np.ndarray,
  rhos: Sequence[float],
  seed: int,
  ood: Ood = "balanced",
) -> np.ndarray:
  """Draws every client's test set for every rho (HARMONY eq. 11).

  ID: all test samples of the client's classes. OOD: round(rho #ID) samples of
  the other classes, or all of them if there are fewer (see `realised_rho`),
  drawn without replacement. "balanced" draws equally many from each class, to
  within one, as long as the class has samples left; "natural" draws uniformly
  from all samples of the other classes. A client's OOD samples are ordered
  once, and each rho takes a prefix of that order. So the set of a smaller rho
  is a subset of the set of a larger one, and a set depends neither on the other
  rhos nor on the other clients.

  Args:
    test_label: [M] integer, labels of the test split.
    main: [N, C] bool, the classes that each client trained on.
    rhos: R ratios #OOD / #ID, each at least 0.
    seed: fixes the order of the OOD samples.
    ood: class frequencies of the OOD samples.

  Returns:
    [R, N, M] bool, the test samples in each set.
  """
  sets = np.repeat(main[None, :, test_label], len(rhos), axis=0)
  streams = np.random.SeedSequence(seed).spawn(len(main))
  for n, stream in enumerate(streams):
    known = main[n, test_label]
    num_id = int(known.sum())
    rng = np.random.default_rng(stream)
    order = rng.permutation(np.flatnonzero(~known))
    if ood == "balanced":
      order = _balanced(test_label, order)
    for r, rho in enumerate(rhos):
      # An infinite rho takes all, but nothing where there is no ID sample.
      count = min(rho * num_id, len(order)) if num_id else 0
      sets[r, n, order[: round(count)]] = True
  return sets


def _balanced(label: np.ndarray, rows: np.ndarray) -> np.ndarray:
  """Reorders shuffled rows so that every prefix is class-balanced.

  The rows are sorted by the number of earlier rows of the same class: the first
  rows of all classes come before the second rows, and so on. First rows keep
  their random order, as do second rows, so that no class is favoured.
  """
  by_class = np.argsort(label[rows], kind="stable")
  sizes = np.bincount(label[rows])
  starts = np.cumsum(sizes) - sizes
  turn = np.empty(len(rows), np.int64)
  turn[by_class] = np.arange(len(rows)) - np.repeat(starts, sizes)
  return rows[np.argsort(turn, kind="stable")]


def realised_rho(sets: np.ndarray, known: np.ndarray) -> np.ndarray:
  """Computes the ratio #OOD / #ID of the sets as drawn.

  It differs from the requested rho by at most 0.5 / #ID, unless the classes
  that the client lacks have too few samples: then it is smaller.

  Args:
    sets: [R, N, M] bool, the samples in each set.
    known: [N, M] bool, True if the client trained on the sample's class.

  Returns:
    [R, N] float64; NaN for a client without a test sample of its classes.
  """
  count_id = (sets & known).sum(axis=-1)
  count_ood = (sets & ~known).sum(axis=-1)
  return np.where(count_id > 0, count_ood / np.maximum(count_id, 1), np.nan)
