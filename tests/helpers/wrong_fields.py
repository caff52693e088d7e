"""Invalid values of every field of a config."""

import dataclasses
import typing

from splitjax.config import Config
from splitjax.fields import Bounds, alternatives
from splitjax.registry import Spec, options

nan, inf = float("nan"), float("inf")
NOTHING = [None, {}, [], b"x", 1j, object, {"name": 3}]
NUMBERS = [nan, inf, -inf, 1e39, -1e300, 10**400, -(10**5000), "1", "", True]
TEXTS = [0, 1.5, True, "nonsense", "", "Ω", "a\nb", "\ud800", ("digits",)]


def literals(hint):
  """The texts that a type allows."""
  kinds = alternatives(hint)
  texts = [k for k in kinds if typing.get_origin(k) is typing.Literal]
  return [v for kind in texts for v in typing.get_args(kind)]


def registry_of(hint):
  """The registry of a Spec's name, from Annotated[Spec, REGISTRY]."""
  (registry,) = [m for m in hint.__metadata__ if isinstance(m, dict)]
  return registry


def wrong_values(hint):
  """Values that are invalid for every field of that type."""
  kinds, out = alternatives(hint), list(NOTHING)
  marks = getattr(hint, "__metadata__", ())
  bounds = next((m for m in marks if isinstance(m, Bounds)), Bounds())
  beyond = [x for x in (bounds.above, bounds.below) if x is not None]
  for limit, sign in ((bounds.at_least, -1), (bounds.at_most, 1)):
    beyond += [] if limit is None else [limit + sign]
  if type(None) in kinds:
    out.remove(None)
  if any(typing.get_origin(kind) is dict for kind in kinds):  # or nothing
    out = [v for v in out if v not in (None, {}, [])]
  if int in kinds or float in kinds:
    out += NUMBERS + [(1,)] + beyond
    out += [] if float in kinds else [0.5, 1.0, 2**31, -(2**31), 10**30]
  elif bool in kinds:
    out += [0, 1, "True", "", nan]
  elif str in kinds:
    out += [v for v in TEXTS if not isinstance(v, str)] + ["a\nb", "\ud800"]
  elif any(typing.get_origin(kind) is tuple for kind in kinds):
    out = [v for v in out if v != []]
    out += [3, "12", ("a",), (True,), (nan,), (None,), ((1.0,),), (10**400,)]
    out += [(x,) for x in beyond]
    if kinds[0] == tuple[str, ...]:
      out = [v for v in out if v not in ("12", ("a",))]
  elif literals(hint):
    out += [v for v in TEXTS if v not in literals(hint)] + [nan]
  return out


def places(tree):
  """Every field of a config's dict: its path and invalid values."""
  out = []

  def spec(path, registry):
    node = at(tree, path)
    wrong = [v for v in NOTHING if not isinstance(v, dict)]
    out.append((path, [*wrong, 3, "nope", {}, {"name": None}]))
    names = [None, 3, "", "nope", ["a"], {}, ("a", "b"), "a\nb", "x" * 999, nan]
    out.append(((*path, "name"), names))
    for key, (hint, _) in options(registry[node["name"]]).items():
      out.append(((*path, key), wrong_values(hint)))

  def group(cls, path):
    hints = typing.get_type_hints(cls, include_extras=True)
    for name in at(tree, path):
      task = (*path, name)
      dotted = ".".join(task)
      if name == "methods":
        out.append((task, [3, [1], {1: {"name": "local"}}, {"": 3}]))
        (_, each) = typing.get_args(hints[name])
        for key in tree["methods"]:
          spec((*task, key), registry_of(each))
      elif alternatives(hints[name])[0] is Spec:
        spec(task, registry_of(hints[name]))
      elif dataclasses.is_dataclass(alternatives(hints[name])[0]):
        out.append((task, [v for v in NOTHING if not isinstance(v, dict)]))
        group(alternatives(hints[name])[0], task)
      else:
        out.append((task, wrong_values(hints[name]) + OUTSIDE.get(dotted, [])))

  group(Config, ())
  return out


OUTSIDE = {
  "data.name": ["mnist", "", "npz:", "npz:a\nb", "npz:/nowhere.npz"],
  "data.augment": ["flip", "crop,flip", "crop()"],
  "data.domains": ["fog", "clean 3", "rotation 6"],
  "eval.domains": ["fog", "rotation 3"],
  "data.train_samples": [9, 1438],
  "data.test_samples": [9, 361],
  "num_clients": [10**6],
  "participants_per_round": [0, -1, 11],
  "eval.rhos": [(), (0.5, 0.5)],
  "eval.thresholds": [()],
  "system.devices": [10**6],
  "system.client_power": [(), (1.0,) * 5, (-1.0, 1.0)],
}
"""Field -> values that are wrong although within the bounds of its type."""


def at(tree, path):
  for name in path:
    tree = tree[name]
  return tree
