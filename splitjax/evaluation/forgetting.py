"""What a model forgets: accuracy by class, the gap between classes, the past.

Arithmetic on predictions, on the host. Everything here is a share of one, and
NaN where there is nothing to count: a class without a test sample enters no
mean.

Decided, where the paper leaves it open: rounds are those that were evaluated
(eval.every), and a round that was not counts neither as a peak nor as late.

References:
  Hydra (Tirana et al., "Data Heterogeneity and Forgotten Labels in Split
    Federated Learning"), Sec. 2 (eq. 1, 2), Sec. 3.1 and the appendix on
    per-position accuracy.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from splitjax.evaluation.metrics import over_clients

LATE = 5
"""Of how many rounds at the end Hydra reports the median."""


def class_accuracy(
  predicted: np.ndarray, labels: np.ndarray, samples: np.ndarray, classes: int
) -> np.ndarray:
  """A_l, the share of all clients' test samples of class l answered right.

  A_l = sum_n #{m of class l: y_nm = l} / sum_n #{m of class l}

  Decided: samples are counted, not clients averaged. Where every client has
  the whole test split, as Hydra's do, that is the same.

  Args:
    predicted: [N, M] int, what was answered.
    labels: [M] or [N, M] int; of no meaning where there is no sample.
    samples: [N, M] bool, which of them are in the test set; or int, how often
      each counts.
    classes: C.

  Returns:
    [C] float64; NaN for a class without a sample.
  """
  size, right = np.zeros(classes), np.zeros(classes)
  for said, kind, weight in _of_clients(predicted, labels, samples):
    size += np.bincount(kind, weight, classes)
    right += np.bincount(kind, weight * (said == kind), classes)
  share = np.full(classes, np.nan)
  return np.divide(right, size, out=share, where=size > 0)


def confusion(
  predicted: np.ndarray, labels: np.ndarray, samples: np.ndarray, classes: int
) -> np.ndarray:
  """What the samples of each class were taken for (Hydra Figure 11).

  Its diagonal is `class_accuracy`.

  Args:
    predicted: [N, M] int in 0..C-1, otherwise as `class_accuracy`.
    labels: as there.
    samples: as there.
    classes: as there.

  Returns:
    [C, C] float64, rows the classes, columns the answers; a row sums to 1, or
    is NaN for a class without a sample.
  """
  pairs = np.zeros(classes**2)
  for said, kind, weight in _of_clients(predicted, labels, samples):
    pairs += np.bincount(classes * kind + said, weight, classes**2)
  count = pairs.reshape(classes, classes)
  size = count.sum(axis=1, keepdims=True)
  share = np.full(count.shape, np.nan)
  return np.divide(count, size, out=share, where=size > 0)


def _of_clients(
  predicted: np.ndarray, labels: np.ndarray, samples: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
  """Of one client after another answers, classes, weights of its samples.

  One at a time, so that memory stays at a few [M] arrays.
  """
  truth = np.broadcast_to(labels, predicted.shape)
  for said, kind, often in zip(predicted, truth, samples, strict=True):
    present = np.flatnonzero(often)
    yield (
      said[present],
      kind[present],
      often[present].astype(np.float64),
    )


def performance_gap(per_class: np.ndarray) -> np.ndarray:
  """How far classes lie below the best one (Hydra eq. 2).

  PG(r) = 1/L sum_l (max_k A_k^r - A_l^r)

  Decided: the paper prints max_k { min(0, A_l - A_k) }, which is 0 for k = l
  and so always 0; its text and tables mean the absolute gap to the best label.

  Args:
    per_class: [..., C] float, A_l.

  Returns:
    [...] float64, not below 0.
  """
  values = np.asarray(per_class, np.float64)
  best = np.fmax.reduce(values, axis=-1, keepdims=True)
  return over_clients(best - values)


def backward_transfer(per_class: np.ndarray) -> np.ndarray:
  """How far classes lie below their own best past (Hydra eq. 1).

  BW(R) = 1/L sum_l max_{r < R} (A_l^r - A_l^R)

  Decided: R is each evaluated round in turn, so that the median of the last
  ones can be taken; the paper's R is the last.

  Args:
    per_class: [R, C] float, A_l^r of the evaluated rounds in their order.

  Returns:
    [R] float64; NaN for the first, which has no past; below 0 where classes
    are better than ever.
  """
  values = np.asarray(per_class, np.float64)
  found = np.full(len(values), np.nan)
  if len(values) > 1:
    past = np.fmax.accumulate(values[:-1], axis=0)
    found[1:] = over_clients(past - values[1:])
  return found


def per_position(
  per_class: np.ndarray, position_of_label: Sequence[int]
) -> np.ndarray:
  """Accuracy by place in the order of service (Hydra Figures 2, 6, 13).

  Position k's is the mean of A_l over the labels l that are dominant among the
  clients served k-th in a cycle.

  Args:
    per_class: [..., C] float, A_l.
    position_of_label: [C] int, from 0 on; below 0 for a label that is dominant
      nowhere.

  Returns:
    [..., P] float64, P = 1 + the largest position; NaN where no label is.
  """
  values = np.asarray(per_class, np.float64)
  place = np.asarray(position_of_label)
  found = [
    over_clients(values[..., place == p]) for p in range(place.max() + 1)
  ]
  return np.stack(found, axis=-1)


def late(values: np.ndarray) -> np.ndarray:
  """The median over the last five evaluated rounds (Hydra, all its tables).

  Args:
    values: [R, ...] float, by round; of fewer than five all are taken, and
      those that are NaN are left out.

  Returns:
    [...] float64; NaN where there is none.
  """
  window = np.asarray(values, np.float64)[-LATE:]
  flat = window.reshape(len(window), -1)
  found = np.full(flat.shape[1], np.nan)
  present = ~np.isnan(flat).all(axis=0)
  found[present] = np.nanmedian(flat[:, present], axis=0)
  return found.reshape(window.shape[1:])


def summarise(
  accuracy: Sequence[float | None],
  per_class: Sequence[Sequence[float | None]],
) -> dict[str, Any]:
  """What a result row says of forgetting.

  Args:
    accuracy: [R], mean over clients, by evaluated round; None as NaN.
    per_class: [R][C], A_l^r, likewise.

  Returns:
    accuracy, gap, backward: `late` of each; rounds: of how many; late: their
    values in these, accuracy, gap, backward [..] and per_class [..][C].
  """
  classes = np.array(per_class, np.float64)
  curves = {
    "accuracy": np.array(accuracy, np.float64),
    "gap": performance_gap(classes),
    "backward": backward_transfer(classes),
  }
  ends = {name: values[-LATE:] for name, values in curves.items()}
  return {
    **{name: float(late(values)) for name, values in curves.items()},
    "rounds": len(ends["gap"]),
    "late": {**ends, "per_class": classes[-LATE:]},
  }
