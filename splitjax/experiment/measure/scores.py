"""Scores of a trained method."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from splitjax.evaluation import (
  calibration,
  client_metrics,
  early_exit,
  forgetting,
  latency,
  metrics,
  summary,
)
from splitjax.evaluation.exits import Outputs
from splitjax.experiment.measure import forgetting_in_round
from splitjax.experiment.setup import data_summary, training_setup
from splitjax.experiment.setup.network import Network
from splitjax.experiment.setup.tasks import Task
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.storage.history import History
from splitjax.experiment.trainers.evaluation_images import tested
from splitjax.methods.method import Method
from splitjax.models import sizes
from splitjax.types import Net, State


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


class End(NamedTuple):
  """The end of a training, or of a later evaluation of the trained networks.

  Attributes:
    setup: the setup of the method.
    whole: the history of all rounds of the training.
    rows: result rows, to which measurements add what they measure.
    outputs: the outputs of each row.
    state: the state after the last round.
    personal: the personalised networks of each cohort's clients [N, ...]; ()
      if no row of results needs any.
    account: the privacy account of an earlier evaluation, if it still holds.
  """

  setup: TrainingSetup
  whole: History
  rows: list[dict[str, Any]]
  outputs: Sequence[Outputs]
  state: State
  personal: tuple[Net, ...] = ()
  account: dict[str, Any] | None = None

  @property
  def task(self) -> Task:
    """The task of the run."""
    return self.setup.task


def thresholds(setup: TrainingSetup, outputs: Outputs) -> dict[str, Any]:
  """Returns the thresholds of all rules that need no test labels, nats.

  Returns:
    "fixed": a number, if the config has one; "calibrated": [N] float64, if
    samples are held out. A method with one exit has neither.
  """
  task = setup.task
  chosen, given = task.config.eval, dict[str, Any]()
  if len(setup.method.answers) < 2:
    return given
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
    given["calibrated"] = early_exit.best(estimated).threshold[0]
  if chosen.threshold is not None:
    given["fixed"] = chosen.threshold
  return given


def score(setup: TrainingSetup, outputs: Outputs) -> dict[str, Any]:
  """Scores a result row at the config's thresholds on the tested samples.

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
  task = setup.task
  test_sets = tested(task, outputs.test.entropy.shape[1])
  answers = setup.method.answers
  given = thresholds(setup, outputs)
  rule = task.config.eval.threshold_rule
  answered = (outputs.test, test_sets.label, test_sets.sets)
  if rule in given:
    choice = early_exit.score(*answered, given[rule], answers)
  else:  # the oracle's; with one exit thresholds change nothing
    swept = early_exit.sweep(*answered, task.thresholds, answers)
    choice = early_exit.best(swept)
  accuracy = metrics.over_clients(choice.accuracy)
  threshold = choice.threshold[-1]
  predicted = early_exit.predictions(outputs.test, threshold, answers)
  classes = test_sets.main.shape[1]
  each = forgetting.class_accuracy(
    predicted, test_sets.label, test_sets.sets[-1], classes
  )
  weighted = metrics.over_samples(choice.accuracy, choice.size)
  own = client_metrics.measure(
    task.config.eval.metrics, *answered, choice.threshold, answers
  )

  def by_set(values):
    return dict(zip(test_sets.names, values.tolist(), strict=True))

  apart = metrics.spread(choice.accuracy)
  found = {
    "accuracy": by_set(accuracy),
    "weighted": by_set(weighted),
    "per_class": each.tolist(),
    "by_client": by_set(np.round(choice.accuracy, 4)),
    **{name: by_set(values) for name, values in apart.items()},
  }
  means = {key: by_set(metrics.over_clients(x)) for key, x in own.items()}
  return found | ({"metrics": means} if means else {})


def score_rows(
  setup: TrainingSetup, outputs: Sequence[Outputs]
) -> list[dict[str, Any]]:
  """Returns the result rows of a method, with the summary of each."""
  task = setup.task
  method, rows = setup.method, (setup.method.rows, setup.labels)
  system = task.config.system
  power = latency.Resources(
    np.asarray(task.network.fleet.power), system.server_power, system.bandwidth
  )
  held = training_setup.server_bytes(setup)
  # Classes can be compared between clients only on a shared test set.
  alike = task.config.eval.shift.name == "global"
  counts = data_summary.class_counts(task) if alike else None
  return [
    {
      "label": name,
      "server_bytes": held,
      "positions": forgetting_in_round.positions(setup),
      "method": task.config.methods[setup.key].name,
      "summary": summary.summarise(
        each.test,
        task.test_sets.label,
        task.test_sets.sets,
        task.test_sets.known,
        task.thresholds,
        ("server",) if row.at_server else method.answers,
        client_sizes(method, task.network, at_server=row.at_server),
        power,
        rule=task.config.eval.threshold_rule,
        own=task.config.eval.metrics,
        given=thresholds(setup, each),
        counts=counts,
      ),
    }
    for row, name, each in zip(*rows, outputs, strict=True)
  ]
