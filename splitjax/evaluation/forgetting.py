"""Forgetting: by class, over the rounds, and within a round.

Arithmetic on predictions, on the host. All values are fractions. The accuracy
of a class without a test sample is NaN, and means leave it out.

Hydra's paper leaves open which rounds count. Here only evaluated rounds count
(eval.every), both in the search for a peak and among the last rounds.

References:
  Hydra (Tirana et al., AAAI 2026), Section 3.1 (eq. 1, 2), Figure 11 and
    appendix G.4 (accuracy by position).
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from splitjax.evaluation import gate
from splitjax.evaluation.means import over_clients, ratio
from splitjax.evaluation.subject import Arrays, End, Finding, Subject
from splitjax.fleet import orders
from splitjax.fleet.orders import IN_TURN, NO_TURN, QueueSpec
from splitjax.types import Number

LATE = 5
"""Number of last rounds over which Hydra reports the median."""


def confusion(
  predicted: np.ndarray, labels: np.ndarray, samples: np.ndarray, classes: int
) -> np.ndarray:
  """Computes the confusion matrix of the answers (Hydra Figure 11).

  Its diagonal is A_l, the accuracy on all clients' test samples of class l.

  A_l = sum_n #{m of class l: y_nm = l} / sum_n #{m of class l}

  A choice: this is a mean over samples, not over clients. If every client has
  the whole test split, as in Hydra, both are the same.

  Args:
    predicted: [N, M] int in 0..C-1, the answers; or [M] of one client.
    labels: [M] or [N, M] int; undefined for padding.
    samples: shape as `predicted`, bool, the samples of the test set; or int,
      the weight of each sample.
    classes: C.

  Returns:
    [C, C] float64 with a row per class and a column per answer. A row sums to
    1, or is NaN for a class without a sample.
  """
  inside = samples > 0
  truth = np.broadcast_to(labels, predicted.shape)[inside]
  pairs = classes * truth + predicted[inside]
  count = np.bincount(pairs, samples[inside], classes**2)
  count = count.reshape(classes, classes)
  return ratio(count, count.sum(axis=1, keepdims=True))


def performance_gap(per_class: np.ndarray) -> np.ndarray:
  """Computes the mean gap of the classes to the best class (Hydra eq. 2).

  PG(r) = 1/L sum_l (max_k A_k^r - A_l^r)

  A choice: the paper prints max_k { min(0, A_l - A_k) }, which is 0 for k = l
  and so always 0; its text and tables mean the absolute gap to the best label.

  Args:
    per_class: [..., C] float, A_l.

  Returns:
    [...] float64, at least 0.
  """
  values = np.asarray(per_class, np.float64)
  best = np.fmax.reduce(values, axis=-1, keepdims=True)
  return over_clients(best - values)


def backward_transfer(per_class: np.ndarray) -> np.ndarray:
  """Computes the mean gap of classes to their best earlier round (Hydra eq. 1).

  BW(R) = 1/L sum_l max_{r < R} (A_l^r - A_l^R)

  In the paper R is the last round. A choice: here R is each evaluated round in
  turn, so that a median over the last rounds can be taken.

  Args:
    per_class: [R, C] float, A_l^r of the evaluated rounds in order.

  Returns:
    [R] float64; NaN for the first round; below 0 if the classes are on average
    better than ever before.
  """
  values = np.asarray(per_class, np.float64)
  out = np.full(len(values), np.nan)
  if len(values) > 1:
    past = np.fmax.accumulate(values[:-1], axis=0)
    out[1:] = over_clients(past - values[1:])
  return out


def late(values: np.ndarray) -> np.ndarray:
  """Takes the median over the last five evaluated rounds, as Hydra's tables do.

  Args:
    values: [R, ...] float, by round; if R < 5 the median is over all R. NaN
      values are ignored.

  Returns:
    [...] float64; NaN if all values are NaN.
  """
  with warnings.catch_warnings():  # nanmedian warns where all values are NaN
    warnings.simplefilter("ignore", RuntimeWarning)
    return np.nanmedian(np.asarray(values, np.float64)[-LATE:], axis=0)


def late_numbers(
  accuracy: np.ndarray, per_class: np.ndarray
) -> dict[str, float]:
  """Computes the numbers of Hydra's tables, medians over the last rounds.

  Args:
    accuracy: [R], mean over clients, by evaluated round.
    per_class: [R, C], A_l^r, by evaluated round.

  Returns:
    "late_accuracy", "gap" and "backward".
  """
  curves = {
    "late_accuracy": accuracy,
    "gap": performance_gap(per_class),
    "backward": backward_transfer(per_class),
  }
  return {name: float(late(values)) for name, values in curves.items()}


# The end of a run: confusion matrices, and the positions of classes.


def on_end(end: End) -> Finding:
  """Finds each label's position in a cycle of the server, and counts answers.

  The arrays, of confusion.npz if the config asks for it (eval.confusion), map
  row labels to [R, N, C, C] int32: answers by test set, client, class and
  answer, at eval.threshold_rule's thresholds. The sum over N is the matrix of
  all clients.
  """
  subject = end.subject
  places = positions(subject) or ()
  numbers = [
    Number("position", place, scores.label, label=name)
    for scores in end.scores
    for name, place in zip(subject.classes, places, strict=False)
    if place >= 0
  ]
  if not subject.config.eval.confusion:
    return Finding(numbers)
  arrays = {}
  for scores in end.scores:
    sets = scores.sets
    table = np.zeros((*sets.sets.shape[:2], *2 * sets.main.shape[1:]), np.int32)
    for counts, tested, limit in zip(
      table, sets.sets, scores.chosen.threshold, strict=True
    ):
      answers = gate.predictions(scores.exits, limit, scores.sides)
      n, m = np.nonzero(tested)
      label = np.broadcast_to(sets.label, answers.shape)[n, m]
      np.add.at(counts, (n, label, answers[n, m]), 1)
    arrays[scores.label] = table
  return Finding(numbers, arrays)


def picture(arrays: Arrays, label: str, of: str, maps: Any) -> Any:
  """Draws the matrices of the last test set, summed over the clients.

  Each entry is divided by the number of samples of its class.
  """
  del label, of  # the rows' labels stand in the arrays
  tables = [table[-1].sum(axis=0) for table in arrays.values()]
  shares = [ratio(x, x.sum(axis=1, keepdims=True)) for x in tables]
  return maps.confusion(np.stack(shares), list(arrays))


def queue(subject: Subject) -> QueueSpec:
  """Makes the QueueSpec of a method whose clients are one cohort."""
  (plan,) = subject.plans
  steps, _ = plan.of_round(subject.sizes)
  groups = subject.test_sets.groups
  return QueueSpec(
    steps=steps,
    label=subject.counts.argmax(axis=1) if groups is None else groups,
    turn=subject.config.order.batches,
    seed=subject.config.seed,
  )


def positions(subject: Subject) -> list[int] | None:
  """Finds the position of each label's clients in a cycle of the server.

  Returns [C] like `orders.positions`; None if the server has no cycles.
  """
  if subject.method.topology not in IN_TURN:
    return None
  name = subject.config.order.name
  return orders.positions(queue(subject), name, len(subject.classes))


# Within a round: the network after each group of clients.


class Interruption(NamedTuple):
  """A point of a round, after some turns, at which the network is evaluated."""

  turns: int
  #: the label of the clients that were served last; None at the point before
  #: the last full cycle
  label: int | None


def interruptions(turns: np.ndarray, line: QueueSpec) -> list[Interruption]:
  """Returns the points before the last full cycle and after each group in it.

  In a full cycle every client has its turn. A group consists of consecutive
  turns of clients that have the same label. `turns` [N, T] int has the position
  of each client's steps in the order of service; it is negative for a step
  without a turn.
  """
  client = np.repeat(np.arange(len(turns)), turns.shape[1])
  position = turns.ravel()
  by_position = client[np.argsort(position, kind="stable")]
  order = by_position[np.count_nonzero(position < 0) :]

  # The first and last turn of the last full cycle.
  cycle = max(0, (int(line.steps.min()) - 1) // line.turn)
  begin, end = (
    int(np.minimum(line.steps, cycles * line.turn).sum())
    for cycles in (cycle, cycle + 1)
  )

  # A group ends where the next client has another label.
  served = line.label[order[begin:end]]
  ends = np.flatnonzero(np.append(served[1:] != served[:-1], True)) + 1
  return [
    Interruption(begin, None),
    *(Interruption(begin + int(e), int(served[e - 1])) for e in ends),
  ]


def within_round(
  subject: Subject,
  order: np.ndarray,
  number: int,
  answers: Callable[[np.ndarray], np.ndarray],
) -> dict[str, np.ndarray]:
  """Evaluates the network within a round (Hydra Figure 11).

  At each interruption clients and heads are aggregated as if the round ended
  there: the order of service is an argument of the compiled round.

  Args:
    subject: the method.
    order: [N, R, T] int, the order of service of all rounds.
    number: the round, from 0.
    answers: an order of service -> [N, M] int, what the server predicts for the
      test samples after a round that is served in this order.

  Returns:
    "confusion" [S, C, C], the matrix of the last test set at each interruption;
    "turns" [S] and "label" [S], -1 for None, as in `Interruption`.
  """
  sets = subject.test_sets
  line = queue(subject)
  points = interruptions(order[: len(line.label), number], line)
  matrices = [
    confusion(
      answers(np.where(order < point.turns, order, NO_TURN)),
      sets.label,
      sets.sets[-1],
      len(subject.classes),
    )
    for point in points
  ]
  return {
    "confusion": np.stack(matrices),
    "turns": np.array([p.turns for p in points]),
    "label": np.array([-1 if p.label is None else p.label for p in points]),
  }


def picture_within(arrays: Arrays, maps: Any) -> Any:
  """Draws the matrices of `within_round`."""
  titles = [
    "before the cycle" if label < 0 else f"after label {label}"
    for label in arrays["label"]
  ]
  return maps.confusion(arrays["confusion"], titles)
