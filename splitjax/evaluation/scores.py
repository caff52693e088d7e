"""Scores of a method: what its networks' answers to test samples are worth.

`score` takes what `exits` computed, lets `gate` decide who answers by each rule
for thresholds, and judges the answers. The line of a round (`log_scores`) and
the lines of numbers.csv (`on_end`) are made from the same `Scores`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from splitjax.data import TestSets
from splitjax.evaluation import forgetting, gate, latency, means, metrics
from splitjax.evaluation.exits import Outputs
from splitjax.evaluation.gate import Answered, Gated
from splitjax.evaluation.subject import End, Finding, Line, Subject
from splitjax.fields import listed
from splitjax.types import Number, Row

MOST_LINES = 100_000
"""Above so many lines of a method, classes of single clients have no lines."""


class Scores(NamedTuple):
  """The answers of a result row to M test samples of each client, judged."""

  label: str  #: of the row
  outputs: Outputs  #: of its networks, [N, M]
  sets: TestSets
  answered: Answered  #: the outputs for the test sets, and who may answer
  #: results by rule for thresholds, [R, N]: "oracle", "calibrated" if samples
  #: are held out, "fixed" if the config has a threshold
  rules: Mapping[str, Gated]
  chosen: Gated  #: those of the config's rule, or else of the oracle
  #: results of the grid's thresholds, [E, R, N]; None where one exit answers
  swept: Gated | None
  #: [N, C, C], the last set's samples by client, class and answer
  answers: np.ndarray
  extra: dict[str, np.ndarray]  #: key of eval.metrics -> values [R, N]

  @property
  def per_class(self) -> np.ndarray:
    """[C], accuracy over all clients' samples of a class, on the last set."""
    return np.diagonal(forgetting.shares(self.answers))

  @property
  def counted(self) -> np.ndarray:
    """[N, C], test samples of each client and class, on the last set."""
    return self.answers.sum(axis=2)

  @property
  def summary(self) -> dict[str, np.ndarray]:
    """Means and spreads over clients, metric -> [R]."""
    accuracy = self.chosen.accuracy
    return {
      "accuracy": means.over_clients(accuracy),
      "weighted": means.over_clients(accuracy, self.chosen.size),
      **means.spread(accuracy),
    }


def score(subject: Subject, row: Row, outputs: Outputs) -> Scores:
  """Judges the outputs of a row, by the config's rule or else the oracle."""
  options = subject.config.eval
  task = subject.task
  sets = task.test_sets.first(outputs.test.entropy.shape[1])
  sides = ("server",) if row.at_server else subject.method.answers
  answered = Answered(outputs.test, sets.label, sets.sets, sides)

  # Thresholds by all rules; with one exit none matters.
  swept = None
  rules = {"oracle": gate.score(answered, np.nan)}
  if len(sides) > 1:
    swept = gate.sweep(answered, task.thresholds)
    rules = {"oracle": gate.best(swept)}
    if task.holdout is not None:
      estimated = gate.estimate(
        outputs, task.holdout, task.thresholds, options.expected_rho
      )
      limit = gate.best(estimated).threshold[0]
      rules["calibrated"] = gate.score(answered, limit)
    if options.threshold is not None:
      rules["fixed"] = gate.score(answered, options.threshold)
  chosen = rules.get(options.threshold_rule, rules["oracle"])
  answers, _ = gate.decide(answered, chosen.threshold[-1])

  return Scores(
    label=subject.labels[subject.method.rows.index(row)],
    outputs=outputs,
    sets=sets,
    answered=answered,
    rules=rules,
    chosen=chosen,
    swept=swept,
    answers=forgetting.count_answers(answers, sets, -1),
    extra=metrics.measure(options.metrics, answered, chosen.threshold),
  )


def log_scores(scores: Scores) -> Line:
  """Returns what a row's evaluation adds to the line of a round, by test set.

  The `Scores.summary`, each client's accuracy [N] ("by_client", four digits)
  and the means of eval.metrics ("metrics"). "per_class" [C] is of the LAST set,
  which has the largest rho in mixtures and "w/ drift" out of the client.
  """

  def by_set(values):
    return dict(zip(scores.sets.names, values.tolist(), strict=True))

  line: Line = {metric: by_set(x) for metric, x in scores.summary.items()}
  line["per_class"] = scores.per_class.tolist()
  line["by_client"] = by_set(np.round(scores.chosen.accuracy, 4))
  if scores.extra:
    line["metrics"] = {
      key: by_set(means.over_clients(x)) for key, x in scores.extra.items()
    }
  return line


# The numbers of the last state, on all test samples.


def on_end(end: End) -> Finding:
  """Finds the numbers of rows, clients and classes, and what to say of them."""
  subject = end.subject
  pairs = np.argwhere(subject.task.class_counts + end.scores[0].counted > 0)
  detailed = 3 * len(pairs) * len(end.scores) <= MOST_LINES
  numbers = list[Number]()
  for row, scores in zip(subject.method.rows, end.scores, strict=True):
    numbers += _of_row(subject, row, scores)
    numbers += _of_clients(scores, subject)
    numbers += _of_classes(scores, subject, pairs if detailed else pairs[:0])
  return Finding(numbers, notes=_notes(end, detailed))


def _notes(end: End, detailed: bool) -> list[str]:
  """Says which numbers mean less than they seem to."""
  label = end.subject.labels[0]
  names = end.subject.task.client_names
  notes = list[str]()

  def named(clients: Any) -> str:  # [N] bool
    return listed([names[n] for n in np.flatnonzero(clients)])

  for scores in end.scores:
    finite = scores.answered.exits.finite
    assert finite is not None  # of every evaluation
    _, away = gate.decide(scores.answered, scores.chosen.threshold[-1])
    lost = ~np.where(away, finite[..., 1], finite[..., 0])
    lost &= scores.sets.sets[-1]
    if lost.any():
      notes.append(
        f"{scores.label}: outputs of clients {named(lost.any(axis=1))} are not"
        f" finite for {lost.sum()} of {scores.counted.sum()} test samples"
        f" ({scores.sets.names[-1]}); the accuracy counts their answers like"
        " all others."
      )
  idle = (end.totals["steps"] == 0) & (end.totals["bytes"] == 0)
  if idle.any():
    notes.append(
      f"{label}: clients {named(idle)} never took part in the training, and"
      " stand in every mean over clients."
    )
  if not detailed:
    notes.append(
      f"{label}: the classes of single clients have no lines in numbers.csv,"
      f" because they would be more than {MOST_LINES:,}."
    )
  return notes


def _by_set(
  scores: Scores, measured: Mapping[str, np.ndarray], **columns: Any
) -> Iterator[Number]:
  """Yields the values [R] of each metric, with what other columns have."""
  for metric, values in measured.items():
    for name, value in zip(scores.sets.names, values, strict=True):
      yield Number(metric, float(value), scores.label, set=name, **columns)


def _of_row(subject: Subject, row: Row, scores: Scores) -> Iterator[Number]:
  """Yields a row's numbers over all clients."""
  chosen = scores.chosen
  sides = scores.answered.sides
  sizes = latency.client_sizes(subject, at_server=row.at_server)
  rates = latency.resources_of(subject)

  def curves(gated: Gated) -> dict[str, np.ndarray]:
    """Means over clients, and the latency of a sample; [..., R]."""
    needs = latency.count_needs(sizes, gated.size, gated.offloaded, sides)
    total = needs.latency(rates).sum(axis=-1)
    return {
      "accuracy": means.over_clients(gated.accuracy),
      "offload": means.over_clients(gated.offloaded),
      "latency": means.ratio(total, gated.size.sum(axis=-1)),
    }

  needs = latency.count_needs(sizes, chosen.size, chosen.offloaded, sides)
  yield from _by_set(
    scores,
    {
      **curves(chosen),
      "total_latency": needs.latency(rates).sum(axis=-1),
      "clients": (chosen.size > 0).sum(axis=-1),
      "test_samples": chosen.size.sum(axis=-1),
      **scores.summary,
      **_parts(scores),
      "computation": needs.computation.sum(axis=-1),
      "communication": needs.communication.sum(axis=-1),
      **{key: means.over_clients(x) for key, x in scores.extra.items()},
    },
  )
  share = needs.storage / (sizes.prefix + sizes.server)
  yield Number("storage", float(share.mean()), scores.label)
  if scores.swept is None:
    return

  # The rules without test labels beside the oracle.
  oracle = curves(scores.rules["oracle"])
  for rule, gated in scores.rules.items() if len(scores.rules) > 1 else ():
    measured = curves(gated)
    if rule != "oracle":
      measured["below"] = oracle["accuracy"] - measured["accuracy"]
    yield from _by_set(scores, measured, part=rule)

  # One threshold for all clients: the best of the grid, and each.
  common = curves(scores.swept)
  yield from _by_set(scores, {"common": common["accuracy"].max(axis=0)})
  for e, limit in enumerate(scores.swept.threshold[:, 0, 0].tolist()):
    measured = {metric: values[e] for metric, values in common.items()}
    yield from _by_set(scores, measured, threshold=limit)


def _parts(scores: Scores) -> dict[str, np.ndarray]:
  """Scores ID samples, OOD samples, and each exit by itself: [R] each.

  An exit that cannot answer has no accuracy.
  """
  parts = dict[str, np.ndarray]()
  answered = scores.answered
  inside = scores.sets.known
  for name, part in (("id", inside), ("ood", ~inside)):
    samples = answered._replace(samples=answered.samples & part)
    gated = gate.score(samples, scores.chosen.threshold)
    parts[name] = means.over_clients(gated.accuracy)
    parts[f"offload_{name}"] = means.over_clients(gated.offloaded)
  for name, side in (("device_only", "client"), ("server_only", "server")):
    if side in answered.sides:
      alone = gate.score(answered._replace(sides=(side,)), np.nan)
      parts[name] = means.over_clients(alone.accuracy)
  return parts


def _of_clients(scores: Scores, subject: Subject) -> Iterator[Number]:
  """Yields the numbers of every client, by test set."""
  chosen = scores.chosen
  measured = {
    "accuracy": chosen.accuracy,
    "offload": chosen.offloaded,
    "test_samples": chosen.size,
    **scores.extra,
  }
  if scores.swept is not None:
    measured["threshold"] = chosen.threshold
  for n, client in enumerate(subject.task.client_names):
    of_client = {metric: x[:, n] for metric, x in measured.items()}
    yield from _by_set(scores, of_client, client=client)


def _of_classes(
  scores: Scores, subject: Subject, pairs: np.ndarray
) -> Iterator[Number]:
  """Yields the accuracy of every class on the last set, over all clients.

  Also numbers of single clients' classes: of the `pairs` [P, 2] of both.
  """
  clients = subject.task.client_names
  classes = subject.task.class_names
  columns: dict[str, Any] = {"row": scores.label, "set": scores.sets.names[-1]}
  for name, share in zip(classes, scores.per_class, strict=True):
    yield Number("accuracy", float(share), label=name, **columns)
  right = np.diagonal(scores.answers, axis1=1, axis2=2)
  measured = {
    "accuracy": means.ratio(right, scores.counted),
    "test_samples": scores.counted,
    "training_samples": subject.task.class_counts,
  }
  for n, c in pairs:
    columns |= {"client": clients[n], "label": classes[c]}
    for metric, values in measured.items():
      yield Number(metric, float(values[n, c]), **columns)
