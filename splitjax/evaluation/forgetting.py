"""Forgetting: accuracy by class, performance gap, backward transfer.

Arithmetic on predictions, on the host. All values are fractions. The accuracy
of a class without a test sample is NaN, and means leave it out.

Hydra's paper leaves open which rounds count. Here only evaluated rounds count
(eval.every), both in the search for a peak and among the last rounds.

References:
  Hydra (Tirana et al., AAAI 2026), Section 3.1 (eq. 1, 2) and appendix G.4
    (accuracy by position).
"""

import warnings

import numpy as np

from splitjax.evaluation.metrics import over_clients, ratio

LATE = 5
"""Number of last rounds over which Hydra reports the median."""


def confusion(
  predicted: np.ndarray, labels: np.ndarray, samples: np.ndarray, classes: int
) -> np.ndarray:
  """Computes the confusion matrix of the answers (Hydra Figure 11).

  Its diagonal is A_l, the accuracy on all clients' test samples of class l.

  A_l = sum_n #{m of class l: y_nm = l} / sum_n #{m of class l}

  A choice: this is a mean over samples, not over clients. If every client has
  the whole test split, as in Hydra, both are the same.

  Args:
    predicted: [N, M] int in 0..C-1, the answers; or [M] of one client.
    labels: [M] or [N, M] int; undefined for padding.
    samples: shape as `predicted`, bool, the samples of the test set; or int,
      the weight of each sample.
    classes: C.

  Returns:
    [C, C] float64 with a row per class and a column per answer. A row sums to
    1, or is NaN for a class without a sample.
  """
  own = samples > 0
  truth = np.broadcast_to(labels, predicted.shape)[own]
  pairs = np.bincount(
    classes * truth + predicted[own], samples[own], classes**2
  )
  count = pairs.reshape(classes, classes)
  return ratio(count, count.sum(axis=1, keepdims=True))


def performance_gap(per_class: np.ndarray) -> np.ndarray:
  """Computes the mean gap of the classes to the best class (Hydra eq. 2).

  PG(r) = 1/L sum_l (max_k A_k^r - A_l^r)

  A choice: the paper prints max_k { min(0, A_l - A_k) }, which is 0 for k = l
  and so always 0; its text and tables mean the absolute gap to the best label.

  Args:
    per_class: [..., C] float, A_l.

  Returns:
    [...] float64, at least 0.
  """
  values = np.asarray(per_class, np.float64)
  best = np.fmax.reduce(values, axis=-1, keepdims=True)
  return over_clients(best - values)


def backward_transfer(per_class: np.ndarray) -> np.ndarray:
  """Computes the mean gap of classes to their best earlier round (Hydra eq. 1).

  BW(R) = 1/L sum_l max_{r < R} (A_l^r - A_l^R)

  In the paper R is the last round. A choice: here R is each evaluated round in
  turn, so that a median over the last rounds can be taken.

  Args:
    per_class: [R, C] float, A_l^r of the evaluated rounds in order.

  Returns:
    [R] float64; NaN for the first round; below 0 if the classes are on average
    better than ever before.
  """
  values = np.asarray(per_class, np.float64)
  out = np.full(len(values), np.nan)
  if len(values) > 1:
    past = np.fmax.accumulate(values[:-1], axis=0)
    out[1:] = over_clients(past - values[1:])
  return out


def late(values: np.ndarray) -> np.ndarray:
  """Takes the median over the last five evaluated rounds, as Hydra's tables do.

  Args:
    values: [R, ...] float, by round; if R < 5 the median is over all R. NaN
      values are ignored.

  Returns:
    [...] float64; NaN if all values are NaN.
  """
  with warnings.catch_warnings():  # nanmedian warns where all values are NaN
    warnings.simplefilter("ignore", RuntimeWarning)
    return np.nanmedian(np.asarray(values, np.float64)[-LATE:], axis=0)


def late_numbers(
  accuracy: np.ndarray, per_class: np.ndarray
) -> dict[str, float]:
  """Computes the numbers of Hydra's tables, medians over the last rounds.

  Args:
    accuracy: [R], mean over clients, by evaluated round.
    per_class: [R, C], A_l^r, by evaluated round.

  Returns:
    "late_accuracy", "gap" and "backward".
  """
  curves = {
    "late_accuracy": accuracy,
    "gap": performance_gap(per_class),
    "backward": backward_transfer(per_class),
  }
  return {name: float(late(values)) for name, values in curves.items()}
