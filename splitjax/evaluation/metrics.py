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
  correct = answers == labels
  # |B_m| (acc - conf) of each bin: the means' counts cancel.
  gap = np.bincount(bin_of, weights=correct - sure, minlength=bins)
  return float(np.abs(gap).sum() / len(labels))


METRICS: dict[str, Callable[..., float]] = {"ece": ece}


def any_takes_probabilities(specs: Mapping[str, Spec]) -> bool:
  """Checks if a metric of a config takes a third argument, probabilities."""
  return any(_takes_probabilities(spec) for spec in specs.values())


def _takes_probabilities(spec: Spec) -> bool:
  """Checks if a metric has a third parameter that is passed by position."""
  parameters = inspect.signature(METRICS[spec.name]).parameters.values()
  by_position = [
    p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters
  ]
  return sum(by_position) > 2


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
    _number(key, spec, [label, label, sure])


def measure(
  specs: Mapping[str, Spec], answered: Answered, threshold: np.ndarray
) -> dict[str, np.ndarray]:
  """Computes every metric at thresholds [R, N]: key -> [R, N] float64.

  NaN for a client without samples. Raises UserError if one returns no number.
  """
  exits, labels, in_set, _ = answered
  values = {key: np.full(in_set.shape[:2], np.nan) for key in specs}
  for r, limit in enumerate(threshold if specs else ()):
    answers, offloaded = gate.decide(answered, limit)
    for n in np.flatnonzero(in_set[r].any(axis=1)):
      columns = np.flatnonzero(in_set[r, n])
      arguments = [labels[n, columns], answers[n, columns]]
      if exits.probabilities is not None:
        by_exit = np.asarray(exits.probabilities[n])
        exit_index = offloaded[n, columns].astype(int)  # 0: the client's
        arguments.append(by_exit[columns, exit_index])
      for key, spec in specs.items():
        values[key][r, n] = _number(key, spec, arguments)
  return values


def _number(key: str, spec: Spec, arguments: Sequence[np.ndarray]) -> float:
  """Calls a metric with labels, answers and what else it takes."""
  field = f"eval.metrics.{key}"
  metric = METRICS[spec.name]
  count = 3 if _takes_probabilities(spec) else 2
  try:
    value = np.asarray(metric(*arguments[:count], **spec.options))
  except UserError as error:
    raise UserError(f"{field} ({spec.name}): {error}") from None
  require(
    not value.shape and value.dtype.kind in "biuf",
    f"{field}: {spec.name} must return a number, not an array"
    f" {list(value.shape)} of {value.dtype}",
  )
  return float(value)
