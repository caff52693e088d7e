"""A config's network, clients and traffic, without training."""

from pathlib import Path
from typing import Any

import numpy as np

from splitjax.config.config import Config
from splitjax.engine import faults
from splitjax.engine.loops import one_server
from splitjax.evaluation import cost
from splitjax.experiment.describe import traffic
from splitjax.experiment.setup import data_summary, tasks, training_setup
from splitjax.experiment.setup.tasks import Task
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.models import sizes
from splitjax.types import UserError


def describe_run(config: Config, folder: Path | None = None) -> dict[str, Any]:
  """Returns everything that `--mode=describe` prints, JSON-ready.

  If `folder` is given, figures of the clients' data are drawn into it.
  """
  task = tasks.build(config)
  chosen = faults.Faults(**vars(config.faults))
  drawn = [] if folder is None else data_summary.pictures(task, folder)
  return {
    "backbone": _backbone(task),
    "depths": _depths(task),
    "devices": task.facts.get("devices"),
    "data": _data(task),
    "training": _training(task.config),
    "clients": _clients(task),
    "methods": {key: _method(task, key) for key in config.methods},
    "faults": faults.describe_faults(chosen) if chosen.on else "",
    "notes": data_summary.origin(task) + data_summary.notes(task),
    "figures": list(map(str, drawn)),
  }


def _backbone(task: Task) -> dict[str, Any]:
  net = task.network.backbone
  size, shape = sizes.parameters(net), sizes.outputs(net)
  names = (*net.names(), "head")
  return {
    "name": net.name,
    "blocks": [
      {
        "name": name,
        "output": list(shape.get(name, (net.classes,))),
        "parameters": size[name],
      }
      for name in names
    ],
    "parameters": sum(size[name] for name in names),
    "slow": sizes.slow_convolutions(net),
  }


def _depths(task: Task) -> list[dict[str, Any]]:
  return [
    {
      **sizes.parts_at(task.network.backbone, c.depth),
      "clients": len(c.ids),
    }
    for c in task.network.fleet.cohorts
  ]


def _data(task: Task) -> dict[str, Any]:
  data = task.data
  return {
    "name": data.name,
    "classes": data.classes,
    "image": list(data.train_image.shape[1:]),
    "kind": data.kind,
    "train": len(data.train_label),
    "test": len(data.test_label),
    "partition": task.config.data.partition.name,
    "shift": task.config.eval.shift.name,
    "sets": task.test_sets.names,
    "unused": len(data.train_label) - sum(map(len, task.test_sets.parts)),
  }


def _training(config: Config) -> dict[str, Any]:
  chosen, steps = config.optimizer, config.local_steps
  return {
    "optimizer": chosen.name,
    "lr": chosen.lr,
    "schedule": chosen.schedule,
    "warmup": chosen.warmup,
    "batch_size": config.batch_size,
    "length": {"local_steps": steps}
    if steps
    else {"local_epochs": config.local_epochs},
    "loss": config.loss.name,
    "mean_weights": config.mean_weights,
  }


def _clients(task: Task) -> list[dict[str, Any]]:
  cohort = {i: c for c in task.network.fleet.cohorts for i in c.ids}
  test_sets, label, out = task.test_sets, task.data.train_label, []
  classes = data_summary.class_names(task)
  for n, part in enumerate(test_sets.parts):
    held, count = np.unique(label[part], return_counts=True)
    out.append(
      {
        "client": n,
        "name": task.network.names[n] if task.network.names else "",
        "depth": cohort[n].depth,
        "power": task.network.fleet.power[n],
        "samples": len(part),
        "classes": {
          classes[c]: int(k) for c, k in zip(held, count, strict=True)
        },
        "id": [int((s[n] & test_sets.known[n]).sum()) for s in test_sets.sets],
        "ood": [
          int((s[n] & ~test_sets.known[n]).sum()) for s in test_sets.sets
        ],
      }
    )
  return out


def _method(task: Task, key: str) -> dict[str, Any]:
  setup = training_setup.make_setup(task, key)
  stages = [stage for stage in setup.method.stages() if not stage.once]
  steps = [
    sum(int(plan.of_round(most, stage.epochs)[0]) for stage in stages)
    for plan in setup.plans
    for most in [np.array(plan.steps * plan.batch)]
  ]
  sent = {name: float(size) for name, size in traffic.of_round(setup).items()}
  up = sum(size for name, size in sent.items() if name.startswith("up/"))
  return {
    "name": task.config.methods[key].name,
    "rows": setup.labels,
    "local_steps": {
      "round": max(steps),
      "run": max(steps) * task.config.rounds,
    },
    "wire": dict(sorted(sent.items())),
    "flops": _flops(setup),
    "up": up,
    "down": sum(sent.values()) - up,
    "devices": setup.fleet.devices,
    "side_by_side": training_setup.clients_side_by_side(setup),
    "server_bytes": training_setup.server_bytes(setup),
    **_service(setup),
  }


def _flops(setup: TrainingSetup) -> dict[str, float] | None:
  """Counts the FLOPs of the participants in one round, and in all rounds.

  The counts follow from `Stage.passes` and XLA's count of a forward pass
  (`models.flops`); a backward pass counts as two forward passes. Evaluation and
  fine-tuning at the end are left out. Returns None if JAX has no CPU backend,
  which does the counting, or if it cannot count.
  """
  try:
    flops = cost.round_flops(setup.subject)
  except UserError:
    return None
  config, few = setup.task.config, setup.fleet.participants
  one = flops * few / config.num_clients
  return {"round": one, "run": one * config.rounds}


def _service(setup: TrainingSetup) -> dict[str, Any]:
  """Describes how one server serves clients; {} if each has its own server."""
  method, order = setup.method, setup.task.config.order
  if not one_server(method):
    return {}
  service: dict[str, Any] = {"topology": method.topology}
  if setup.in_turn:
    service["order"] = {"name": order.name, "turn": order.turn}
  (shard,) = setup.shards
  if method.group(np.asarray(shard.counts)) is not None:
    service["groups"] = np.asarray(shard.group).tolist()
  return service
