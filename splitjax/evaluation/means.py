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


def over_clients(
  values: np.ndarray, weights: np.ndarray | float = 1.0
) -> np.ndarray:
  """Weighted mean of the clients' values but NaN: [..., N] -> [...]."""
  values = np.asarray(values, np.float64)
  weights = np.where(np.isnan(values), 0.0, weights)
  total = np.where(weights > 0, values, 0.0) * weights
  return ratio(total.sum(axis=-1), weights.sum(axis=-1))


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
