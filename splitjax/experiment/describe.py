"""A config's network, clients and traffic, found without training."""

from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from splitjax.config.config import Config
from splitjax.evaluation import cost
from splitjax.experiment import summary
from splitjax.experiment.task import Task, build, make_subject, run_key
from splitjax.fields import noting
from splitjax.models import sizes

_Facts = dict[str, Any]
"""JSON-ready: texts, numbers, lists, and dicts of them."""


def describe_run(config: Config, folder: Path | None = None) -> _Facts:
  """Returns what `describe` prints; draws the clients' data into a folder."""
  task = build(config)
  drawn = summary.pictures(task, folder) if folder else []
  net = task.network.backbone
  size = sizes.parameters(net)
  shape = sizes.outputs(net) | {"head": (net.classes,)}
  cohorts = task.network.fleet.cohorts
  return {
    "backbone": net.name,
    "parameters": sum(size[name] for name in shape),
    "slow": sizes.slow_convolutions(net),
    "blocks": [
      {"block": name, "output": list(output), "parameters": size[name]}
      for name, output in shape.items()
    ],
    "depths": [
      {**sizes.parts_at(net, c.depth), "clients": len(c.ids)} for c in cohorts
    ],
    "data": task.data.name,
    "train": len(task.data.train_label),
    "test": len(task.data.test_label),
    "sets": list(task.test_sets.names),
    "clients": [_client(task, n) for n in range(config.num_clients)],
    "methods": {key: _method(task, key) for key in config.methods},
    "notes": [*summary.origin(task), *summary.notes(task)],
    "figures": list(map(str, drawn)),
  }


def describe_text(facts: _Facts, indent: str = "") -> str:
  """Formats facts for a terminal: a line each, and lists of dicts as tables."""
  lines = list[str]()
  for name, value in facts.items():
    if isinstance(value, dict) and value:
      lines += [f"{indent}{name}", describe_text(value, f"{indent}  ")]
    elif isinstance(value, list) and value and isinstance(value[0], dict):
      table = tabulate(value, "keys", "plain", floatfmt=",.4g", intfmt=",")
      lines += [f"{indent}{name}", table]
    elif value:
      number = isinstance(value, int | float)
      words = value if isinstance(value, list) else [value]
      text = f"{value:,.10g}" if number else " ".join(map(str, words))
      lines.append(f"{indent}{name}: {text}")
  return "\n".join(lines)


def _client(task: Task, n: int) -> _Facts:
  sets = task.test_sets
  part = sets.parts[n]
  inside = (sets.sets[:, n] & sets.known[n]).sum(axis=1)
  labels, counts = np.unique(task.data.train_label[part], return_counts=True)
  classes = [task.class_names[label] for label in labels]
  return {
    "client": n,
    "name": task.client_names[n],
    "depth": task.network.fleet.depths[n],
    "samples": len(part),
    "id": inside.tolist(),
    "ood": (sets.sets[:, n].sum(axis=1) - inside).tolist(),
    "classes": dict(zip(classes, counts.tolist(), strict=True)),
  }


def _method(task: Task, key: str) -> _Facts:
  subject = make_subject(task, key)
  with noting(f"methods.{key}"):
    sent = cost.bytes_of_round(subject, run_key(task.config.seed))
  facts: _Facts = {
    "name": task.config.methods[key].name,
    "bytes": {name: float(sent[name]) for name in sorted(sent)},
    "server_bytes": cost.server_bytes(subject),
    "devices": subject.fleet.devices,
  }
  work = cost.whole_round(subject)
  if work is None:
    return facts
  share = subject.fleet.participants / task.config.num_clients
  flops = float((work.client + work.once + work.server).sum()) * share
  return {**facts, "local_steps": int(work.steps.max()), "flops": flops}
