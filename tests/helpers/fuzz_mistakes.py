"""One mistake in a config: every field with its invalid values."""

import dataclasses
import typing

from fuzz_configs import literals

from splitjax import ALLOCATIONS, METHODS, PARTITIONS
from splitjax.config.schema import Config
from splitjax.data import SHIFTS
from splitjax.fields import alternatives
from splitjax.models import BACKBONES
from splitjax.registry import options

nan, inf = float("nan"), float("inf")
NOTHING = [None, {}, [], b"x", 1j, object, {"name": 3}]
NUMBERS = [nan, inf, -inf, 1e39, -1e300, 10**400, -(10**5000), "1", "", True]
TEXTS = [0, 1.5, True, "nonsense", "", "Ω", "a\nb", "\ud800", ("digits",)]


def wrong_values(hint):
  """Values that are invalid for every field of that type."""
  kinds = alternatives(hint)
  out = list(NOTHING)
  if type(None) in kinds:
    out.remove(None)
  if any(typing.get_origin(kind) is dict for kind in kinds):  # or nothing
    out = [v for v in out if v not in (None, {}, [])]
  if int in kinds or float in kinds:
    out += NUMBERS + [(1,)]
    out += [] if float in kinds else [0.5, 1.0, 2**31, -(2**31), 10**30]
  elif bool in kinds:
    out += [0, 1, "True", "", nan]
  elif str in kinds:
    out += [v for v in TEXTS if not isinstance(v, str)] + ["a\nb", "\ud800"]
  elif any(typing.get_origin(kind) is tuple for kind in kinds):
    out = [v for v in out if v != []]
    out += [3, "12", ("a",), (True,), (nan,), (None,), ((1.0,),), (10**400,)]
  elif literals(hint):
    out += TEXTS + [nan]
  return out


def places(tree):
  """Every field of a config's dict: its path and invalid values."""
  registries = {
    "backbone": BACKBONES,
    "data.partition": PARTITIONS,
    "eval.shift": SHIFTS,
    "fleet.allocation": ALLOCATIONS,
    "method": METHODS,
  }
  out = []

  def spec(path, registry):
    node = at(tree, path)
    wrong = [v for v in NOTHING if not isinstance(v, dict)]
    out.append((path, [*wrong, 3, "harmony", {}, {"name": None}]))
    names = [None, 3, "", "nope", ["a"], {}, ("a", "b"), "a\nb", "x" * 999, nan]
    out.append(((*path, "name"), names))
    for key, (hint, _) in options(registry[node["name"]]).items():
      out.append(((*path, key), wrong_values(hint)))

  def group(cls, path):
    hints = typing.get_type_hints(cls)
    for name in at(tree, path):
      task = (*path, name)
      dotted = ".".join(task)
      if name == "methods":
        out.append((task, [3, "harmony", [1], {1: {"name": "local"}}, {"": 3}]))
        for key in tree["methods"]:
          spec((*task, key), METHODS)
      elif dotted in registries:
        spec(task, registries[dotted])
      elif dataclasses.is_dataclass(hints[name]):
        out.append((task, [v for v in NOTHING if not isinstance(v, dict)]))
        group(hints[name], task)
      else:
        out.append((task, wrong_values(hints[name]) + OUTSIDE.get(dotted, [])))

  group(Config, ())
  return out


OUTSIDE = {
  "data.name": ["mnist", "", "npz:", "npz:a\nb", "npz:/nowhere.npz"],
  "data.train_samples": [0, -1, 9, 1438],
  "data.test_samples": [0, -1, 9, 361],
  "data.device_budget_gb": [0, -1.0, 1e-12],
  "num_clients": [0, -1, 10**6],
  "participants_per_round": [0, -1, 7],
  "rounds": [0, -1],
  "local_epochs": [0, -1],
  "batch_size": [0, -1],
  "optimizer.lr": [0, -0.1],
  "optimizer.momentum": [-0.1, 1.0, 2],
  "optimizer.weight_decay": [-0.1],
  "eval.rhos": [(), (-0.1,), (0.5, 0.5)],
  "eval.thresholds": [(), (-0.1,)],
  "eval.every": [0, -1],
  "eval.inside": [0, -1, 99],
  "order.turn": [0, -1],
  "optimizer.decay": [0.0, 1.0, -1.0],
  "optimizer.floor": [-0.1],
  "eval.batch_size": [0, -1],
  "eval.threshold": [-0.5],
  "eval.holdout": [-0.5, 1.0],
  "eval.expected_rho": [-0.5],
  "eval.embeddings": [-1],
  "system.devices": [0, -1, 10**6],
  "system.clients_per_chunk": [0, -1],
  "system.wave": [0, -1],
  "system.client_power": [(), (0.0,), (1.0,) * 5, (-1.0, 1.0)],
  "system.server_power": [0, -1],
  "system.bandwidth": [0, -1],
  "seed": [-1],
}
"""Field -> values of the right type that are out of bounds."""


def at(tree, path):
  for name in path:
    tree = tree[name]
  return tree
