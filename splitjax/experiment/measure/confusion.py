"""Confusion matrices of a trained method's clients."""

from typing import Any

import numpy as np

from splitjax.evaluation import early_exit
from splitjax.evaluation.metrics import ratio
from splitjax.experiment.measure.scores import End
from splitjax.reports.figures.forgetting import confusion as heat_maps


def on_end(end: End) -> dict[str, np.ndarray]:
  """Counts each client's answers by class, at eval.threshold_rule's thresholds.

  Returns:
    Row label -> [R, N, C, C] int32 by test set, client, class and answer. The
    sum over N is the matrix of all clients. {} unless the config asks for the
    matrices (eval.confusion).
  """
  if not end.task.config.eval.confusion:
    return {}
  sets, classes = end.task.test_sets, end.task.data.classes
  found = {}
  for row, each in zip(end.rows, end.outputs, strict=True):
    limits = row["summary"]["per_client"]["threshold"]
    table = np.zeros((*sets.sets.shape[:2], classes, classes), np.int32)
    for r, tested in enumerate(sets.sets):
      limit = np.nan if limits is None else np.array(limits[r], float)
      answers = row["summary"]["answers"]
      given = early_exit.predictions(each.test, limit, answers)
      n, m = np.nonzero(tested)
      label = np.broadcast_to(sets.label, given.shape)[n, m]
      np.add.at(table[r], (n, label, given[n, m]), tested[n, m])
    found[row["label"]] = table
  return found


def picture(arrays: dict[str, np.ndarray], label: str, of: str) -> Any:
  """Draws the matrices of the last test set, summed over the clients.

  Each entry is divided by the number of samples of its class.
  """
  every = {row: x[-1].sum(axis=0) for row, x in arrays.items()}
  shares = [ratio(x, x.sum(axis=1, keepdims=True)) for x in every.values()]
  return heat_maps(np.stack(shares), list(every))
