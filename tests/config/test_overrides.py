"""Names, options and texts of the command line become values of fields."""

import copy
import dataclasses
import functools
import typing

import pytest
import tiny
from refusals import refused

import splitjax
from splitjax import (
  ALLOCATIONS,
  BACKBONES,
  METHODS,
  METRICS,
  PARTITIONS,
  Config,
  UserError,
)
from splitjax.config import plan, sources
from splitjax.fields import alternatives
from splitjax.registry import Spec, options

NAMES = [
  ("data.partition", PARTITIONS, "dirichlet", "k=1"),
  ("backbone", BACKBONES, "vgg11", "length=3"),
  ("fleet.allocation", ALLOCATIONS, "dfl", "k=1"),
  ("methods.a", METHODS, "local", "lam=0.5"),
  ("method", METHODS, "local", "inner_steps=2"),
  ("eval.metrics.x", METRICS, "macro_f1", "k=1"),
]
"""A field with a name, another name, and an option that it lacks."""


def draft(path):
  c = tiny.tiny(**({"a": "splitgp"} if path == "methods.a" else {}))
  if path.startswith("eval.metrics"):
    c.eval.metrics = {"x": splitjax.spec(METRICS, "ece")}
  return c


def at(config, path):
  """The Spec of a config; `method` and swept methods are its only one."""
  if path.startswith("method"):
    return next(iter(config.methods.values()))
  for word in path.split("."):
    is_key = isinstance(config, dict)
    config = config[word] if is_key else getattr(config, word)
  return config


def given_option(path, more):
  return {f"{path}.{k}": v for k, _, v in [more.partition("=")] if k}


def by_flags(path, name, more=""):
  given = {**given_option(path, more), f"{path}.name": name}
  (cell,) = plan(draft(path), (), given).cells
  return at(cell.config, path)


def by_sweep(path, name, more=""):
  given = given_option(path, more)
  (cell,) = plan(draft(path), [f"{path}.name={name}"], given).cells
  return at(cell.config, path)


def by_file(path, name, more=""):
  c = draft(path)
  chosen = functools.reduce(getattr, path.split("."), c)
  chosen.name = name
  if more:
    option, _, value = more.partition("=")
    chosen[option] = value
  return at(Config.from_dict(copy.deepcopy(c)), path)


@pytest.mark.parametrize("choose", [by_flags, by_sweep, by_file])
@pytest.mark.parametrize(("path", "registry", "name", "more"), NAMES)
def test_a_name_alone_takes_the_new_one_s_defaults(
  choose, path, registry, name, more
):
  spec, known = choose(path, name), options(registry[name])
  assert spec.name == name
  assert spec.options == {key: standard for key, (_, standard) in known.items()}
  with pytest.raises(UserError) as error:
    choose(path, name, more)
  assert f"({name}): unknown option" in str(error.value)


def test_options_come_with_their_name_in_any_order():
  flags = {"data.partition.alpha": "0.7", "data.partition.name": "dirichlet"}
  for given in (flags, dict(reversed(flags.items()))):
    (cell,) = plan(tiny.tiny(), (), given).cells
    assert cell.config.data.partition.options["alpha"] == 0.7
  c = tiny.tiny()
  with refused("data.partition"):
    c.data.partition.alpha = 0.7
  c.data.partition.update({"alpha": 0.7, "name": "dirichlet"})
  assert Config.from_dict(c).data.partition.options["alpha"] == 0.7
  # A label belongs to the name that it was given with; the same name is none.
  c = tiny.tiny(a="splitgp")
  c.methods.a.update({"label": "SplitGP", "lam": 0.3})
  c.methods.a.name = "splitgp"
  assert (c.methods.a.label, c.methods.a.lam) == ("SplitGP", 0.3)
  c.methods.a.name = "local"
  assert Config.from_dict(c).methods["a"].label == ""


def optional(hint, path=()):
  """The fields that may be None, by their paths."""
  (kind, *_), out = alternatives(hint), []
  if type(None) in alternatives(hint):
    out.append(".".join(path))
  if dataclasses.is_dataclass(kind) and kind is not Spec:
    hints = typing.get_type_hints(kind, include_extras=True)
    for name, inner in hints.items():
      out += optional(inner, (*path, name))
  return out


@pytest.mark.parametrize("path", optional(Config))
def test_none_on_the_command_line(path):
  for given in (((), {path: "None"}), ([f"{path}=None"], {})):
    (cell,) = plan(tiny.tiny(), *given).cells
    assert functools.reduce(getattr, path.split("."), cell.config) is None


@pytest.mark.parametrize(
  ("path", "text", "value"),
  [
    ("title", "None", "None"),
    ("data.dir", "2024", "2024"),
    ("rounds", "3", 3),
    ("optimizer.lr", "1e-3", 1e-3),
    ("eval.rhos", "0.5", (0.5,)),
    ("eval.rhos", "0,0.5", (0.0, 0.5)),
    ("tensorboard", "false", False),
    ("order.turn", "epoch", "epoch"),
    ("order.turn", "3", 3),
    ("eval.shift", "{'name': 'global'}", Spec("global", {})),
    ("eval.metrics", "None", {}),
  ],
)
def test_a_text_is_read_by_the_type_of_its_field(path, text, value):
  (cell,) = plan(tiny.tiny(), (), {path: text}).cells
  assert functools.reduce(getattr, path.split("."), cell.config) == value


def test_names_of_methods_replace_those_of_a_config():
  given = {"methods": "splitgp,local", "methods.splitgp.lam": "0.3"}
  one, several = tiny.tiny(), tiny.tiny(harmony="harmony", fedavg="fedavg")
  several.headline = "harmony"
  for before in (one, several):
    (cell,) = plan(before, (), given).cells
    assert list(cell.config.methods) == ["splitgp", "local"]
    assert cell.config.methods["splitgp"].options["lam"] == 0.3
    assert cell.config.headline == ""
    with refused("--config.method.x"):
      plan(before, (), {**given, "method.x": "1"})


def test_a_row_that_is_named_stays_as_it_is():
  tree = tiny.tiny(few="splitgp", harmony="harmony", local="local").to_dict()
  tree["methods"]["few"] |= {"lam": 0.7, "label": "Few"}
  tree["headline"] = "few"
  given = {"methods": "fedavg,few", "methods.few.gamma": "0.4"}
  config = plan(tree, (), given).cells[0].config
  assert list(config.methods) == ["fedavg", "few"] and config.headline == "few"
  few = config.methods["few"]
  assert (few.name, few.label) == ("splitgp", "Few")
  assert (few.options["lam"], few.options["gamma"]) == (0.7, 0.4)
  with refused("methods.name"):
    plan(tree, (), {"methods": "fw"})


@pytest.mark.parametrize(
  ("path", "cell"),
  [
    ("methods.harmony.inner_steps", "inner_steps=1"),
    ("methods.splitpg.lam", "lam=1"),
    ("method.lam", "lam=1: sweep.method.lam"),
  ],
)
def test_axes_of_methods_that_are_left_out_are_refused(path, cell):
  tree = tiny.tiny(harmony="harmony", splitgp="splitgp").to_dict()
  tree["sweep"] = {path: (1, 2)}
  with refused(cell):
    plan(tree, (), {"methods": "splitgp"})


def test_methods_are_a_group():
  with refused("methods"):
    plan(tiny.tiny(a="local").to_dict(), (), {"methods": 5})


@pytest.mark.parametrize(
  "given", ["splitgp,local", ["splitgp", "local"], {"splitgp": "splitgp"}]
)
def test_methods_of_a_dict_may_be_names(given):
  tree = {**tiny.tiny(a="local").to_dict(), "methods": given}
  made = plan(tree, ["methods.splitgp.lam=0.1,0.2"], {}).cells[0].config
  assert made.methods["splitgp"].options["lam"] == 0.1
  for wrong in (3, None):
    with refused("sweep", "x"):
      plan({**tree, "methods": wrong}, ["methods.a.x=1,2"], {})


@pytest.mark.parametrize("field", ["data", "fleet", "backbone", "faults"])
def test_a_group_of_a_papers_setting_is_no_text(field):
  before = tiny.tiny()
  before.paper = next(iter(sources()))
  with refused(field):
    plan(before, (), {field: "x"})


@pytest.mark.parametrize(
  ("path", "text"),
  [
    ("rounds", "None"),
    ("rounds", "1.5"),
    ("optimizer.lr", "10**9"),
    ("tensorboard", "3"),
    ("order.name", "None"),
  ],
)
def test_a_text_of_another_type_is_one_line(path, text):
  with refused(path):
    plan(tiny.tiny(), (), {path: text})
