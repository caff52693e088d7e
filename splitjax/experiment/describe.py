"""A config's network, clients and traffic, found without training.

`describe_run` makes one dict of facts; `describe_text` prints it.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from tabulate import tabulate

from splitjax import trees
from splitjax.config.config import Config
from splitjax.engine import faults
from splitjax.engine.loops import one_server
from splitjax.engine.round import run_round
from splitjax.evaluation import cost
from splitjax.evaluation.subject import Subject
from splitjax.experiment import summary, tracing
from splitjax.experiment.programs import Programs, clients_side_by_side
from splitjax.experiment.task import (
  Task,
  build,
  make_subject,
)
from splitjax.fleet.orders import IN_TURN
from splitjax.methods.method import Method
from splitjax.models import sizes
from splitjax.parameters import pytree
from splitjax.types import Stage, UserError
from splitjax.wire import Ledger

Facts = dict[str, Any]
"""JSON-ready: texts, numbers, lists, and dicts of them."""


def describe_run(config: Config, folder: Path | None = None) -> Facts:
  """Returns everything that `describe` prints.

  If `folder` is given, figures of the clients' data are drawn into it.
  """
  task = build(config)
  drawn = [] if folder is None else summary.pictures(task, folder)
  network = task.network
  chosen = faults.Faults(**vars(config.faults))
  return {
    "backbone": _network(task),
    "depths": [
      {**sizes.parts_at(network.backbone, c.depth), "clients": len(c.ids)}
      for c in network.fleet.cohorts
    ],
    "devices": task.facts.get("devices"),
    "data": _data(task),
    "training": _training(task.config),
    "clients": [_client(task, n) for n in range(config.num_clients)],
    "methods": {key: _method(task, key) for key in config.methods},
    "faults": faults.describe_faults(chosen) if chosen.on else "",
    "notes": summary.origin(task) + summary.notes(task),
    "figures": list(map(str, drawn)),
  }


def describe_text(facts: Facts, indent: str = "") -> str:
  """Formats facts for a terminal: a line each, and lists of dicts as tables."""
  lines = []
  for name, value in facts.items():
    if isinstance(value, Mapping) and value:
      inner = describe_text(dict(value), f"{indent}  ")
      lines.append(f"{indent}{name}\n{inner}")
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
      rows = [{k: _text(x) for k, x in row.items()} for row in value]
      table = tabulate(rows, "keys", "plain", disable_numparse=True)
      lines.append(f"{indent}{name}")
      lines += [f"{indent}  {line}" for line in table.splitlines()]
    elif isinstance(value, list) and value and name in ("notes", "figures"):
      lines += [f"{indent}{line}" for line in value]
    elif text := _text(value):
      lines.append(f"{indent}{name}: {text}")
  return "\n".join(lines)


def _text(value: Any) -> str:
  """Formats a fact in one line; "" if it says nothing."""
  if value is None:
    return ""
  if isinstance(value, Mapping):
    return ", ".join(f"{name}: {_text(x)}" for name, x in value.items())
  if isinstance(value, Sequence) and not isinstance(value, str):
    return " ".join(map(_text, value))
  if isinstance(value, float) and not value.is_integer():
    return f"{value:,.4g}"
  if isinstance(value, int | float) and not isinstance(value, bool):
    return f"{int(value):,}"
  return str(value)


def _network(task: Task) -> Facts:
  net = task.network.backbone
  size = sizes.parameters(net)
  shape = sizes.outputs(net)
  blocks = [
    {
      "name": name,
      "output": list(shape.get(name, (net.classes,))),
      "parameters": size[name],
    }
    for name in (*net.names(), "head")
  ]
  return {
    "name": net.name,
    "blocks": blocks,
    "parameters": sum(block["parameters"] for block in blocks),
    "slow": sizes.slow_convolutions(net),
  }


def _data(task: Task) -> Facts:
  data = task.data
  config = task.config
  return {
    "name": data.name,
    "classes": data.classes,
    "image": list(data.train_image.shape[1:]),
    "kind": data.kind,
    "train": len(data.train_label),
    "test": len(data.test_label),
    "partition": config.data.partition.name,
    "shift": config.eval.shift.name,
    "sets": task.test_sets.names,
    "unused": len(data.train_label) - sum(map(len, task.test_sets.parts)),
  }


def _training(config: Config) -> Facts:
  chosen = config.optimizer
  length = {"local_epochs": config.local_epochs}
  if config.local_steps:
    length = {"local_steps": config.local_steps}
  return {
    "optimizer": chosen.name,
    "lr": chosen.lr,
    "schedule": chosen.schedule,
    "batch_size": config.batch_size,
    "length": length,
    "loss": config.loss.name,
  }


def _client(task: Task, n: int) -> Facts:
  sets = task.test_sets
  fleet = task.network.fleet
  part = sets.parts[n]
  in_classes = sets.known[n]
  labels, counts = np.unique(task.data.train_label[part], return_counts=True)
  return {
    "client": n,
    "name": task.network.names[n] if task.network.names else "",
    "depth": next(c.depth for c in fleet.cohorts if n in c.ids),
    "power": fleet.power[n],
    "samples": len(part),
    "id": [int((chosen[n] & in_classes).sum()) for chosen in sets.sets],
    "ood": [int((chosen[n] & ~in_classes).sum()) for chosen in sets.sets],
    "classes": {
      task.class_names[label]: int(count)
      for label, count in zip(labels, counts, strict=True)
    },
  }


def _method(task: Task, key: str) -> Facts:
  subject = make_subject(task, key)
  stages = [stage for stage in subject.method.stages() if not stage.once]
  steps = max(
    sum(int(plan.of_round(most, stage.epochs)[0]) for stage in stages)
    for plan in subject.plans
    for most in [np.array(plan.steps * plan.batch)]
  )
  sent = {name: float(size) for name, size in bytes_of_round(subject).items()}
  up = sum(size for name, size in sent.items() if name.startswith("up/"))
  return {
    "name": task.config.methods[key].name,
    "rows": subject.labels,
    "local_steps": {"round": steps, "run": steps * task.config.rounds},
    "wire": dict(sorted(sent.items())),
    "flops": _flops(subject),
    "up": up,
    "down": sum(sent.values()) - up,
    "devices": subject.fleet.devices,
    "side_by_side": clients_side_by_side(subject),
    "server_bytes": tracing.at_server(subject),
    **_service(subject),
  }


def _flops(subject: Subject) -> dict[str, float] | None:
  """Counts the FLOPs of the participants in one round, and in all rounds.

  The counts follow from `Stage.passes` and XLA's count of a forward pass
  (`models.flops`); a backward pass counts as two forward passes. Evaluation and
  fine-tuning at the end are left out. Returns None if JAX has no CPU backend,
  which does the counting, or if it cannot count.
  """
  try:
    work = cost.whole_round(subject)
  except UserError:
    return None
  config = subject.task.config
  flops = float((work.client + work.once + work.server).sum())
  of_round = flops * subject.fleet.participants / config.num_clients
  return {"round": of_round, "run": of_round * config.rounds}


def _service(subject: Subject) -> Facts:
  """Describes how one server serves clients; {} if each has its own server."""
  method = subject.method
  order = subject.task.config.order
  if not one_server(method):
    return {}
  service: Facts = {"topology": method.topology}
  if method.topology in IN_TURN:
    service["order"] = {"name": order.name, "turn": order.turn}
  (shard,) = subject.shards
  if method.group(np.asarray(shard.counts)) is not None:
    service["groups"] = np.asarray(shard.group).tolist()
  return service


# The bytes of a round.


def bytes_of_round(subject: Subject) -> Ledger:
  """Returns the ledger of the first round, without faults and training.

  The round is compiled with its ledger as the only output, and its steps are
  replaced by steps that send the same messages and change nothing, so that the
  compiler sees at once that no training is needed.
  """
  # The ledger depends on shapes alone, so a network of zeros is enough.
  zeros = trees.zeros(sizes.shapes(subject.backbone))
  state = Programs(subject).begin(zeros)

  def sent(method, state, shards):
    static = {"layout": subject.layout, "plans": subject.plans}
    return run_round(method, state, shards, **static, mesh=subject.task.mesh)

  def wire_of(*arguments):
    return sent(*arguments)[1].wire

  # Finds errors of the real steps.
  jax.eval_shape(sent, subject.method, state, subject.shards)
  arguments = idle(subject.method), state, subject.shards
  return jax.jit(wire_of).lower(*arguments).compile()(*arguments)


def idle(method: Method) -> Method:
  """Copies a method whose steps send their messages and change nothing."""
  kind: type[Method] = type(method)

  class Idle(kind):  # type: ignore[valid-type, misc]
    def stages(self):
      return tuple(map(_without_changes, super().stages()))

  fields = {f.name: getattr(method, f.name) for f in dataclasses.fields(kind)}
  return pytree(Idle)(**fields)


def _without_changes(stage: Stage) -> Stage:
  def step(client, server, *rest_of_step):
    losses = stage.step(client, server, *rest_of_step)[2]
    return client, server, trees.zeros(losses)

  return stage._replace(step=step)
