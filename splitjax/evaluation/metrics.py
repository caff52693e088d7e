"""METRICS: name -> function of one client's answers that returns a number.

  f(labels, answers, probabilities, *, options) -> number

  labels: [T] int, the classes of the client's T test samples, T >= 1.
  answers: [T] int, the classes that the client's exit or the server predicts,
    depending on the thresholds of eval.threshold_rule.
  probabilities: [T, C] float, the softmax of the exit that answered.

Probabilities are kept only if a metric takes them, which saves memory. Keyword-
only arguments are options of a config. A metric returns NaN for a client for
whom it is not defined; means over clients leave that client out.

  >>> import numpy as np, splitjax
  >>> labels, answers = np.array([0, 1]), np.array([0, 0])
  >>> probabilities = np.array([[0.8, 0.2], [0.6, 0.4]])
  >>> round(splitjax.METRICS["ece"](labels, answers, probabilities), 3)
  0.4
"""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from splitjax.data.dataset import require
from splitjax.evaluation import gate
from splitjax.evaluation.gate import Answered
from splitjax.options import Spec
from splitjax.types import UserError


def ece(
  labels: np.ndarray,
  answers: np.ndarray,
  probabilities: np.ndarray,
  *,
  bins: int = 15,
) -> float:
  """Expected calibration error (Guo et al., ICML 2017, eq. 3).

  ECE = sum_m |B_m| / T |acc(B_m) - conf(B_m)| over M = `bins` bins. Bin B_m has
  the samples whose answer has a probability in ((m - 1) / M, m / M]. NaN if an
  answer's probability is NaN.
  """
  require(bins >= 1, f"bins={bins} must be at least 1")
  sure = probabilities[np.arange(len(labels)), answers]
  if np.isnan(sure).any():
    return np.nan
  bin_of = np.maximum(np.ceil(sure * bins).astype(int) - 1, 0)
  apart = np.bincount(bin_of, (answers == labels) - sure, bins)
  return float(np.abs(apart).sum() / len(labels))


METRICS: dict[str, Callable[..., float]] = {"ece": ece}


def take_probabilities(specs: Mapping[str, Spec]) -> bool:
  """Checks if any metric of a config takes a third argument, probabilities."""
  return any(_arguments(spec) > 2 for spec in specs.values())


def _arguments(spec: Spec) -> int:
  """Counts what a metric takes of labels, answers and probabilities: 2 or 3."""
  parameters = inspect.signature(METRICS[spec.name]).parameters.values()
  return max(2, sum(p.kind is not p.KEYWORD_ONLY for p in parameters))


def check_metrics(
  specs: Mapping[str, Spec], classes: int, taken: Collection[str]
) -> None:
  """Tries each metric on two made-up samples of every class.

  Raises UserError if one returns no number, or if its key is in `taken`, which
  has the names of a report's other numbers.
  """
  label = np.tile(np.arange(classes, dtype=np.int32), 2)
  sure = np.full((len(label), classes), 1 / classes, np.float32)
  for key, spec in specs.items():
    text = f"a report has another {key}; choose another key"
    require(key not in taken, f"eval.metrics.{key}: {text}")
    _number(key, spec, (label, label, sure))


def measure(
  specs: Mapping[str, Spec], answered: Answered, threshold: np.ndarray
) -> dict[str, np.ndarray]:
  """Computes every metric at thresholds [R, N]: key -> [R, N] float64.

  NaN for a client without samples. Raises UserError if one returns no number.
  """
  exits, labels, samples, _ = answered
  out = {key: np.full(samples.shape[:2], np.nan) for key in specs}
  for r, limit in enumerate(threshold if specs else ()):
    answers, away = gate.decide(answered, limit)
    for n in np.flatnonzero(samples[r].any(axis=1)):
      rows = np.flatnonzero(samples[r, n])
      arguments = [labels[n, rows], answers[n, rows]]
      if exits.probabilities is not None:
        both = np.asarray(exits.probabilities[n])
        arguments.append(both[rows, away[n, rows].astype(int)])
      for key, spec in specs.items():
        out[key][r, n] = _number(key, spec, arguments)
  return out


def _number(key: str, spec: Spec, arguments: Sequence[np.ndarray]) -> float:
  """Calls a metric with as many of its arguments as it takes."""
  field = f"eval.metrics.{key}"
  metric = METRICS[spec.name]
  try:
    value = np.asarray(metric(*arguments[: _arguments(spec)], **spec.options))
  except UserError as error:
    raise UserError(f"{field} ({spec.name}): {error}") from None
  require(
    not value.shape and value.dtype.kind in "biuf",
    f"{field}: {spec.name} must return a number, not an array"
    f" {list(value.shape)} of {value.dtype}",
  )
  return float(value)
