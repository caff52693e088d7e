"""Means over clients."""

import numpy as np


def ratio(
  over: np.ndarray,
  under: np.ndarray,
  *,
  where: np.ndarray | None = None,
  otherwise: float = np.nan,
) -> np.ndarray:
  """Divides two arrays, with a fixed value where the quotient has no meaning.

  Args:
    over: [...] numbers.
    under: [...] numbers.
    where: [...] bool, where to divide; None: where `under` is above 0.
    otherwise: the value elsewhere.
  """
  where = np.asarray(under) > 0 if where is None else where
  out = np.full(np.broadcast(over, under).shape, otherwise)
  return np.divide(over, under, out=out, where=where)


def over_clients(values: np.ndarray) -> np.ndarray:
  """Mean over the clients that have a value; NaN marks an empty test set.

  Args:
    values: [..., N] float.

  Returns:
    [...] float64; NaN if no client has a value.
  """
  values = np.asarray(values, np.float64)
  valid = ~np.isnan(values)
  return ratio(np.where(valid, values, 0.0).sum(axis=-1), valid.sum(axis=-1))


def over_samples(values: np.ndarray, sizes: np.ndarray) -> np.ndarray:
  """Mean over clients weighted by their test samples; NaN without samples.

  Args:
    values: [..., N] float, one per client.
    sizes: [..., N] int, test samples of each client.

  Returns:
    [...] float64.
  """
  sizes = np.asarray(sizes, np.float64)
  known = np.where(sizes > 0, values, 0.0)
  return ratio((known * sizes).sum(axis=-1), sizes.sum(axis=-1))


def spread(values: np.ndarray) -> dict[str, np.ndarray]:
  """Measures how unequal the values of clients are, leaving out NaN.

  Args:
    values: [..., N] float; NaN marks an empty test set.

  Returns:
    Key -> [...] float64; NaN if no client has a value. "std" is the standard
    deviation (with n in its denominator). "worst_tenth" is the mean of the
    ceil(n / 10) lowest values.

  Example:
    >>> import numpy as np
    >>> {k: float(v) for k, v in spread(np.array([0.5, 0.7, np.nan])).items()}
    {'std': 0.1, 'worst_tenth': 0.5}
  """
  values = np.sort(np.asarray(values, np.float64), axis=-1)  # NaN comes last
  count = (~np.isnan(values)).sum(axis=-1)
  apart = values - over_clients(values)[..., None]
  lowest = np.arange(values.shape[-1]) < -(-count // 10)[..., None]
  worst = over_clients(np.where(lowest, values, np.nan))
  return {"std": np.sqrt(over_clients(apart**2)), "worst_tenth": worst}


def held_elsewhere(counts: np.ndarray) -> np.ndarray:
  """Counts for each client the OOD classes that another client holds.

  The OOD classes that no client holds cannot have been learnt by anybody.

  Args:
    counts: [N, C] int, training samples of each class.

  Returns:
    [N] int64, at most C minus the number of classes that the client holds.
  """
  held = np.asarray(counts) > 0
  return (~held & held.any(axis=0)).sum(axis=1)
