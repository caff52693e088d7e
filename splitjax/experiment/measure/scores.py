"""Scores of a method: what its networks' answers to test samples are worth.

`score` judges the answers of a result row. The lines of a log (`log_scores`)
and those of numbers.csv (`numbers_at_end`) are made from the same `Scores`, so
a client's accuracy is computed once.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from splitjax.data import TestSets
from splitjax.evaluation import (
  calibration,
  client_metrics,
  early_exit,
  latency,
  metrics,
)
from splitjax.evaluation.early_exit import Gated
from splitjax.evaluation.exits import Exits, Outputs
from splitjax.experiment.measure import forgetting_in_round
from splitjax.experiment.setup import data_summary, training_setup
from splitjax.experiment.setup.network import Network
from splitjax.experiment.setup.tasks import Task
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.storage.history import History
from splitjax.experiment.trainers.evaluation_images import tested
from splitjax.methods.method import Method
from splitjax.models import sizes
from splitjax.options import Spec
from splitjax.types import Net, Number, Row, State

LEAST_GAIN = 0.001
"""If the oracle gains less, shares of its gain are NaN: they would be noise."""

MOST_LINES = 100_000
"""Above so many lines of a method, classes of single clients have no lines."""

Limits = Mapping[str, np.ndarray | float]
"""Rule -> its thresholds [N], or one for all clients, nats."""


class Scores(NamedTuple):
  """The answers of a result row to the clients' test samples, and their worth.

  Attributes:
    label: label of the row.
    outputs: the outputs of its networks, arrays [N, M].
    sets: the test sets, of M samples of each client.
    sides: which exits can answer, as in `Method.answers`.
    limits: the thresholds of all rules that need no test labels.
    chosen: results at the thresholds of the config's rule, [R, N].
    swept: results of every threshold of the grid, [E, R, N]; None where one
      exit answers.
    right: [N, C], right answers by client and class, on the last set.
    counted: [N, C], test samples, likewise.
    own: key of eval.metrics -> values [R, N].
  """

  label: str
  outputs: Outputs
  sets: TestSets
  sides: tuple[str, ...]
  limits: Limits
  chosen: Gated
  swept: Gated | None
  right: np.ndarray
  counted: np.ndarray
  own: dict[str, np.ndarray]

  @property
  def exits(self) -> Exits:
    """The outputs for test samples."""
    return self.outputs.test

  @property
  def per_class(self) -> np.ndarray:
    """[C], accuracy over all clients' samples of a class, on the last set."""
    return metrics.ratio(self.right.sum(axis=0), self.counted.sum(axis=0))

  def at(
    self, threshold: np.ndarray | float, sides: tuple[str, ...] = ()
  ) -> Gated:
    """Returns the results at other thresholds, or of a single exit, [R, N]."""
    answered = self.exits, self.sets.label, self.sets.sets
    return early_exit.score(*answered, threshold, sides or self.sides)


def score(
  label: str,
  outputs: Outputs,
  sets: TestSets,
  sides: tuple[str, ...],
  *,
  thresholds: Sequence[float],
  rule: str = "oracle",
  limits: Limits | None = None,
  own: Mapping[str, Spec] | None = None,
) -> Scores:
  """Judges the answers of a result row.

  Args:
    label: label of the row.
    outputs: arrays [N, M].
    sets: the test sets.
    sides: which exits can answer, as in `Method.answers`.
    thresholds: [E] the grid of the oracle, nats.
    rule: eval.threshold_rule. Without `limits` of its name it is the oracle.
    limits: the thresholds of the other rules.
    own: the config's metrics, which `client_metrics.measure` computes.
  """
  limits, swept = limits or {}, None
  answered = outputs.test, sets.label, sets.sets
  if len(sides) > 1:
    swept = early_exit.sweep(*answered, thresholds, sides)
  if swept is None or rule in limits:  # with one exit no threshold matters
    chosen = early_exit.score(*answered, limits.get(rule, np.nan), sides)
  else:
    chosen = early_exit.best(swept)
  right, counted = _by_class(
    early_exit.predictions(outputs.test, chosen.threshold[-1], sides), sets
  )
  return Scores(
    label=label,
    outputs=outputs,
    sets=sets,
    sides=sides,
    limits=limits,
    chosen=chosen,
    swept=swept,
    right=right,
    counted=counted,
    own=client_metrics.measure(own or {}, *answered, chosen.threshold, sides),
  )


def _by_class(
  predicted: np.ndarray, sets: TestSets
) -> tuple[np.ndarray, np.ndarray]:
  """Counts right answers and samples of the last set by client and class."""
  clients, classes = sets.main.shape
  label = np.broadcast_to(sets.label, predicted.shape)
  place = np.arange(clients)[:, None] * classes + label
  inside = sets.sets[-1]
  right = np.bincount(
    place[inside & (predicted == label)], minlength=clients * classes
  )
  counted = np.bincount(place[inside], minlength=clients * classes)
  return right.reshape(clients, classes), counted.reshape(clients, classes)


def of_outputs(setup: TrainingSetup, row: Row, outputs: Outputs) -> Scores:
  """Judges the outputs of one of a method's rows, by the config's rule."""
  task = setup.task
  return score(
    setup.labels[setup.method.rows.index(row)],
    outputs,
    tested(task, outputs.test.entropy.shape[1]),
    ("server",) if row.at_server else setup.method.answers,
    thresholds=task.thresholds,
    rule=task.config.eval.threshold_rule,
    limits=limits_of(setup, outputs),
    own=task.config.eval.metrics,
  )


def limits_of(setup: TrainingSetup, outputs: Outputs) -> dict[str, Any]:
  """Returns the thresholds of all rules that need no test labels, nats.

  Returns:
    "fixed": a number, if the config has one; "calibrated": [N] float64, if
    samples are held out. A method with one exit has neither.
  """
  task = setup.task
  chosen, limits = task.config.eval, dict[str, Any]()
  if len(setup.method.answers) < 2:
    return limits
  if outputs.own is not None:
    held, proxy = task.held, outputs.proxy
    assert held is not None and proxy is not None
    estimated = calibration.estimate(
      outputs.own,
      held.label,
      held.real,
      proxy,
      task.thresholds,
      chosen.expected_rho,
    )
    limits["calibrated"] = early_exit.best(estimated).threshold[0]
  if chosen.threshold is not None:
    limits["fixed"] = chosen.threshold
  return limits


def log_scores(scores: Scores) -> dict[str, Any]:
  """Returns what a row's evaluation adds to the line of a round.

  Returns:
    "accuracy" and "weighted" map test sets to the mean over clients, plain or
    weighted by their test samples. "per_class" [C] is the accuracy of every
    class over all clients' samples of the LAST set; NaN for a class without a
    sample. In the papers' mixtures the LAST set is the one with the largest
    rho; with the shift out_of_client it is the set "w/ drift". "by_client"
    maps test sets to each client's accuracy [N], rounded to four digits, NaN
    without samples. "std" and "worst_tenth" map test sets to the spread of
    these accuracies, see `metrics.spread`. "metrics" maps the keys of
    eval.metrics, if there are any, to test set -> mean over clients.
  """

  def by_set(values):
    return dict(zip(scores.sets.names, values.tolist(), strict=True))

  chosen = scores.chosen
  spread = metrics.spread(chosen.accuracy)
  line = {
    "accuracy": by_set(metrics.over_clients(chosen.accuracy)),
    "weighted": by_set(metrics.over_samples(chosen.accuracy, chosen.size)),
    "per_class": scores.per_class.tolist(),
    "by_client": by_set(np.round(chosen.accuracy, 4)),
    **{name: by_set(values) for name, values in spread.items()},
  }
  means = {k: by_set(metrics.over_clients(x)) for k, x in scores.own.items()}
  return line | ({"metrics": means} if means else {})


class End(NamedTuple):
  """The end of a training, or of a later evaluation of the trained networks.

  Attributes:
    setup: the setup of the method.
    whole: the history of all rounds of the training.
    scores: the scores of each row.
    state: the state after the last round.
    personal: the personalised networks of each cohort's clients [N, ...]; ()
      if no row of results needs any.
  """

  setup: TrainingSetup
  whole: History
  scores: Sequence[Scores]
  state: State
  personal: tuple[Net, ...] = ()

  @property
  def task(self) -> Task:
    """The task of the run."""
    return self.setup.task


def numbers_at_end(end: End) -> Iterator[Number]:
  """Yields what the last state is worth, on all test samples."""
  setup, task = end.setup, end.task
  system = task.config.system
  resources = latency.Resources(
    np.asarray(task.network.fleet.power), system.server_power, system.bandwidth
  )
  clients = data_summary.client_names(task)
  classes = data_summary.class_names(task)
  training = data_summary.class_counts(task)
  memory = training_setup.server_bytes(setup)
  places = forgetting_in_round.positions(setup) or ()
  detailed = with_classes(end)
  for row, scores in zip(setup.method.rows, end.scores, strict=True):
    sizes = client_sizes(setup.method, task.network, at_server=row.at_server)
    yield from numbers_of_row(scores, sizes, resources)
    yield from _of_clients(scores, clients)
    yield from _of_classes(scores, classes)
    if detailed:
      yield from _of_clients_and_classes(scores, clients, classes, training)
    yield Number("server_bytes", memory, scores.label)
    for name, position in zip(classes, places, strict=False):
      if position >= 0:
        yield Number("position", position, scores.label, label=name)


def with_classes(end: End) -> bool:
  """Checks if there are few enough clients and classes for a line of each."""
  pairs = data_summary.class_counts(end.task) + end.scores[0].counted > 0
  return 3 * int(pairs.sum()) * len(end.scores) <= MOST_LINES


def numbers_of_row(
  scores: Scores, sizes: latency.Sizes, resources: latency.Resources
) -> Iterator[Number]:
  """Yields a row's numbers over all clients.

  Args:
    scores: the row's scores.
    sizes: parameters, [N] each.
    resources: P_C, P_S and BW.
  """
  chosen, system = scores.chosen, (sizes, resources, scores.sides)
  parts = _parts(scores)
  needs = latency.needs(sizes, chosen.size, chosen.offloaded, scores.sides)
  yield from _by_set(
    scores,
    {
      **_means(chosen, *system),
      "clients": (chosen.size > 0).sum(axis=-1),
      "test_samples": chosen.size.sum(axis=-1),
      "weighted": metrics.over_samples(chosen.accuracy, chosen.size),
      **metrics.spread(chosen.accuracy),
      **parts,
      "computation": needs.computation.sum(axis=-1),
      "communication": needs.communication.sum(axis=-1),
      **{key: metrics.over_clients(x) for key, x in scores.own.items()},
    },
  )
  share = needs.storage / (sizes.prefix + sizes.server)
  yield Number("storage", float(share.mean()), scores.label)
  swept = scores.swept
  if swept is None:
    return

  # The rules without test labels, then one threshold for all clients.
  if scores.limits:
    choices = {"oracle": early_exit.best(swept)}
    choices |= {name: scores.at(limit) for name, limit in scores.limits.items()}
    means = {name: _means(gated, *system) for name, gated in choices.items()}
    yield from _rules(scores, means, parts)
  single = _means(swept, *system)
  yield from _by_set(scores, {"common": single["accuracy"].max(axis=0)})
  for e, limit in enumerate(swept.threshold[:, 0, 0].tolist()):
    values = {k: single[k][e] for k in ("accuracy", "offload", "latency")}
    yield from _by_set(scores, values, threshold=limit)


def _by_set(
  scores: Scores, measured: Mapping[str, np.ndarray], **columns: Any
) -> Iterator[Number]:
  """Yields the values [R] of each metric, with what other columns have."""
  for metric, values in measured.items():
    for name, value in zip(scores.sets.names, values, strict=True):
      yield Number(metric, float(value), scores.label, set=name, **columns)


def _means(
  gated: Gated,
  sizes: latency.Sizes,
  resources: latency.Resources,
  sides: tuple[str, ...],
) -> dict[str, np.ndarray]:
  """Averages over clients, [..., R] each; the latency in sum and per sample."""
  total = latency.round_trip_latency(
    sizes, resources, gated.size, gated.offloaded, sides
  ).sum(axis=-1)
  return {
    "accuracy": metrics.over_clients(gated.accuracy),
    "offload": metrics.over_clients(gated.offloaded),
    "latency": metrics.ratio(total, gated.size.sum(axis=-1)),
    "total_latency": total,
  }


def _parts(scores: Scores) -> dict[str, np.ndarray]:
  """Scores ID samples, OOD samples, and each exit by itself: [R] each.

  An exit that cannot answer has no accuracy.
  """
  sets, found = scores.sets, dict[str, np.ndarray]()
  for name, part in (("id", sets.known), ("ood", ~sets.known)):
    chosen = early_exit.score(
      scores.exits,
      sets.label,
      sets.sets & part,
      scores.chosen.threshold,
      scores.sides,
    )
    found[name] = metrics.over_clients(chosen.accuracy)
    found[f"offload_{name}"] = metrics.over_clients(chosen.offloaded)
  for name, side in (("device_only", "client"), ("server_only", "server")):
    if side in scores.sides:
      alone = scores.at(np.nan, (side,))
      found[name] = metrics.over_clients(alone.accuracy)
  return found


def _rules(
  scores: Scores,
  means: Mapping[str, Mapping[str, np.ndarray]],
  parts: Mapping[str, np.ndarray],
) -> Iterator[Number]:
  """Compares the rules with the oracle.

  Each rule has accuracy, offload and latency. Each rule except the oracle also
  has below = a_oracle - a_rule, and kept, the share of the oracle's gain

    (a_rule - a_base) / (a_oracle - a_base)

  where a_base is the better of device only and server only. kept is NaN if the
  oracle gains less than LEAST_GAIN.
  """
  base = np.fmax(parts["device_only"], parts["server_only"])
  top = means["oracle"]["accuracy"]
  gain = top - base
  for rule, values in means.items():
    measured = {k: values[k] for k in ("accuracy", "offload", "latency")}
    if rule != "oracle":
      measured["below"] = top - values["accuracy"]
      measured["kept"] = metrics.ratio(
        values["accuracy"] - base, gain, where=gain >= LEAST_GAIN
      )
    yield from _by_set(scores, measured, part=rule)


def _of_clients(scores: Scores, clients: Sequence[str]) -> Iterator[Number]:
  """Yields the numbers of every client, by test set."""
  chosen = scores.chosen
  measured = {
    "accuracy": chosen.accuracy,
    "offload": chosen.offloaded,
    "test_samples": chosen.size,
    **({"threshold": chosen.threshold} if scores.swept is not None else {}),
    **scores.own,
  }
  for n, client in enumerate(clients):
    values = {metric: x[:, n] for metric, x in measured.items()}
    yield from _by_set(scores, values, client=client)


def _of_classes(scores: Scores, classes: Sequence[str]) -> Iterator[Number]:
  """Yields the accuracy of every class over all clients, on the last set."""
  last = scores.sets.names[-1]
  for name, value in zip(classes, scores.per_class.tolist(), strict=True):
    yield Number("accuracy", value, scores.label, set=last, label=name)


def _of_clients_and_classes(
  scores: Scores,
  clients: Sequence[str],
  classes: Sequence[str],
  training: np.ndarray,
) -> Iterator[Number]:
  """Yields the numbers of the classes of which a client has samples.

  They are those of the last set; `training` [N, C] counts training samples.
  """
  measured = {
    "accuracy": metrics.ratio(scores.right, scores.counted),
    "test_samples": scores.counted,
    "training_samples": training,
  }
  last = scores.sets.names[-1]
  for n, c in np.argwhere(training + scores.counted > 0).tolist():
    for metric, values in measured.items():
      yield Number(
        metric,
        float(values[n, c]),
        scores.label,
        set=last,
        client=clients[n],
        label=classes[c],
      )


def client_sizes(
  method: Method, network: Network, *, at_server: bool = False
) -> latency.Sizes:
  """Returns each client's |phi|, |h| and |theta|, and the channels at its cut.

  |theta| is the size of the part behind the client's cut. If clients train the
  whole network, |phi| is the size of the network and the rest is 0. But if the
  server evaluates that network (`at_server`), |theta| is the size of the
  network and |phi| is 0. Clients then send inputs, and the count of numbers in
  an input replaces the channels (SplitGP eq. 29).
  """
  out = np.zeros((4, network.fleet.num_clients), np.int64)
  net = network.backbone
  for cohort in network.fleet.cohorts:
    if method.whole:
      size = sizes.parameters(net)
      whole = sum(size[name] for name in (*net.names(), "head"))
      numbers = [whole, 0, 0, 0]
      if at_server:
        numbers = [0, 0, whole, math.prod(net.shape)]
    else:
      part = sizes.parts_at(net, cohort.depth)
      numbers = [part["phi"], part["h"], part["theta"], part["cut"][-1]]
    out[:, list(cohort.ids)] = np.array(numbers)[:, None]
  return latency.Sizes(*out)
