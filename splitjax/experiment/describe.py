"""A config described without training: network, clients, traffic, memory.

Memory is an estimate from shapes.
"""

from pathlib import Path
from typing import Any

import numpy as np

from splitjax.config.schema import Config
from splitjax.engine import faults
from splitjax.engine import fleet as fleets
from splitjax.engine.resources import Profiles
from splitjax.experiment import (
  batched,
  costs,
  data_summary,
  timing,
  traffic,
)
from splitjax.experiment import federation as federations
from splitjax.experiment import task as tasks
from splitjax.experiment.federation import Federation
from splitjax.experiment.task import Task
from splitjax.models import conv, shapes
from splitjax.reports.results import heading
from splitjax.types import UserError


def describe(config: Config, folder: Path | None = None) -> dict[str, Any]:
  """Everything that `--mode=describe` prints, JSON-ready.

  Figures of the clients' data are drawn into `folder`, if there is one.
  """
  task = tasks.build(config)
  drawn = [] if folder is None else data_summary.pictures(task, folder)
  return {
    "backbone": _backbone(task),
    "conv": conv.formulation(config.system.conv),
    "depths": _depths(task),
    "devices": task.facts.get("devices"),
    "data": _data(task),
    "clients": _clients(task),
    "methods": {key: _method(task, key) for key in config.methods},
    "faults": faults.describe_faults(config.faults) if config.faults.on else "",
    "notes": data_summary.origin(task) + data_summary.notes(task),
    "figures": list(map(str, drawn)),
  }


def _backbone(task: Task) -> dict[str, Any]:
  net = task.network.backbone
  size, shape = shapes.parameters(net), shapes.outputs(net)
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
  }


def _depths(task: Task) -> list[dict[str, Any]]:
  return [
    {**shapes.parts_at(task.network.backbone, c.depth), "clients": len(c.ids)}
    for c in task.network.fleet.cohorts
  ]


def _data(task: Task) -> dict[str, Any]:
  data = task.data
  return {
    "name": data.name,
    "classes": data.classes,
    "image": list(data.train_image.shape[1:]),
    "train": len(data.train_label),
    "test": len(data.test_label),
    "partition": task.config.data.partition.name,
    "shift": task.config.eval.shift.name,
    "sets": task.test_sets.names,
    "unused": len(data.train_label) - sum(map(len, task.test_sets.parts)),
  }


def _clients(task: Task) -> list[dict[str, Any]]:
  depth = {i: c.depth for c in task.network.fleet.cohorts for i in c.ids}
  test_sets, label, out = task.test_sets, task.data.train_label, []
  for n, part in enumerate(test_sets.parts):
    held, count = np.unique(label[part], return_counts=True)
    out.append(
      {
        "client": n,
        "depth": depth[n],
        "power": task.network.fleet.power[n],
        "samples": len(part),
        "classes": {int(c): int(k) for c, k in zip(held, count, strict=True)},
        "id": [int((s[n] & test_sets.known[n]).sum()) for s in test_sets.sets],
        "ood": [
          int((s[n] & ~test_sets.known[n]).sum()) for s in test_sets.sets
        ],
      }
    )
  return out


def _method(task: Task, key: str) -> dict[str, Any]:
  federation = federations.make_federation(task, key)
  needs = federations.need(task, federation)
  stages = [each for each in federation.method.stages if each.step]
  steps = [
    sum(plan.steps * (stage.epochs or plan.epochs) for stage in stages)
    for plan in federation.plans
  ]
  sent = {
    name: float(size)
    for name, size in traffic.of_round(task, federation).items()
  }
  up = sum(size for name, size in sent.items() if name.startswith("up/"))
  return {
    "name": task.config.methods[key].name,
    "local_steps": {
      "round": max(steps),
      "run": max(steps) * task.config.rounds,
    },
    "wire": dict(sorted(sent.items())),
    "flops": _flops(task, federation),
    "up": up,
    "down": sum(sent.values()) - up,
    "devices": federation.fleet.devices,
    "side_by_side": _side_by_side(federation),
    "memory": {**needs._asdict(), "total": sum(needs)},
    "memory_of_several": _of_several(task.config, key),
    "server_bytes": federations.server_bytes(task, federation),
    **_service(task, federation),
  }


def _flops(task: Task, federation: Federation) -> dict[str, float] | None:
  """The arithmetic of training, of a round with its participants and of all.

  By `Stage.work` and XLA's count of a forward pass (`models.flops`); a backward
  pass is two. Evaluation and fine-tuning at the end are left out. None where
  JAX has no CPU to count for.
  """
  config = task.config
  cuts = None
  if federation.method.cut is not None:  # the same at any cut
    cuts = np.full(config.num_clients, task.network.backbone.cuts[0])
  try:
    plan = costs.whole_round(task, federation, cuts)
  except UserError:
    return None
  few = config.participants_per_round or config.num_clients
  one = float((plan.client + plan.server).sum()) * few / config.num_clients
  return {"round": one, "run": one * config.rounds}


def _side_by_side(federation: Federation) -> list[int]:
  """Clients of each cohort that a device trains at a time."""
  if federation.method.traits.topology in ("sequential", "relay"):
    return [1]
  return [
    cohort.chunk or -(-count // federation.fleet.devices)
    for cohort, count in zip(
      federation.fleet.cohorts, fleets.slots(federation.fleet), strict=True
    )
  ]


def _of_several(config: Config, key: str) -> dict[str, int] | None:
  """Memory of a device where runs train side by side."""
  count = config.system.settings_batched
  if count == 1:
    return None
  total, devices = batched.memory_needed(config, key, count)
  return {"runs": count, "devices": devices, "total": total}


def _service(task: Task, federation: Federation) -> dict[str, Any]:
  """How one server serves its clients; {} where each has a copy of it."""
  topology, order = federation.method.traits.topology, task.config.order
  if topology == "parallel":
    return {}
  service: dict[str, Any] = {"topology": topology}
  if topology != "merged":
    service["order"] = {"name": order.name, "turn": order.turn}
  if federation.method.group is not None:
    service["groups"] = np.asarray(federation.shards[0].group).tolist()
  return service


def text(facts: dict[str, Any]) -> str:
  """The description for a terminal."""
  # Network and split depths.
  lines = [
    f"Backbone {facts['backbone']['name']}:"
    f" {facts['backbone']['parameters']:,} parameters,"
    f" convolutions as {facts['conv']}"
  ]
  for b in facts["backbone"]["blocks"]:
    shape = "x".join(map(str, b["output"]))
    lines.append(f"  {b['name']:<10} {shape:>12} {b['parameters']:>12,}")
  lines += ["", "Split depths (parameters)"]
  lines.append(
    f"  {'depth':>5} {'clients':>8} {'|phi|':>12} {'|h|':>10} {'|theta|':>12}"
  )
  for d in facts["depths"]:
    lines.append(
      f"  {d['depth']:>5} {d['clients']:>8} {d['phi']:>12,} {d['h']:>10,}"
      f" {d['theta']:>12,}"
    )

  lines += _device_lines(facts)

  # Data and clients.
  data = facts["data"]
  lines += [
    "",
    f"Data {data['name']}: {data['train']:,} training and {data['test']:,} test"
    f" images {'x'.join(map(str, data['image']))}, {data['classes']} classes,"
    f" partition {data['partition']}"
    + (f" ({data['unused']:,} not trained on)" if data["unused"] else ""),
    f"Test sets of shift {data['shift']}:"
    f" {', '.join(map(heading, data['sets']))}"
    " (ID+OOD: samples in the last)",
    *facts["notes"],
    f"  {'client':>6} {'depth':>5} {'P_C':>6} {'samples':>8} {'ID+OOD':>11} "
    " class: samples",
  ]
  for c in facts["clients"]:
    held = ", ".join(f"{k}: {v}" for k, v in c["classes"].items())
    lines.append(
      f"  {c['client']:>6} {c['depth']:>5} {c['power']:>6.3g}"
      f" {c['samples']:>8} {c['id'][-1]:>5}+{c['ood'][-1]:<5}  {held}"
    )

  # Methods, faults, figures.
  for key, method in facts["methods"].items():
    lines += ["", *_method_lines(key, method)]
  if facts["faults"]:
    lines += ["", facts["faults"]]
  if "time" in facts:
    lines += ["", timing.text(facts["time"])]
  lines += ["", *(f"Figure {path}" for path in facts["figures"])]
  return "\n".join(lines).rstrip()


def _device_lines(facts: dict[str, Any]) -> list[str]:
  """The clients' devices, where split depths depend on them."""
  if not facts["devices"]:
    return []
  known, units = facts["devices"], ("GB", "ms", "GFLOP/s", "Mbit/s")
  depth = np.array(known["depth"])
  lines = ["", "Devices (means of the clients at each depth)"]
  for d in sorted(set(known["depth"])):
    each = (
      f"{name} {np.array(known[name])[depth == d].mean():.3g} {unit}"
      for name, unit in zip(Profiles._fields, units, strict=True)
    )
    lines.append(f"  {d:>5} {', '.join(each)}")
  lines.append(
    "  Each depth in use is traced into the round: its compile time grows with"
    " their number (fleet.allocation.levels; --time measures it)."
  )
  return lines


def _method_lines(key: str, method: dict[str, Any]) -> list[str]:
  memory = method["memory"]
  return [
    f"Method {key} ({method['name']}): {method['local_steps']['round']} local"
    f" steps per round, {method['local_steps']['run']:,} in all",
    *_flop_lines(method),
    f"  one round moves {_mb(method['up'])} up, {_mb(method['down'])} down",
    *(f"    {n:<24} {_mb(size):>12}" for n, size in method["wire"].items()),
    f"  {method['devices']} device(s), clients of a cohort trained side by side"
    f" on each: {', '.join(map(str, method['side_by_side']))}",
    *_service_lines(method),
    f"  parameters at the server in a round: {_mb(method['server_bytes'])}",
    f"  memory of a device, estimated: {_mb(memory['total'])}"
    f" (data {_mb(memory['data'])}, state {_mb(memory['state'])},"
    f" round {_mb(memory['round'])})",
    *_several_lines(method["memory_of_several"]),
  ]


def _several_lines(memory: dict[str, int] | None) -> list[str]:
  if memory is None:
    return []
  return [
    f"  {memory['runs']} runs side by side on {memory['devices']} device(s):"
    f" {_mb(memory['total'])} on each"
  ]


def _flop_lines(method: dict[str, Any]) -> list[str]:
  if method["flops"] is None:
    return []
  one, every = method["flops"]["round"] / 1e9, method["flops"]["run"] / 1e12
  return [
    f"  one round computes {one:,.4g} GFLOP, the run {every:,.4g} TFLOP,"
    " evaluation apart"
  ]


def _service_lines(method: dict[str, Any]) -> list[str]:
  """The order in which clients are served, and their groups."""
  lines = []
  if "order" in method:
    name, turn = method["order"]["name"], method["order"]["turn"]
    often = turn if turn == "epoch" else f"{turn} batch(es)"
    lines.append(f"  one server, clients in order {name}, a turn: {often}")
  if "groups" in method:
    members: dict[int, list[str]] = {}
    for client, group in enumerate(method["groups"]):
      members.setdefault(group, []).append(str(client))
    each = (f"{g}: {' '.join(members[g])}" for g in sorted(members))
    lines.append(f"  groups (group: clients)  {', '.join(each)}")
  return lines


def _mb(size: float) -> str:
  return f"{size / 1e6:,.3f} MB"
