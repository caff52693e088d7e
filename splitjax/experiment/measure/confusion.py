"""Confusion matrices of a trained method's clients."""

from typing import Any

import numpy as np

from splitjax.evaluation import early_exit
from splitjax.evaluation.metrics import ratio
from splitjax.experiment.measure.scores import End
from splitjax.types import Number


def on_end(end: End) -> tuple[list[Number], dict[str, np.ndarray]]:
  """Counts each client's answers by class, at eval.threshold_rule's thresholds.

  Returns:
    No numbers, and row label -> [R, N, C, C] int32 by test set, client, class
    and answer. The sum over N is the matrix of all clients. The arrays are {}
    unless the config asks for the matrices (eval.confusion).
  """
  if not end.task.config.eval.confusion:
    return [], {}
  sets, classes = end.task.test_sets, end.task.data.classes
  found = {}
  for scores in end.scores:
    table = np.zeros((*sets.sets.shape[:2], classes, classes), np.int32)
    for r, tested in enumerate(sets.sets):
      limit = scores.chosen.threshold[r]
      answers = early_exit.predictions(scores.exits, limit, scores.sides)
      n, m = np.nonzero(tested)
      label = np.broadcast_to(sets.label, answers.shape)[n, m]
      np.add.at(table[r], (n, label, answers[n, m]), 1)
    found[scores.label] = table
  return [], found


def picture(arrays: dict[str, np.ndarray], label: str, of: str) -> Any:
  """Draws the matrices of the last test set, summed over the clients.

  Each entry is divided by the number of samples of its class.
  """
  from splitjax.reports.figures import maps  # imports matplotlib

  every = {row: x[-1].sum(axis=0) for row, x in arrays.items()}
  shares = [ratio(x, x.sum(axis=1, keepdims=True)) for x in every.values()]
  return maps.confusion(np.stack(shares), list(every))
