"""Means over clients."""

import numpy as np


def ratio(
  over: np.ndarray | float,
  under: np.ndarray | float,
  *,
  otherwise: float = np.nan,
) -> np.ndarray:
  """Divides two arrays where `under` is above 0; else `otherwise`."""
  out = np.full(np.broadcast(over, under).shape, otherwise)
  return np.divide(over, under, out=out, where=np.asarray(under) > 0)


def over_clients(values: np.ndarray) -> np.ndarray:
  """Mean over the clients that have a value, not NaN: [..., N] -> [...]."""
  values = np.asarray(values, np.float64)
  valid = ~np.isnan(values)
  return ratio(np.where(valid, values, 0.0).sum(axis=-1), valid.sum(axis=-1))


def over_samples(values: np.ndarray, sizes: np.ndarray) -> np.ndarray:
  """Mean over clients [..., N] weighted by their test samples; else NaN."""
  sizes = np.asarray(sizes, np.float64)
  total = (np.where(sizes > 0, values, 0.0) * sizes).sum(axis=-1)
  return ratio(total, sizes.sum(axis=-1))


def spread(values: np.ndarray) -> dict[str, np.ndarray]:
  """Measures how unequal the values [..., N] of clients are, leaving out NaN.

  "std" is the standard deviation (with n in its denominator), "worst_tenth" the
  mean of the ceil(n / 10) lowest values, [...] each.
  """
  values = np.sort(np.asarray(values, np.float64), axis=-1)  # NaN comes last
  count = (~np.isnan(values)).sum(axis=-1)
  apart = values - over_clients(values)[..., None]
  lowest = np.arange(values.shape[-1]) < -(-count // 10)[..., None]
  worst = over_clients(np.where(lowest, values, np.nan))
  return {"std": np.sqrt(over_clients(apart**2)), "worst_tenth": worst}
