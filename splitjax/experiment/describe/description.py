"""The text that `--mode=describe` prints from the facts of `describe_run`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from splitjax.fleet.resources import Profiles
from splitjax.reports.quantities import heading


def describe_text(facts: dict[str, Any]) -> str:
  """Formats the facts for a terminal."""
  # Network and split depths.
  lines = [
    f"Backbone {facts['backbone']['name']}:"
    f" {facts['backbone']['parameters']:,} parameters"
  ]
  long = max(10, *(len(b["name"]) for b in facts["backbone"]["blocks"]))
  for b in facts["backbone"]["blocks"]:
    shape = "x".join(map(str, b["output"]))
    lines.append(f"  {b['name']:<{long}} {shape:>12} {b['parameters']:>12,}")
  if facts["backbone"]["slow"]:
    lines.append(f"  {facts['backbone']['slow']}")
  lines += ["", "Split depths (parameters)"]
  lines.append(
    f"  {'depth':>5} {'clients':>8} {'|phi|':>12} {'|h|':>10} {'|theta|':>12}"
  )
  for d in facts["depths"]:
    lines.append(
      f"  {d['depth']:>5} {d['clients']:>8} {d['phi']:>12,}"
      f" {d['h']:>10,} {d['theta']:>12,}"
    )

  lines += _device_lines(facts)

  # Data and clients.
  data = facts["data"]
  lines += [
    "",
    f"Data {data['name']}: {data['train']:,} training and {data['test']:,} test"
    f" {'images' if data['kind'] == 'images' else 'samples'}"
    f" {'x'.join(map(str, data['image']))}, {data['classes']} classes,"
    f" partition {data['partition']}"
    + (f" ({data['unused']:,} not trained on)" if data["unused"] else ""),
    f"Test sets of shift {data['shift']}:"
    f" {', '.join(map(heading, data['sets']))}"
    " (ID+OOD: samples in the last)",
    _training_line(facts["training"]),
    *facts["notes"],
  ]
  wide = max(len(c["name"]) for c in facts["clients"])
  wide = wide and max(wide, len("name")) + 1
  lines.append(
    f"  {'client':>6}{' name' if wide else '':<{wide}}"
    f" {'depth':>5} {'P_C':>6} {'samples':>8} {'ID+OOD':>11}  class: samples"
  )
  for c in facts["clients"]:
    name = f" {c['name']}" if wide else ""
    held = ", ".join(f"{k}: {v}" for k, v in c["classes"].items())
    lines.append(
      f"  {c['client']:>6}{name:<{wide}} {c['depth']:>5} {c['power']:>6.3g}"
      f" {c['samples']:>8} {c['id'][-1]:>5}+{c['ood'][-1]:<5}  {held}"
    )

  # Methods, faults, figures.
  for key, method in facts["methods"].items():
    lines += ["", *_method_lines(key, method)]
  if facts["faults"]:
    lines += ["", facts["faults"]]
  lines += ["", *(f"Figure {path}" for path in facts["figures"])]
  return "\n".join(lines).rstrip()


def text_of_grid(
  names: Sequence[str], seeds: Sequence[int], first: dict[str, Any]
) -> str:
  """Formats the names of a grid's cells, and the facts of the first cell."""
  each = f", seeds {', '.join(map(str, seeds))} each" if seeds else ""
  listed = "\n".join(f"  {name}" for name in names)
  return (
    f"A grid of {len(names)} runs{each}:\n{listed}\n\nThe first:\n\n"
    f"{describe_text(first)}"
  )


def _device_lines(facts: dict[str, Any]) -> list[str]:
  """Formats the clients' devices; [] if split depths do not depend on them."""
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
    " their number (fleet.allocation.levels)."
  )
  return lines


def _training_line(training: dict[str, Any]) -> str:
  ((length, count),) = training["length"].items()
  warmup = training["warmup"]
  rise = f" after {warmup:g} rounds of warm-up" if warmup else ""
  return (
    f"Training: {training['optimizer']} at {training['lr']:g},"
    f" {training['schedule']}{rise};"
    f" {count} {length.replace('_', ' ')} of batches of"
    f" {training['batch_size']} in a round; loss {training['loss']}"
  )


def _method_lines(key: str, method: dict[str, Any]) -> list[str]:
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
  """Formats the order in which clients are served, and their groups."""
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
