"""What is measured once the networks have run: latency, means, intervals.

Latency is the papers' model, not a clock: parameters over computing power, and
channels over bandwidth, which is also the unit of the papers' tables.

References:
  SplitGP (Han et al., "SplitGP: Achieving Both Generalization and
    Personalization in Federated Learning", INFOCOM 2023), Sec. V, eq. 28-33.
  HARMONY (Youn et al., "HARMONY: Bridging the Personalization-Generalization
    Gap by Mitigating Representation Skew in Heterogeneous Split Federated
    Learning", 2026), Sec. 5, eq. 12.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from splitjax.types import UserError


def over_clients(values: np.ndarray) -> np.ndarray:
  """Mean over the clients that have a value: NaN marks an empty test set.

  Args:
    values: [..., N] float.

  Returns:
    [...] float64; NaN only where no client has a value.
  """
  values = np.asarray(values, np.float64)
  present = ~np.isnan(values)
  total = np.where(present, values, 0.0).sum(axis=-1)
  count = present.sum(axis=-1)
  mean = np.full(total.shape, np.nan)
  return np.divide(total, count, out=mean, where=count > 0)


def confidence_interval(
  values: Sequence[float], level: float = 0.95
) -> tuple[float, float | None]:
  """Mean and half-width of Student's t interval, over seeds.

  t_{(1 + level) / 2, n - 1} s / sqrt(n), s with n - 1 in its denominator.

  Args:
    values: [n] float, one per seed.
    level: of confidence.

  Returns:
    (mean, half-width); None, not 0, is that of one value: no spread is known.

  Raises:
    UserError: no value.
  """
  if not len(values):
    raise UserError("an interval over seeds needs at least one seed")
  mean = float(np.mean(values))
  if len(values) == 1:
    return mean, None
  quantile = float(stats.t.ppf((1 + level) / 2, len(values) - 1))
  error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
  return mean, quantile * error


def held_elsewhere(counts: np.ndarray) -> np.ndarray:
  """How many of a client's OOD classes some other client holds.

  The rest nobody can have learnt.

  Args:
    counts: [N, C] int, training samples of each class.

  Returns:
    [N] int64, out of the client's C - (classes it holds).
  """
  held = np.asarray(counts) > 0
  return (~held & held.any(axis=0)).sum(axis=1)
