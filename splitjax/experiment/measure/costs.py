"""The modelled cost of a method's rounds, from its plan and its log."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from splitjax.evaluation import cost, metrics
from splitjax.experiment.measure.scores import End
from splitjax.experiment.setup import data_summary
from splitjax.experiment.setup.tasks import Task
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.storage import history
from splitjax.fleet.resources import Devices
from splitjax.models import sizes
from splitjax.types import Metrics, Number

OF_CLIENTS = {
  "modelled_seconds": "seconds",
  "joules": "joules",
  "bytes": "bytes",
}
"""Metric of a client -> its name in `History.clients`."""

TARGETS = "target_rounds", "target_bytes", "target_seconds", "target_joules"


def numbers_of_training(end: End) -> Iterator[Number]:
  """Yields the traffic and the modelled cost of all rounds, for every row."""
  lines, clients = end.whole.lines, data_summary.client_names(end.task)
  sent = {name: size / len(lines) for name, size in wire(lines).items()}
  for scores in end.scores:
    label = scores.label
    for name, size in sent.items():
      yield Number("bytes", size, label, part=name)
    yield Number("bytes_per_round", sum(sent.values()), label)
    if not _priced(lines):
      continue
    accuracy = float(metrics.over_clients(scores.chosen.accuracy)[0])
    for metric, value in of_run(end.task, lines, accuracy).items():
      yield Number(metric, value, label)
    for metric, value in until_target(end.task, lines, label).items():
      yield Number(metric, value, label)
    for metric, name in OF_CLIENTS.items():
      values = end.whole.clients[name].tolist()
      for client, value in zip(clients, values, strict=True):
        yield Number(metric, value, label, client=client)


def whole_round(setup: TrainingSetup) -> cost.RoundWork:
  """Returns each client's work in a round in which it takes all its steps.

  A client is cut at its depth by Method.cuts, or else at its cohort's depth.
  The server has no work where clients hold whole networks without cuts.
  """
  method, net = setup.method, setup.backbone
  served, cuts = method.needs_server, method.cuts(setup.fleet)
  table = np.zeros((6, setup.fleet.num_clients))
  for cohort, plan in zip(setup.fleet.cohorts, setup.plans, strict=True):
    ids = list(cohort.ids)
    size = setup.sizes[ids]
    near, far = sizes.flops_of_cut(net, cohort.depth)
    if cuts is not None:
      each = [sizes.flops_of_cut(net, int(k)) for k in cuts[ids]]
      near, far = np.array(each).T
    for stage in method.stages():
      passes, local = stage.passes, not stage.once
      steps, samples = plan.of_round(size, stage.epochs)
      if stage.once:
        steps, samples = 0 * steps, size
      at_client = samples * passes.client * near
      table[:, ids] += (
        local * at_client,
        samples * passes.server * far * served,
        steps,
        steps * passes.trips * served,
        local * samples * passes.alone * near,
        stage.once * at_client,
      )
  return cost.RoundWork(*table)


def round_flops(setup: TrainingSetup) -> float:
  """Counts the FLOPs of a round with all clients."""
  work = whole_round(setup)
  return float((work.client + work.once + work.server).sum())


def of_metrics(
  setup: TrainingSetup, plan: cost.RoundWork, metrics: Metrics
) -> cost.Cost:
  """Returns the cost of a trained round.

  `plan` is the work of each client in a round in which it takes all its steps.
  """
  task = setup.task
  profiles, rates = _devices(task)
  return cost.of_round(
    plan,
    profiles,
    rates,
    np.asarray(metrics.bytes, np.float64),
    np.asarray(metrics.steps, np.float64),
    np.asarray(metrics.alone, np.float64),
    relay=setup.method.topology == "relay",
  )


def _devices(task: Task) -> Devices:
  """Returns the clients' devices, which `network.make_network` always sets."""
  assert task.network.fleet.hardware is not None
  return task.network.fleet.hardware


def until_target(
  task: Task, lines: Sequence[dict[str, Any]], label: str
) -> dict[str, float | None]:
  """Returns the cost of training until a row's accuracy reached eval.target.

  The accuracy is on the first test set. The cost has the rounds, bytes, seconds
  and joules up to the first evaluated round that reached the target; they are
  None if no round did. Returns {} if there is no target, if the row is
  evaluated only after the last round (eval.personal), or if lines lack the
  accuracy on the first test set.
  """
  target, name = task.config.eval.target, task.test_sets.names[0]
  shown = [x["accuracy"][label] for x in lines if history.evaluated(x, label)]
  known = all(name in x for x in shown)
  if target is None or history.waited(lines, label) or not known:
    return {}
  for count, line in enumerate(lines, start=1):
    reached = line.get("accuracy", {}).get(label, {}).get(name)
    if reached is not None and reached >= target:
      until = lines[:count]
      spent = [x["cost"] for x in until]
      return {
        "target_rounds": float(line["round"]),
        "target_bytes": sum(wire(until).values()),
        "target_seconds": sum(x["seconds"] for x in spent),
        "target_joules": sum(map(joules, spent)),
      }
  return dict.fromkeys(TARGETS)


def _priced(lines: Sequence[dict[str, Any]]) -> bool:
  """Checks if lines have costs, which need the network's FLOPs to be known."""
  return all("cost" in line for line in lines)


def of_run(
  task: Task, lines: Sequence[dict[str, Any]], accuracy: float
) -> dict[str, float | None]:
  """Sums up the costs of all rounds, which are in `lines` (see `of_metrics`).

  `accuracy` in [0, 1], or NaN, is from the last evaluation on the first test
  set. "grams" are of CO2, "watts" the mean power, and "watts_per_point" watts
  per percentage point of accuracy.
  """
  _, rates = _devices(task)
  seconds, clients, server = (
    sum(line["cost"][name] for line in lines)
    for name in ("seconds", "client_joules", "server_joules")
  )
  watts = (clients + server) / seconds if seconds else None
  return {
    "modelled_seconds": seconds,
    "client_joules": clients,
    "server_joules": server,
    "grams": cost.grams(clients + server, rates),
    "watts": watts,
    "watts_per_point": watts / (100 * accuracy) if watts and accuracy else None,
  }


def joules(spent: Mapping[str, float]) -> float:
  """Adds up the energy of a round, from the entry "cost" of its line."""
  return spent["client_joules"] + spent["server_joules"]


def wire(lines: Iterable[dict[str, Any]]) -> dict[str, float]:
  """Sums bytes over the rounds by message name."""
  total: dict[str, float] = {}
  for line in lines:
    for name, size in line["wire"].items():
      total[name] = total.get(name, 0.0) + size
  return total
