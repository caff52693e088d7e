"""Scores of a method: what its networks' answers to test samples are worth.

`score` judges the answers of a result row. The line of a round (`log_scores`)
and the lines of numbers.csv (`on_end`) are made from the same `Scores`, so a
client's accuracy is computed once.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from splitjax.data import TestSets
from splitjax.evaluation import forgetting, gate, latency, means, metrics
from splitjax.evaluation.exits import Outputs
from splitjax.evaluation.gate import Answered, Gated
from splitjax.evaluation.subject import End, Finding, Line, Subject
from splitjax.types import Number, Row

LEAST_GAIN = 0.001
"""Shares of a smaller gain of the oracle are NaN: they would be noise."""

MOST_LINES = 100_000
"""Above so many lines of a method, classes of single clients have no lines."""

MOST_NAMED = 20
"""The largest number of clients that a note names."""

CURVES = "accuracy", "offload", "latency"
"""What is known of every threshold rule, and of every threshold of the grid."""


class Scores(NamedTuple):
  """The answers of a result row to the clients' test samples, and their worth.

  The test sets have M samples of each client.
  """

  label: str  #: of the row
  outputs: Outputs  #: of its networks, [N, M]
  sets: TestSets
  answered: Answered  #: the outputs for the test sets, and who may answer
  #: rule -> its thresholds [N], or one for all clients, nats; of all rules that
  #: need no test labels
  limits: Mapping[str, np.ndarray | float]
  chosen: Gated  #: results at the thresholds of the config's rule, [R, N]
  #: results of every threshold of the grid, [E, R, N]; None where one exit
  #: answers
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
      "weighted": means.over_samples(accuracy, self.chosen.size),
      **means.spread(accuracy),
    }


def score(subject: Subject, row: Row, outputs: Outputs) -> Scores:
  """Judges the outputs of a row, by the config's rule or else the oracle."""
  options = subject.config.eval
  sets = subject.task.test_sets.first(outputs.test.entropy.shape[1])
  sides = ("server",) if row.at_server else subject.method.answers
  answered = Answered(outputs.test, sets.label, sets.sets, sides)
  limits = limits_of(subject, outputs)
  swept = None
  if len(sides) > 1:
    swept = gate.sweep(answered, subject.task.thresholds)
  if swept is None or options.threshold_rule in limits:
    # With one exit no threshold matters.
    limit = limits.get(options.threshold_rule, np.nan)
    chosen = gate.score(answered, limit)
  else:
    chosen = gate.best(swept)
  return Scores(
    label=subject.labels[subject.method.rows.index(row)],
    outputs=outputs,
    sets=sets,
    answered=answered,
    limits=limits,
    chosen=chosen,
    swept=swept,
    answers=forgetting.count_answers(
      gate.predictions(answered, chosen.threshold[-1]),
      sets.label,
      sets.sets[-1],
      subject.backbone.classes,
    ),
    extra=metrics.measure(options.metrics, answered, chosen.threshold),
  )


def limits_of(
  subject: Subject, outputs: Outputs
) -> dict[str, np.ndarray | float]:
  """Returns the thresholds of all rules that need no test labels, nats.

  "fixed" is a number, if the config has one; "calibrated" is [N] float64, if
  samples are held out. A method with one exit has neither.
  """
  options = subject.config.eval
  limits = dict[str, np.ndarray | float]()
  if len(subject.method.answers) < 2:
    return limits
  if outputs.holdout is not None:
    table = subject.task.held
    assert table is not None and outputs.proxy is not None
    estimated = gate.estimate(
      outputs.holdout,
      table.label,
      table.real,
      outputs.proxy,
      subject.task.thresholds,
      options.expected_rho,
    )
    limits["calibrated"] = gate.best(estimated).threshold[0]
  if options.threshold is not None:
    limits["fixed"] = options.threshold
  return limits


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
  numbers = list[Number]()
  detailed = _detailed(end)
  for row, scores in zip(end.subject.method.rows, end.scores, strict=True):
    numbers += _of_row(end.subject, row, scores)
    numbers += _of_clients(scores, end.subject)
    numbers += _of_classes(scores, end.subject, detailed)
  return Finding(numbers, notes=_notes(end, detailed))


def _detailed(end: End) -> bool:
  """Checks if there are few enough clients and classes for a line of each."""
  pairs = end.subject.task.class_counts + end.scores[0].counted > 0
  return 3 * int(pairs.sum()) * len(end.scores) <= MOST_LINES


def _notes(end: End, detailed: bool) -> list[str]:
  """Says which numbers mean less than they seem to."""
  label = end.subject.labels[0]
  clients = np.array(end.subject.task.client_names)
  notes = list[str]()
  for scores in end.scores:
    lost = _lost(scores)
    if lost.any():
      notes.append(
        f"{scores.label}: the outputs of {_listed(clients[lost.any(axis=1)])}"
        f" are not finite for {lost.sum()} of {scores.counted.sum()} test"
        f" samples ({scores.sets.names[-1]}); the accuracy counts their answers"
        " like all others."
      )
  idle = (end.totals["steps"] == 0) & (end.totals["bytes"] == 0)
  if idle.any():
    notes.append(
      f"{label}: {_listed(clients[idle])} never took part in the training, and"
      " stand in every mean over clients."
    )
  if not detailed:
    notes.append(
      f"{label}: the classes of single clients have no lines in numbers.csv,"
      f" because they would be more than {MOST_LINES:,}."
    )
  return notes


def _lost(scores: Scores) -> np.ndarray:
  """Tells which answers on the last set come from outputs that are not finite.

  Returns [N, M] bool.
  """
  exits = scores.outputs.test
  if exits.finite is None:
    return np.zeros(exits.client.shape, bool)
  limit = scores.chosen.threshold[-1][:, None]
  sides = scores.answered.sides
  away = gate.offloads(np.asarray(exits.entropy), limit, sides)
  finite = np.where(away, exits.finite[..., 1], exits.finite[..., 0])
  return scores.sets.sets[-1] & ~finite


def _listed(clients: np.ndarray) -> str:
  """Counts clients and names the first of them."""
  dots = ", ..." if len(clients) > MOST_NAMED else ""
  names = ", ".join(clients[:MOST_NAMED])
  return f"{len(clients)} client{'s' * (len(clients) > 1)} ({names}{dots})"


def _of_row(subject: Subject, row: Row, scores: Scores) -> Iterator[Number]:
  """Yields a row's numbers over all clients."""
  chosen = scores.chosen
  sides = scores.answered.sides
  sizes = latency.client_sizes(subject, at_server=row.at_server)
  needs = latency.needs(sizes, chosen.size, chosen.offloaded, sides)
  parts = _parts(scores)

  def curves(gated: Gated) -> dict[str, np.ndarray]:
    """Means over clients, [..., R]; the latency in sum and per sample."""
    rates = latency.resources(subject)
    total = latency.round_trip_latency(
      sizes, rates, gated.size, gated.offloaded, sides
    ).sum(axis=-1)
    return {
      "accuracy": means.over_clients(gated.accuracy),
      "offload": means.over_clients(gated.offloaded),
      "latency": means.ratio(total, gated.size.sum(axis=-1)),
      "total_latency": total,
    }

  yield from _by_set(
    scores,
    {
      **curves(chosen),
      "clients": (chosen.size > 0).sum(axis=-1),
      "test_samples": chosen.size.sum(axis=-1),
      **scores.summary,
      **parts,
      "computation": needs.computation.sum(axis=-1),
      "communication": needs.communication.sum(axis=-1),
      **{key: means.over_clients(x) for key, x in scores.extra.items()},
    },
  )
  share = needs.storage / (sizes.prefix + sizes.server)
  yield Number("storage", float(share.mean()), scores.label)
  if scores.swept is None:
    return

  # The rules without test labels, then one threshold for all clients.
  if scores.limits:
    rules = {"oracle": curves(gate.best(scores.swept))}
    for name, limit in scores.limits.items():
      rules[name] = curves(gate.score(scores.answered, limit))
    yield from _rules(scores, rules, parts)
  single = curves(scores.swept)
  yield from _by_set(scores, {"common": single["accuracy"].max(axis=0)})
  for e, limit in enumerate(scores.swept.threshold[:, 0, 0].tolist()):
    values = {metric: single[metric][e] for metric in CURVES}
    yield from _by_set(scores, values, threshold=limit)


def _by_set(
  scores: Scores, measured: Mapping[str, np.ndarray], **columns: Any
) -> Iterator[Number]:
  """Yields the values [R] of each metric, with what other columns have."""
  for metric, values in measured.items():
    for name, value in zip(scores.sets.names, values, strict=True):
      yield Number(metric, float(value), scores.label, set=name, **columns)


def _parts(scores: Scores) -> dict[str, np.ndarray]:
  """Scores ID samples, OOD samples, and each exit by itself: [R] each.

  An exit that cannot answer has no accuracy.
  """
  parts = dict[str, np.ndarray]()
  answered = scores.answered
  inside = scores.sets.known
  for name, part in (("id", inside), ("ood", ~inside)):
    some = answered._replace(samples=answered.samples & part)
    chosen = gate.score(some, scores.chosen.threshold)
    parts[name] = means.over_clients(chosen.accuracy)
    parts[f"offload_{name}"] = means.over_clients(chosen.offloaded)
  for name, side in (("device_only", "client"), ("server_only", "server")):
    if side in answered.sides:
      alone = gate.score(answered._replace(sides=(side,)), np.nan)
      parts[name] = means.over_clients(alone.accuracy)
  return parts


def _rules(
  scores: Scores,
  rules: Mapping[str, Mapping[str, np.ndarray]],
  parts: Mapping[str, np.ndarray],
) -> Iterator[Number]:
  """Compares the rules with the oracle.

  Each rule has accuracy, offload and latency. Each rule except the oracle also
  has below = a_oracle - a_rule, and kept, the share of the oracle's gain

    (a_rule - a_base) / (a_oracle - a_base)

  where a_base is the better of device only and server only. kept is NaN unless
  the oracle gains more than LEAST_GAIN.
  """
  base = np.fmax(parts["device_only"], parts["server_only"])
  top = rules["oracle"]["accuracy"]
  gain = top - base
  for rule, values in rules.items():
    measured = {metric: values[metric] for metric in CURVES}
    if rule != "oracle":
      accuracy = values["accuracy"]
      measured["below"] = top - accuracy
      measured["kept"] = means.ratio(accuracy - base, gain, least=LEAST_GAIN)
    yield from _by_set(scores, measured, part=rule)


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
    values = {metric: x[:, n] for metric, x in measured.items()}
    yield from _by_set(scores, values, client=client)


def _of_classes(
  scores: Scores, subject: Subject, detailed: bool
) -> Iterator[Number]:
  """Yields the accuracy of every class on the last set, over all clients.

  If `detailed`, also the numbers of each client's classes: of those of which it
  has test samples or training samples.
  """
  clients = subject.task.client_names
  classes = subject.task.class_names
  counts = subject.task.class_counts
  columns: dict[str, Any] = {"set": scores.sets.names[-1]}
  shares = scores.per_class.tolist()
  for name, value in zip(classes, shares, strict=True):
    yield Number("accuracy", value, scores.label, label=name, **columns)
  right = np.diagonal(scores.answers, axis1=1, axis2=2)
  measured = {
    "accuracy": means.ratio(right, scores.counted),
    "test_samples": scores.counted,
    "training_samples": counts,
  }
  pairs = np.argwhere(counts + scores.counted > 0) if detailed else ()
  for n, c in pairs:
    columns |= {"client": clients[n], "label": classes[c]}
    for metric, values in measured.items():
      yield Number(metric, float(values[n, c]), scores.label, **columns)
