"""Forgetting: by class, over the rounds, and within a round.

Hydra (Tirana et al., AAAI 2026), Section 3.1 (eq. 1, 2), Figure 11 and appendix
G.4 (accuracy by position). All values are fractions; means leave out a class
without a test sample, whose accuracy is NaN. The paper leaves open which rounds
count: here the evaluated ones (eval.every).
"""

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from splitjax.data import TestSets
from splitjax.evaluation import gate
from splitjax.evaluation.means import over_clients, ratio
from splitjax.evaluation.subject import Arrays, End, Finding, Subject
from splitjax.fleet import orders
from splitjax.fleet.orders import IN_TURN, NO_TURN, Queue
from splitjax.types import Number

_LATE = 5
"""Number of last rounds over which Hydra reports the median."""


def count_answers(
  predicted: np.ndarray, sets: TestSets, number: int
) -> np.ndarray:
  """Counts the answers to the samples of the test set `number`.

  Of the answers [N, M] to all test samples. Returns [N, C, C] int32, by client,
  class and answer.
  """
  classes = sets.main.shape[1]
  table = np.zeros((len(predicted), classes, classes), np.int32)
  client, sample = np.nonzero(sets.sets[number])
  answer = predicted[client, sample]
  np.add.at(table, (client, sets.label[client, sample], answer), 1)
  return table


def shares(counts: np.ndarray) -> np.ndarray:
  """Divides the counts [N, C, C] of all clients by the samples of each class.

  Returns [C, C] float64 (Hydra Figure 11), whose diagonal is A_l, the accuracy
  on all clients' test samples of class l. A choice: a mean over samples, not
  over clients; both are the same if every client has the whole test split.
  """
  total = counts.sum(axis=0)
  return ratio(total, total.sum(axis=1, keepdims=True))


def performance_gap(per_class: np.ndarray) -> np.ndarray:
  """Computes the mean gap of the classes to the best class (Hydra eq. 2).

  PG(r) = 1/L sum_l (max_k A_k^r - A_l^r), from A_l [..., C] to [...]

  The paper prints max_k { min(0, A_l - A_k) }, which is always 0, since it is 0
  for k = l; its text and tables mean the absolute gap to the best label.
  """
  values = np.asarray(per_class, np.float64)
  best = np.fmax.reduce(values, axis=-1, keepdims=True)
  return over_clients(best - values)


def backward_transfer(per_class: np.ndarray) -> np.ndarray:
  """Computes the mean gap of classes to their best earlier round (Hydra eq. 1).

  BW(R) = 1/L sum_l max_{r < R} (A_l^r - A_l^R)

  In the paper R is the last round, here each evaluated round in turn, so that a
  median can be taken. From A_l^r [R, C] to [R]: NaN for the first round, below
  0 if classes are on average better than ever before.
  """
  values = np.asarray(per_class, np.float64)
  past = np.full_like(values, np.nan)  # before the first round
  past[1:] = np.fmax.accumulate(values, axis=0)[:-1]
  return over_clients(past - values)


def late_numbers(
  accuracy: np.ndarray, per_class: np.ndarray
) -> dict[str, float]:
  """Computes the numbers of Hydra's tables, medians over the last LATE rounds.

  From the mean over clients [R] and A_l^r [R, C] of the evaluated rounds.
  """
  curves = {
    "late_accuracy": np.asarray(accuracy, np.float64),
    "gap": performance_gap(per_class),
    "backward": backward_transfer(per_class),
  }
  with warnings.catch_warnings():  # nanmedian warns where all values are NaN
    warnings.simplefilter("ignore", RuntimeWarning)
    return {k: float(np.nanmedian(x[-_LATE:])) for k, x in curves.items()}


# The end of a run: confusion matrices, and the positions of classes.


def on_end(end: End) -> Finding:
  """Finds the classes' positions in a cycle of the server, and counts answers.

  The arrays, with eval.confusion, map row labels to [R, N, C, C] int32: samples
  by test set, client, class and answer.
  """
  subject = end.subject
  numbers = list[Number]()
  arrays = {}
  for scores in end.scores:
    for name, rank in positions(subject).items():
      numbers.append(Number("position", rank, scores.label, label=name))
    if subject.config.eval.confusion:
      counts = list[np.ndarray]()
      for r, limit in enumerate(scores.chosen.threshold):
        answers, _ = gate.decide(scores.answered, limit)
        counts.append(count_answers(answers, scores.sets, r))
      arrays[scores.label] = np.stack(counts)
  return Finding(numbers, arrays)


def picture(arrays: Arrays, label: str, of: str, maps: Any) -> Any:
  """Draws the matrices of the last test set, over all clients."""
  del label, of  # the rows' labels stand in the arrays
  tables = [shares(table[-1]) for table in arrays.values()]
  return maps.confusion(np.stack(tables), list(arrays))


def positions(subject: Subject) -> dict[str, int]:
  """Maps classes to their clients' position in the server's cycles, if any."""
  if subject.method.topology not in IN_TURN:
    return {}
  ranks = orders.positions(subject.queue, subject.backbone.classes)
  named = zip(subject.task.class_names, ranks or (), strict=False)
  return {name: rank for name, rank in named if rank >= 0}


# Within a round: the network before its last full cycle, and after each group
# of clients in it, which are successive clients of one label (Hydra Figure 11).


def within_round(
  subject: Subject,
  order: np.ndarray,
  number: int,
  answers: Callable[[np.ndarray], np.ndarray],
) -> dict[str, np.ndarray]:
  """Evaluates the network at the S `stops` in round `number`, from 0.

  Clients and heads are aggregated as if the round ended at the stop: `answers`
  maps an order of service [N, R, T] int, an argument of the compiled round, to
  the server's answers to the test samples [N, M] int. Returns "confusion"
  [S, C, C], the `shares` of the last test set, and the stops, "turns" and
  "label" [S].
  """
  sets = subject.task.test_sets
  clients = subject.fleet.num_clients  # before those of padding
  turns, labels = stops(order[:clients, number], subject.queue)
  matrices = list[np.ndarray]()
  for count in turns:
    # The round ends here: later steps are not taken.
    predicted = answers(np.where(order < count, order, NO_TURN))
    matrices.append(shares(count_answers(predicted, sets, -1)))
  return {
    "confusion": np.stack(matrices),
    "turns": np.array(turns),
    "label": np.array(labels),
  }


def stops(order: np.ndarray, queue: Queue) -> tuple[list[int], list[int]]:
  """Finds the stops before the last full cycle and after each group in it.

  In a full cycle every client has a turn, of up to `queue.turn` steps. `order`
  [N, T] int is the position of each client's steps in the service; NO_TURN for
  steps not taken. Returns the number of steps before each stop, and the label
  that was served last, -1 before the cycle.

  Example: clients of labels 4 and 7 take two steps each, in turn, so that
  `order` is [[0, 2], [1, 3]]. The last cycle begins after two steps: the stops
  are [2, 3, 4], their labels [-1, 4, 7].
  """
  client, step = np.nonzero(order != NO_TURN)
  served = queue.group[client[np.argsort(order[client, step])]]

  # Cycles are full until the client with the fewest steps has taken its last.
  full = max(1, -(-int(queue.steps.min()) // queue.turn))
  begin, end = (
    int(np.minimum(queue.steps, cycles * queue.turn).sum())
    for cycles in (full - 1, full)
  )
  turns = [begin]
  labels = [-1]
  for label, group in itertools.groupby(served[begin:end].tolist()):
    turns.append(turns[-1] + len(list(group)))
    labels.append(label)
  return turns, labels


def picture_within(arrays: Arrays, maps: Any) -> Any:
  """Draws the matrices of `within_round`."""
  titles = [
    "before the cycle" if label < 0 else f"after label {label}"
    for label in arrays["label"]
  ]
  return maps.confusion(arrays["confusion"], titles)
