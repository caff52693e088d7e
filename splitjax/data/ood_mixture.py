"""Test sets under shift: what a client knows, and what it does not know.

HARMONY's protocol (eq. 11; SplitGP, INFOCOM 2023, section VI): a client is
tested on its in-distribution (ID) samples, all test samples of the classes it
trained on, mixed with out-of-distribution (OOD) samples of the other classes,
rho = #OOD / #ID. Such a set is a mask over the one test split, so that no
network runs once per set.
"""

import math
from collections.abc import Sequence

import numpy as np

from splitjax.types import UserError


def main_classes(
  labels: np.ndarray, parts: Sequence[np.ndarray], classes: int
) -> np.ndarray:
  """Tells which classes occur among each client's training samples.

  Args:
    labels: [Z] integer, labels of the training split.
    parts: N arrays [S_n] of rows, as a partition returns them.
    classes: C.

  Returns:
    [N, C] bool.
  """
  counts = [np.bincount(labels[rows], minlength=classes) for rows in parts]
  return np.stack(counts) > 0


def id_ood_sets(
  test_label: np.ndarray, main: np.ndarray, rhos: Sequence[float], seed: int
) -> np.ndarray:
  """Draws every client's test set for every rho (HARMONY eq. 11).

  ID: all test samples of the client's classes. OOD: round(rho #ID) samples of
  the other classes, or as many as there are (see realised_rho), without
  replacement and class-balanced: numbers differ by at most one between classes
  that are not yet exhausted. A client's OOD samples are put in order once and
  the first so many are taken, so the sets are nested: that of a smaller rho is
  part of that of a larger one, and no set depends on which other rhos, or how
  many other clients, are asked for.

  Args:
    test_label: [M] integer, labels of the test split.
    main: [N, C] bool, the classes each client trained on.
    rhos: R ratios #OOD / #ID, each at least 0.
    seed: fixes the order of the OOD samples.

  Returns:
    [R, N, M] bool, the test samples in each set.

  Raises:
    UserError: a rho is negative or not finite.
  """
  for rho in rhos:
    if not (math.isfinite(rho) and rho >= 0):
      raise UserError(
        f"eval.rhos = {list(rhos)!r}: {rho!r} must be finite and at least 0"
      )
  sets = np.repeat(main[None, :, test_label], len(rhos), axis=0)
  streams = np.random.SeedSequence(seed).spawn(len(main))
  for n, stream in enumerate(streams):
    known = main[n, test_label]
    order = _balanced_order(test_label, ~known, np.random.default_rng(stream))
    for r, rho in enumerate(rhos):
      count = min(rho * int(known.sum()), len(order))  # a huge one: infinity
      sets[r, n, order[: round(count)]] = True
  return sets


def _balanced_order(
  label: np.ndarray, allowed: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
  """Rows with allowed [M] in an order whose every beginning is class-balanced.

  Shuffled, then sorted by how many of the same class came before: each class
  gives one sample before any gives its next. Within such a turn the shuffle
  decides, so no class is favoured.
  """
  rows = rng.permutation(np.flatnonzero(allowed))
  by_class = np.argsort(label[rows], kind="stable")
  sizes = np.bincount(label[rows])
  starts = np.cumsum(sizes) - sizes
  turn = np.empty(len(rows), np.int64)
  turn[by_class] = np.arange(len(rows)) - np.repeat(starts, sizes)
  return rows[np.argsort(turn, kind="stable")]


def realised_rho(sets: np.ndarray, inside: np.ndarray) -> np.ndarray:
  """Measures #OOD / #ID of the sets as drawn.

  It differs from the rho asked for by at most half a sample in #ID, unless the
  client's other classes ran out of samples: then it is smaller.

  Args:
    sets: [R, N, M] bool, the samples in each set.
    inside: [N, M] bool, the sample's class is one that the client trained on.

  Returns:
    [R, N] float64; NaN for a client without a test sample of its classes.
  """
  within = (sets & inside).sum(axis=-1)
  beyond = (sets & ~inside).sum(axis=-1)
  return np.where(within > 0, beyond / np.maximum(within, 1), np.nan)
