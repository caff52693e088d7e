"""The modelled cost of a method's rounds, from its plan and its log."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from splitjax.evaluation import cost
from splitjax.experiment.measure.scores import End
from splitjax.experiment.setup.tasks import Task
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.storage import history
from splitjax.experiment.storage.history import History
from splitjax.fleet.resources import Devices
from splitjax.models import sizes
from splitjax.types import Metrics


def on_end(end: End) -> dict[str, np.ndarray]:
  """Adds the cost of the training, and of reaching the target, to every row."""
  lines = end.whole.lines
  for row in end.rows:
    row["summary"]["per_client"]["cost"] = of_clients(end.whole)
    row |= of_run(end.task, lines, row["summary"]["accuracy"][0])
    row |= until_target(end.task, lines, row["label"])
  return {}


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
) -> dict[str, Any]:
  """Returns the cost of training until a row's accuracy reached eval.target.

  The accuracy is on the first test set. "to_target" has the rounds, bytes,
  seconds and joules up to the first evaluated round that reached the target; it
  is None if no round did. Returns {} if there is no target, if the row is
  evaluated only after the last round (eval.personal), or if lines lack costs or
  the accuracy on the first test set.
  """
  target, name = task.config.eval.target, task.test_sets.names[0]
  shown = [x["accuracy"][label] for x in lines if history.evaluated(x, label)]
  known = _priced(lines) and all(name in x for x in shown)
  if target is None or history.waited(lines, label) or not known:
    return {}
  for count, line in enumerate(lines, start=1):
    reached = line.get("accuracy", {}).get(label, {}).get(name)
    if reached is not None and reached >= target:
      until = lines[:count]
      each = [x["cost"] for x in until]
      took = {
        "rounds": float(line["round"]),
        "bytes": sum(history.wire(until).values()),
        "seconds": sum(x["seconds"] for x in each),
        "joules": sum(x["client_joules"] + x["server_joules"] for x in each),
      }
      return {"to_target": took}
  return {"to_target": None}


def _priced(lines: Sequence[dict[str, Any]]) -> bool:
  """Checks if lines have costs, which need the network's FLOPs to be known."""
  return all("cost" in line for line in lines)


def of_run(
  task: Task, lines: Sequence[dict[str, Any]], accuracy: float | None
) -> dict[str, Any]:
  """Sums up the costs of all rounds, which are in `lines` (see `of_metrics`).

  `accuracy` in [0, 1] is from the last evaluation on the first test set. The
  result has "cost": seconds, client_joules, server_joules, grams of CO2, watts
  (the mean power), and watts_per_point (watts per percentage point of
  accuracy). The result is {} if lines have no cost.
  """
  if not _priced(lines):
    return {}
  _, rates = _devices(task)
  names = "seconds", "client_joules", "server_joules"
  total: dict[str, Any] = {
    name: sum(line["cost"][name] for line in lines) for name in names
  }
  joules = total["client_joules"] + total["server_joules"]
  watts = joules / total["seconds"] if total["seconds"] else None
  per_point = watts / (100 * accuracy) if watts and accuracy else None
  total |= {"grams": cost.grams(joules, rates), "watts": watts}
  return {"cost": {**total, "watts_per_point": per_point}}


def of_clients(whole: History) -> dict[str, list[float]]:
  """Sums each client's seconds, joules and bytes over all rounds, [N] each."""
  names = ("seconds", "joules", "bytes") if _priced(whole.lines) else ()
  return {name: whole.clients[name].tolist() for name in names}


def curve(
  lines: Sequence[dict[str, Any]], label: str
) -> dict[str, list[float]]:
  """Returns total bytes, seconds and joules up to each evaluation of a row."""
  if not _priced(lines):
    return {}
  each = {
    "bytes": [sum(line["wire"].values()) for line in lines],
    "seconds": [line["cost"]["seconds"] for line in lines],
    "joules": [
      line["cost"]["client_joules"] + line["cost"]["server_joules"]
      for line in lines
    ],
  }
  shown = [i for i, x in enumerate(lines) if history.evaluated(x, label)]
  return {k: np.cumsum(x)[shown].tolist() for k, x in each.items()}
