"""Configs of any fields: strategies for right ones, and for one mistake."""

import dataclasses
import typing

from hypothesis import strategies as st

from splitjax import METHODS, PARTITIONS
from splitjax.backbones import BACKBONES
from splitjax.config import Checkpoint, Config, Data, Eval, Optimizer, System
from splitjax.data import SHIFTS
from splitjax.faults import Faults
from splitjax.fields import alternatives, options


def between(low, high):
  return st.floats(low, high, allow_nan=False, width=32)


def tuples(values, most, **given):
  return st.lists(values, min_size=1, max_size=most, **given).map(tuple)


share = between(0, 1)
step = between(2**-10, 0.0625)
RIGHT = {
  # of methods
  "gamma": share,
  "lam": share,
  "inner_lr": step,
  "inner_steps": st.integers(1, 2),
  "csa_weight": between(0, 2),
  "csa_margin": between(0, 2),
  # of partitions and shifts
  "k": st.integers(1, 3),
  "num_shards": st.one_of(st.just("auto"), st.integers(6, 24)),
  "alpha": between(0.25, 10),
  "min_samples": st.integers(1, 3),
  "groups_of": st.one_of(st.none(), st.integers(1, 6)),
  "p": between(0, 100),
  "phi": st.just("auto"),
  "n_dominant": st.integers(2, 4),
  "train_fraction": between(0.25, 0.625),
  "validation_fraction": between(0.0625, 0.25),
  # of the toy
  "depths": tuples(st.integers(1, 3), 2, unique=True),
  "width": st.integers(2, 6),
  "length": st.just(4),
}
"""Option -> values of it that can be."""


def literals(hint):
  """Every text that a type allows."""
  kinds = alternatives(hint)
  return [v for kind in kinds for v in typing.get_args(kind)]


def option(name, hint, default):
  if name in RIGHT:
    return RIGHT[name]
  if hint is bool:
    return st.booleans()
  return st.sampled_from(literals(hint)) if literals(hint) else st.just(default)


@st.composite
def specs(draw, registry, names=None):
  name = draw(st.sampled_from(sorted(names or registry)))
  return {
    "name": name,
    **{
      key: draw(option(key, hint, default))
      for key, (hint, default) in options(registry[name]).items()
    },
  }


def _fields(cls, **right):
  """A group of fields: those given, texts and truths any, others as usual."""
  hints = typing.get_type_hints(cls)
  usual = {
    f.name: option(f.name, hints[f.name], f.default)
    for f in dataclasses.fields(cls)
    if f.name not in right and not dataclasses.is_dataclass(f.default)
  }
  return st.fixed_dictionaries(usual | right)


@st.composite
def configs(draw):
  """The dict of a config; a few cannot be, as no data allow them."""
  shift = draw(specs(SHIFTS))
  local = shift["name"] in ("local", "out_of_client")
  toy = draw(specs(BACKBONES, ["toy"]))
  deal = draw(specs(PARTITIONS))
  # Two of them have a group of clients for each of the ten labels.
  many = deal["name"] in ("dominant_label", "custom_shard")
  clients = 10 if many else draw(st.integers(2, 6))
  chunk = draw(st.one_of(st.just("auto"), st.integers(1, 4)))
  tree = {
    "data": draw(
      _fields(
        Data,
        name=st.just("digits"),
        partition=st.just(deal),
        train_samples=st.integers(60, 120),
        test_samples=st.integers(20, 40),
        pool=st.sampled_from(["train", "all"] if local else ["train"]),
      )
    ),
    "backbone": toy,
    "batch_norm": draw(
      st.sampled_from(
        ["average", "local", "group_norm"] if toy["batch_norm"] else ["average"]
      )
    ),
    "num_clients": clients,
    "participants_per_round": draw(
      st.one_of(st.none(), st.integers(1, clients))
    ),
    "participation": draw(st.sampled_from(["uniform", "stratified"])),
    "rounds": 2,
    "local_epochs": draw(st.integers(1, 2)),
    "batch_size": draw(st.integers(1, 20)),
    "optimizer": draw(
      _fields(
        Optimizer, lr=step, momentum=between(0, 0.9375), weight_decay=step
      )
    ),
    "eval": draw(
      _fields(
        Eval,
        shift=st.just(shift),
        rhos=st.none() if local or shift["name"] == "global" else rhos,
        thresholds=st.one_of(st.none(), tuples(between(0, 3), 3)),
        every=st.integers(1, 3),
        batch_size=st.integers(1, 50),
      )
    ),
    "on_nan": draw(st.sampled_from(["mask", "stop"])),
    "checkpoint": draw(
      _fields(
        Checkpoint,
        every=st.one_of(st.just("auto"), st.integers(1, 3)),
        keep=st.integers(1, 3),
        best=st.none(),
        keep_best=st.integers(1, 2),
      )
    ),
    "faults": draw(
      _fields(
        Faults,
        dropout=between(0, 1),
        straggler=between(0, 1),
        straggler_share=between(0.125, 1),
        server_down=between(0, 1),
        schedule=st.none(),
      )
    ),
    "system": draw(
      _fields(
        System,
        clients_per_chunk=st.just(chunk),
        seeds_batched=st.just(False),
        deterministic=st.booleans() if chunk != "auto" else st.just(False),
        client_power=st.one_of(
          st.none(), st.just(tuple(range(1, 1 + len(toy["depths"]))))
        ),
        server_power=between(1, 1000),
        bandwidth=between(0.125, 10),
      )
    ),
    "seed": draw(st.integers(0, 2**31 - 1)),
    "title": draw(st.sampled_from(["", "A | title", "Überschrift 題"])),
  }
  keys = draw(tuples(st.sampled_from(["a", "b_1", "C"]), 2, unique=True))
  if draw(st.booleans()):
    return tree | {"method": draw(specs(METHODS))}
  return tree | {"methods": {key: draw(specs(METHODS)) for key in keys}}


rhos = st.one_of(st.none(), tuples(between(0, 2), 3, unique=True))
nan, inf = float("nan"), float("inf")
NOTHING = [None, {}, [], b"x", 1j, object, {"name": 3}]
NUMBERS = [nan, inf, -inf, 1e39, -1e300, 10**400, -(10**5000), "1", "", True]
TEXTS = [0, 1.5, True, "nonsense", "", "Ω", "a\nb", "\ud800", ("digits",)]


def wrong_values(hint):
  """Values that no field of that type can have."""
  kinds = alternatives(hint)
  out = list(NOTHING)
  if type(None) in kinds:
    out.remove(None)
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
  """Every field of a config's dict: its path and what may not be there."""
  registries = {
    "backbone": BACKBONES,
    "data.partition": PARTITIONS,
    "eval.shift": SHIFTS,
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
      here = (*path, name)
      dotted = ".".join(here)
      if name == "methods":
        out.append((here, [3, "harmony", [1], {1: {"name": "local"}}, {"": 3}]))
        for key in tree["methods"]:
          spec((*here, key), METHODS)
      elif dotted in registries:
        spec(here, registries[dotted])
      elif dataclasses.is_dataclass(hints[name]):
        out.append((here, [v for v in NOTHING if not isinstance(v, dict)]))
        group(hints[name], here)
      else:
        out.append((here, wrong_values(hints[name]) + OUTSIDE.get(dotted, [])))

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
  "eval.batch_size": [0, -1],
  "eval.embeddings": [-1],
  "system.devices": [0, -1, 10**6],
  "system.clients_per_chunk": [0, -1],
  "system.client_power": [(), (0.0,), (1.0,) * 5, (-1.0, 1.0)],
  "system.server_power": [0, -1],
  "system.bandwidth": [0, -1],
  "seed": [-1],
}
"""Field -> values of the right type that cannot be."""


def at(tree, path):
  for name in path:
    tree = tree[name]
  return tree
