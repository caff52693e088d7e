"""What a config is, told without training: network, clients, traffic, memory.

The traffic is not a second formula: it is the ledger of the first round
itself, compiled with nothing else asked for, so that the compiler drops the
training. Memory is an estimate from shapes.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from splitjax import backbone as bb
from splitjax import clients, courses, faults, fleet, ops, rounds, world
from splitjax.config import Config
from splitjax.courses import Course
from splitjax.reports import tables
from splitjax.types import Ledger
from splitjax.world import World


def describe(config: Config, folder: Path | None = None) -> dict[str, Any]:
  """Everything that `--mode=describe` prints, JSON-ready.

  Args:
    config: the run.
    folder: where pictures of the clients' data go; None for none.

  Returns:
    backbone: blocks with output shape and parameters; depths: |phi|, |h|,
    |theta| of each cut in use; data; clients: depth, power, samples and
    classes of each; methods: what each moves in a round and needs in memory;
    faults: what goes wrong, in words, "" if nothing; notes: what a reader has
    to be told; figures: paths of the pictures.

  Raises:
    UserError: as `world.build`.
  """
  here = world.build(config)
  drawn = [] if folder is None else map(str, clients.pictures(here, folder))
  return {
    "backbone": _backbone(here),
    "conv": ops.formulation(config.system.conv),
    "depths": _depths(here),
    "data": _data(here),
    "clients": _clients(here),
    "methods": {key: _method(here, key) for key in config.methods},
    "faults": faults.words(config.faults) if config.faults.on else "",
    "notes": clients.origin(here) + clients.notes(here),
    "figures": list(drawn),
  }


def _backbone(here: World) -> dict[str, Any]:
  net = here.network.backbone
  size, shape = bb.sizes(net), bb.outputs(net)
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


def _depths(here: World) -> list[dict[str, Any]]:
  net = here.network.backbone
  size, shape = bb.sizes(net), bb.outputs(net)
  return [
    {
      "depth": c.depth,
      "behind": net.names()[c.depth - 1],
      "clients": len(c.ids),
      "phi": sum(size[n] for n in net.names(0, c.depth)),
      "h": size[bb.exit_name(c.depth)],
      "theta": sum(size[n] for n in (*net.names(c.depth), "head")),
      "cut": list(shape[net.names()[c.depth - 1]]),
    }
    for c in here.network.fleet.cohorts
  ]


def _data(here: World) -> dict[str, Any]:
  data = here.data
  return {
    "name": data.name,
    "classes": data.classes,
    "image": list(data.train_image.shape[1:]),
    "train": len(data.train_label),
    "test": len(data.test_label),
    "partition": here.config.data.partition.name,
    "shift": here.config.eval.shift.name,
    "sets": here.trial.names,
    "unused": len(data.train_label) - sum(map(len, here.trial.parts)),
  }


def _clients(here: World) -> list[dict[str, Any]]:
  depth = {i: c.depth for c in here.network.fleet.cohorts for i in c.ids}
  trial, label, out = here.trial, here.data.train_label, []
  for n, part in enumerate(trial.parts):
    held, count = np.unique(label[part], return_counts=True)
    out.append(
      {
        "client": n,
        "depth": depth[n],
        "power": here.network.fleet.power[n],
        "samples": len(part),
        "classes": {int(c): int(k) for c, k in zip(held, count, strict=True)},
        "id": [int((s[n] & trial.inside[n]).sum()) for s in trial.sets],
        "ood": [int((s[n] & ~trial.inside[n]).sum()) for s in trial.sets],
      }
    )
  return out


def _method(here: World, key: str) -> dict[str, Any]:
  course = courses.make_course(here, key)
  steps = [plan.steps * plan.epochs for plan in course.plans]
  sent = {name: float(size) for name, size in _traffic(here, course).items()}
  up = sum(size for name, size in sent.items() if name.startswith("up/"))
  return {
    "name": here.config.methods[key].name,
    "local_steps": {
      "round": max(steps),
      "run": max(steps) * here.config.rounds,
    },
    "wire": dict(sorted(sent.items())),
    "up": up,
    "down": sum(sent.values()) - up,
    "devices": course.fleet.devices,
    "side_by_side": _side_by_side(course),
    "memory": _memory(here, course),
    "server_bytes": courses.server_bytes(here, course),
    **_service(here, course),
  }


def _side_by_side(course: Course) -> list[int]:
  """Clients of each cohort that a device trains at a time."""
  if course.method.topology in ("sequential", "relay"):
    return [1]
  return [
    cohort.chunk or -(-count // course.fleet.devices)
    for cohort, count in zip(
      course.fleet.cohorts, fleet.slots(course.fleet), strict=True
    )
  ]


def _service(here: World, course: Course) -> dict[str, Any]:
  """How one server meets its clients; {} where each has a copy of it."""
  topology, order = course.method.topology, here.config.order
  if topology == "parallel":
    return {}
  told: dict[str, Any] = {"topology": topology}
  if topology != "merged":
    told["order"] = {"name": order.name, "turn": order.turn}
  group = course.shards[0].group
  if len(jax.tree.leaves(group)):
    told["groups"] = np.asarray(group).tolist()
  return told


def _traffic(here: World, course: Course) -> Ledger:
  """The ledger of the first round without faults, bytes."""
  net = here.network.backbone
  state = courses.fresh_state(here, course, _zeros(net))
  step = rounds.make_round(
    course.method, course.plans, course.fleet, mesh=here.mesh
  )
  return jax.jit(lambda s, d: step(s, d)[1].wire)(state, course.shards)


def _zeros(net: bb.Backbone):
  """A network of zeros: the traffic depends on its shapes alone."""
  full = jax.eval_shape(lambda: bb.init(net, jax.random.key(0)))
  return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), full)


def _memory(here: World, course: Course) -> dict[str, int]:
  """Bytes that a training round takes on each device, from shapes."""
  needs = courses.need(here, course)
  return {**needs._asdict(), "total": sum(needs)}


def text(facts: dict[str, Any]) -> str:
  """The description for a terminal."""
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
  data = facts["data"]
  lines += [
    "",
    f"Data {data['name']}: {data['train']:,} training and {data['test']:,} test"
    f" images {'x'.join(map(str, data['image']))}, {data['classes']} classes,"
    f" partition {data['partition']}"
    + (f" ({data['unused']:,} not trained on)" if data["unused"] else ""),
    f"Test sets of shift {data['shift']}:"
    f" {', '.join(map(tables.heading, data['sets']))}"
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
  for key, method in facts["methods"].items():
    lines += ["", *_method_lines(key, method)]
  if facts["faults"]:
    lines += ["", facts["faults"]]
  lines += ["", *(f"Figure {path}" for path in facts["figures"])]
  return "\n".join(lines).rstrip()


def _method_lines(key: str, method: dict[str, Any]) -> list[str]:
  memory = method["memory"]
  return [
    f"Method {key} ({method['name']}): {method['local_steps']['round']} local"
    f" steps per round, {method['local_steps']['run']:,} in all",
    f"  one round moves {_mb(method['up'])} up, {_mb(method['down'])} down",
    *(f"    {n:<24} {_mb(size):>12}" for n, size in method["wire"].items()),
    f"  {method['devices']} device(s), clients of a cohort trained side by side"
    f" on each: {', '.join(map(str, method['side_by_side']))}",
    *_service_lines(method),
    f"  parameters at the server in a round: {_mb(method['server_bytes'])}",
    f"  memory of a device, estimated: {_mb(memory['total'])}"
    f" (data {_mb(memory['data'])}, state {_mb(memory['state'])},"
    f" round {_mb(memory['round'])})",
  ]


def _service_lines(method: dict[str, Any]) -> list[str]:
  """In which order clients are served, and in which groups they are."""
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
