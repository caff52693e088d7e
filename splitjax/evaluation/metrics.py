"""METRICS: name -> function of one client's answers that returns a number.

  f(labels, answers, probabilities, *, options) -> number

  labels: [T] int, the classes of the client's T test samples, T >= 1.
  answers: [T] int, the classes that the client's exit or the server predicts,
    depending on the thresholds of eval.threshold_rule.
  probabilities: [T, C] float, the softmax of the exit that answered.

If all metrics take (labels, answers) alone, the probabilities of the test
samples are not kept, which saves memory. Keyword-only arguments are options of
a config. A metric returns NaN for a client for whom it is not defined; means
over clients leave that client out.

  >>> import numpy as np, splitjax
  >>> labels, answers = np.array([0, 1, 1, 1]), np.array([0, 0, 1, 1])
  >>> round(float(splitjax.METRICS["macro_f1"](labels, answers)), 3)
  0.733
"""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from splitjax.evaluation import gate
from splitjax.evaluation.gate import Answered
from splitjax.options import Spec
from splitjax.types import UserError


def macro_f1(labels: np.ndarray, answers: np.ndarray) -> float:
  """The mean over classes of F1 = 2 TP / (2 TP + FP + FN).

  The mean is over the classes that the client's test samples have. An answer of
  any other class counts only as a false negative of the true class.
  """
  from sklearn import metrics

  present = np.unique(labels)
  return metrics.f1_score(
    labels, answers, labels=present, average="macro", zero_division=0.0
  )


def auroc(
  labels: np.ndarray, answers: np.ndarray, probabilities: np.ndarray
) -> float:
  """The mean over classes of the area under the ROC curve, one against rest.

  Classes without a test sample of this client are left out. NaN if its samples
  have a single class, or if a probability is NaN.
  """
  from sklearn import metrics

  present = np.unique(labels)
  if len(present) < 2 or np.isnan(probabilities).any():
    return np.nan
  areas = [
    metrics.roc_auc_score(labels == c, probabilities[:, c]) for c in present
  ]
  return float(np.mean(areas))


def ece(
  labels: np.ndarray,
  answers: np.ndarray,
  probabilities: np.ndarray,
  *,
  bins: int = 15,
) -> float:
  """Expected calibration error (Guo et al., ICML 2017, eq. 3).

  ECE = sum_m |B_m| / T |acc(B_m) - conf(B_m)| over M = `bins` bins. Bin B_m has
  the samples whose answer has a probability in ((m - 1) / M, m / M]; an empty
  bin adds 0. NaN if an answer's probability is NaN. scikit-learn lacks ECE.
  """
  if bins < 1:
    raise UserError(f"bins={bins} must be at least 1")
  sure = probabilities[np.arange(len(labels)), answers]
  if np.isnan(sure).any():
    return np.nan
  bin_of = np.maximum(np.ceil(sure * bins).astype(int) - 1, 0)
  apart = np.bincount(bin_of, (answers == labels) - sure, bins)
  return float(np.abs(apart).sum() / len(labels))


METRICS: dict[str, Callable[..., float]] = {
  "macro_f1": macro_f1,
  "auroc": auroc,
  "ece": ece,
}


def take_probabilities(specs: Mapping[str, Spec]) -> bool:
  """Checks if any metric of a config takes a third argument, probabilities."""
  return any(_arguments(spec) > 2 for spec in specs.values())


def _arguments(spec: Spec) -> int:
  """Counts the arguments of a metric that are not options."""
  parameters = inspect.signature(METRICS[spec.name]).parameters.values()
  return sum(p.kind is not p.KEYWORD_ONLY for p in parameters)


def check_metrics(
  specs: Mapping[str, Spec], classes: int, taken: Collection[str]
) -> None:
  """Tries each metric on two made-up samples of every class.

  Raises UserError if a metric returns no number, or if its key is in `taken`,
  which has the names of a report's other numbers.
  """
  for key in specs.keys() & taken:
    raise UserError(
      f"eval.metrics.{key}: a report has another {key}; choose another key"
    )
  label = np.tile(np.arange(classes, dtype=np.int32), 2)
  sure = np.full((len(label), classes), 1 / classes, np.float32)
  for key, spec in specs.items():
    _number(key, spec, (label, label, sure))


def measure(
  specs: Mapping[str, Spec], answered: Answered, threshold: np.ndarray
) -> dict[str, np.ndarray]:
  """Computes every metric of every client on every test set.

  `specs` has names in METRICS and options; `threshold` is [R, N], nats. Returns
  key -> [R, N] float64; NaN for a client without samples. Raises a UserError if
  a metric returns no number.
  """
  exits, labels, samples, sides = answered
  out = {key: np.full(samples.shape[:2], np.nan) for key in specs}
  labels = np.broadcast_to(labels, samples.shape[1:])
  for r, n in np.ndindex(*samples.shape[:2]) if specs else ():
    rows = np.repeat(np.arange(samples.shape[2]), samples[r, n].astype(int))
    if not len(rows):
      continue
    limit = np.broadcast_to(threshold[r, n], 1)
    away = gate.offloads(np.asarray(exits.entropy[n])[rows], limit, sides)
    client, server = (np.asarray(x[n])[rows] for x in exits[2:4])
    arguments = [labels[n][rows], np.where(away, server, client)]
    if exits.probabilities is not None:
      both = np.asarray(exits.probabilities[n])
      arguments.append(both[rows, away.astype(int)])
    for key, spec in specs.items():
      out[key][r, n] = _number(key, spec, arguments)
  return out


def _number(key: str, spec: Spec, arguments: Sequence[np.ndarray]) -> float:
  """Calls a metric with labels, answers and, if it takes them, the rest."""
  metric = METRICS[spec.name]
  field = f"eval.metrics.{key}"
  count = 3 if take_probabilities({key: spec}) else 2
  try:
    value = np.asarray(metric(*arguments[:count], **spec.options))
  except UserError as error:
    raise UserError(f"{field} ({spec.name}): {error}") from None
  if value.shape or value.dtype.kind not in "biuf":
    raise UserError(
      f"{field}: {spec.name} must return a number, not an array"
      f" {list(value.shape)} of {value.dtype}"
    )
  return float(value)
