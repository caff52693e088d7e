"""Sweeps: a config with lists of values becomes runs, seeds and methods."""

import copy
import dataclasses
import functools
import typing

import pytest
import tiny

import splitjax
from splitjax import (
  ALLOCATIONS,
  ATTACKS,
  BACKBONES,
  DOMAINS,
  METHODS,
  PACES,
  PARTITIONS,
  SHIFTS,
  Config,
  UserError,
)
from splitjax.config import sweep
from splitjax.fields import alternatives
from splitjax.registry import Spec, options


def given(*, vary=None, **methods):
  c = tiny.tiny(**methods)
  if vary:
    splitjax.vary(c, vary)
  return c.to_dict()


def test_nothing_swept_is_one_run():
  plan = sweep.plan(given())
  assert plan.seeds is None
  (cell,) = plan.cells
  assert (cell.name, cell.values) == ("", {})
  assert cell.config == Config.from_dict(given())


def test_every_combination_is_a_cell():
  vary = {
    "data.partition.k": (1, 2),
    "optimizer.lr": (0.1, 0.2),
    "seed": (3, 4),
  }
  plan = sweep.plan(given(vary=vary))
  assert plan.seeds == [3, 4]
  names = [cell.name for cell in plan.cells]
  assert names == ["k=1,lr=0.1", "k=1,lr=0.2", "k=2,lr=0.1", "k=2,lr=0.2"]
  last = plan.cells[-1]
  assert last.values == {"data.partition.k": 2, "optimizer.lr": 0.2}
  assert last.config.data.partition.options["k"] == 2
  assert last.config.optimizer.lr == 0.2
  assert plan.cells[0].config.optimizer.lr == 0.1


def test_fields_that_end_alike_keep_their_names():
  vary = {
    "backbone.width": (4, 6),
    "eval.every": (1,),
    "checkpoint.every": (1,),
  }
  (first, _) = sweep.plan(given(vary=vary)).cells
  assert first.name == "width=4,eval.every=1,checkpoint.every=1"


def test_an_option_of_a_method_is_more_methods():
  methods = {"a": "harmony", "b": "splitgp", "c": "local"}
  vary = {"methods.b.lam": (0.2, 0.9), "methods.b.gamma": (0.5, 0.7)}
  (cell,) = sweep.plan(given(vary=vary, **methods)).cells
  assert (cell.name, cell.values) == ("", {})
  found = cell.config.methods
  assert list(found) == [
    "a",
    "b_lam_0_2_gamma_0_5",
    "b_lam_0_2_gamma_0_7",
    "b_lam_0_9_gamma_0_5",
    "b_lam_0_9_gamma_0_7",
    "c",
  ]
  spec = found["b_lam_0_9_gamma_0_5"]
  assert (spec.options["lam"], spec.options["gamma"]) == (0.9, 0.5)
  assert spec.label == "b λ=0.9 γ=0.5"
  assert (found["a"].label, found["c"].label) == ("", "")


def test_the_one_method_of_a_config():
  (cell,) = sweep.plan(given(), ["method=local,fedavg"]).cells
  assert list(cell.config.methods) == ["local", "fedavg"]
  (cell,) = sweep.plan(given(), ["method.inner_steps=3,5"]).cells
  found = cell.config.methods
  assert list(found) == ["harmony_inner_steps_3", "harmony_inner_steps_5"]
  assert [x.options["inner_steps"] for x in found.values()] == [3, 5]
  assert [x.label for x in found.values()] == ["harmony M=3", "harmony M=5"]


@pytest.mark.parametrize(
  ("text", "values"),
  [
    ("optimizer.lr=0.1,1", [0.1, 1]),
    ("backbone.depths=(1,2),(2,)", [(1, 2), (2,)]),
    ("batch_norm=average,local", ["average", "local"]),
    ("data.train_samples=None,80", [None, 80]),
  ],
)
def test_the_command_line_gives_values(text, values):
  path = text.partition("=")[0]
  cells = sweep.plan(given(), [text]).cells
  assert [cell.values[path] for cell in cells] == values


def test_cell_names_are_valid_folder_names():
  values = ["npz:/a b/c.npz", "npz:../d.npz"]
  axes = {"data.name": values}
  names = [cell.name for cell in sweep.plan(given(vary=axes)).cells]
  assert names == ["name=npz__ab_c.npz", "name=npz_.._d.npz"]


METHODS_OF = {"a": "splitgp", "b": "local"}


@pytest.mark.parametrize(
  ("vary", "more", "words"),
  [
    ({"optimiser.lr": (1,)}, [], "did you mean 'optimizer.lr'"),
    ({"optimizer.lrs": (1,)}, [], "did you mean 'optimizer.lr'"),
    ({"optimizer.lr": (0.1, "x")}, [], "optimizer.lr='x'"),
    ({"optimizer.lr": (0.1, 0.1)}, [], "sweep.optimizer.lr: 0.1 occurs twice"),
    ({"optimizer.lr": ()}, [], "sweep.optimizer.lr=() must be values"),
    ({"seed": (0, -1)}, [], "sweep.seed="),
    ({"seed": (True,)}, [], "sweep.seed="),
    ({"methods.c.lam": (0.1,)}, [], "did you mean 'methods.a.lam'"),
    ({"methods.a": (0.1,)}, [], "sweep: unknown field 'methods.a'"),
    ({"methods.a.lam.x": (0.1,)}, [], "did you mean 'methods.a.lam'"),
    ({"methods.a.lamb": (0.1,)}, [], "unknown option 'lamb'"),
    ({"method": ("local",)}, [], "several methods already"),
    ({}, ["optimizer.lr"], "FIELD=VALUE"),
    ({}, ["=1"], "FIELD=VALUE"),
    ({}, ["optimizer.lr="], "FIELD=VALUE"),
    (
      {"data.name": ("npz:a:b", "npz:a/b")},
      [],
      "two combinations have the folder",
    ),
    ({"title": ("a", "b")}, [], "sweep.title: cannot be swept"),
    ({}, ["paper=a,b"], "sweep.paper: cannot be swept"),
    ({}, ["scale=small,paper"], "sweep.scale: cannot be swept"),
    ({}, ["lam=0.2,0.5"], "'lam'; did you mean 'methods.a.lam'"),
    ({}, ["rho=0.2,0.5"], "'rho'; did you mean 'eval.rhos'"),
    ({}, ["rhos=(0.2,)"], "'rhos'; did you mean 'eval.rhos'"),
    ({}, ["nonsense=1"], "sweep: unknown field 'nonsense'"),
    ({"seed": (2**31,)}, [], "sweep.seed=2147483648 must be a whole number"),
    ({}, ["seed=1,1"], "sweep.seed: 1 occurs twice"),
    ({}, ["rounds=1", "rounds=2"], "--sweep=rounds: given twice"),
    ({}, ["optimizer.lr=0.1,,1"], "an empty value: remove a comma"),
    ({}, ["optimizer.lr=0.1,abc"], "optimizer.lr='abc' must be a number"),
    ({}, ["data.partitoin.k=1"], "did you mean 'data.partition.k'"),
  ],
)
def test_an_invalid_sweep_is_one_line(vary, more, words):
  with pytest.raises(UserError) as error:
    sweep.plan(given(vary=vary, **METHODS_OF), more)
  message = str(error.value)
  assert words in message and len(message.splitlines()) == 1


def test_a_field_both_swept_and_overridden_is_refused():
  tree = given(vary={"optimizer.lr": (0.1, 0.2)}, **METHODS_OF)
  for more in ((), ["optimizer.lr=0.3,0.4"]):
    with pytest.raises(UserError, match="lr: the field is swept: give its"):
      sweep.plan(tree, more, {"optimizer.lr": 0.5})
  assert sweep.plan(tree, (), {"rounds": 2}).cells


def test_changes_of_a_paper_s_setting_are_recorded():
  overridden = {
    "rounds": 2,
    "tensorboard": False,
    "system.devices": 1,
    "eval.every": 5,
    "methods.a.lam": 0.3,
    "seed": 3,
  }
  tree = given(**METHODS_OF)
  (cell,) = sweep.plan(tree, (), overridden).cells
  assert cell.config.changed == ()  # beside no paper
  (cell,) = sweep.plan(
    {**tree, "paper": "HARMONY Table 2"}, (), overridden
  ).cells
  assert cell.config.changed == ("rounds=2", "methods.a.lam=0.3")


NAMES = [
  ("eval.shift", SHIFTS, "global", "ood='fill'"),
  ("data.partition", PARTITIONS, "dirichlet", "k=1"),
  ("data.domain", DOMAINS, "drawn", "k=1"),
  ("backbone", BACKBONES, "vgg11", "length=3"),
  ("fleet.allocation", ALLOCATIONS, "dfl", "k=1"),
  ("pace", PACES, "deadline", "k=1"),
  ("methods.a", METHODS, "local", "lam=0.5"),
  ("method", METHODS, "local", "inner_steps=2"),
  ("eval.attacks.x", ATTACKS, "reconstruction", "k=1"),
]
"""A field with a name, another name, and an option that it lacks."""


def draft(path):
  c = tiny.tiny(**({"a": "splitgp"} if path == "methods.a" else {}))
  if path.startswith("eval.attacks"):
    c.eval.attacks = {"x": splitjax.spec(ATTACKS, "distance_correlation")}
  return c


def at(config, path):
  """The Spec of a config; `method` and swept methods are its only one."""
  if path.startswith("method"):
    return next(iter(config.methods.values()))
  for word in path.split("."):
    is_key = isinstance(config, dict)
    config = config[word] if is_key else getattr(config, word)
  return config


def by_flags(path, name, more=""):
  given = {f"{path}.{k}": v for k, _, v in [more.partition("=")] if k}
  (cell,) = sweep.plan(draft(path), (), {**given, f"{path}.name": name}).cells
  return at(cell.config, path)


def by_sweep(path, name, more=""):
  given = {f"{path}.{k}": v for k, _, v in [more.partition("=")] if k}
  (cell,) = sweep.plan(draft(path), [f"{path}.name={name}"], given).cells
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
  spec = choose(path, name)
  known = options(registry[name])
  assert spec.name == name
  assert spec.options == {key: standard for key, (_, standard) in known.items()}
  with pytest.raises(UserError, match="unknown option") as error:
    choose(path, name, more)
  message = str(error.value)
  assert len(message.splitlines()) == 1 and more.partition("=")[0] in message
  assert name in message


def test_options_come_with_their_name_in_any_order():
  flags = {"data.partition.alpha": "0.7", "data.partition.name": "dirichlet"}
  for given in (flags, dict(reversed(flags.items()))):
    (cell,) = sweep.plan(tiny.tiny(), (), given).cells
    assert cell.config.data.partition.options["alpha"] == 0.7
  c = tiny.tiny()
  with pytest.raises(UserError, match="set another name before its options"):
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


def test_swept_names_keep_what_the_config_says_of_its_own():
  c = tiny.tiny()
  own = Config.from_dict(c).data.partition
  first, second = sweep.plan(c, ["data.partition.name=shard,dirichlet"]).cells
  assert first.config.data.partition == own
  # Cells of a grid know each other's config, whichever is started again.
  assert second.at(first.values) == first.config
  c.method.inner_steps = 4
  (cell,) = sweep.plan(c, ["method=harmony,fedavg"]).cells
  assert cell.config.methods["harmony"].options["inner_steps"] == 4


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
    (cell,) = sweep.plan(tiny.tiny(), *given).cells
    assert functools.reduce(getattr, path.split("."), cell.config) is None


@pytest.mark.parametrize(
  ("path", "text", "value"),
  [
    ("title", "None", "None"),
    ("title", "2024", "2024"),
    ("data.dir", "2024", "2024"),
    ("rounds", "3", 3),
    ("optimizer.lr", "1e-3", 1e-3),
    ("eval.rhos", "0.5", (0.5,)),
    ("eval.rhos", "0,0.5", (0.0, 0.5)),
    ("eval.rhos", "[0, 0.5]", (0.0, 0.5)),
    ("tensorboard", "false", False),
    ("tensorboard", "True", True),
    ("order.turn", "epoch", "epoch"),
    ("order.turn", "3", 3),
    ("eval.shift", "{'name': 'global'}", Spec("global", {})),
    ("eval.attacks", "None", {}),
  ],
)
def test_a_text_is_read_by_the_type_of_its_field(path, text, value):
  (cell,) = sweep.plan(tiny.tiny(), (), {path: text}).cells
  assert functools.reduce(getattr, path.split("."), cell.config) == value


@pytest.mark.parametrize(
  ("path", "text"),
  [
    ("rounds", "None"),
    ("rounds", "1.5"),
    ("optimizer.lr", "True"),
    ("optimizer.lr", "10**9"),
    ("eval.rhos", "a"),
    ("tensorboard", "3"),
    ("order.name", "None"),
  ],
)
def test_a_text_of_another_type_is_one_line(path, text):
  with pytest.raises(UserError, match=rf"^{path}=.* must be ") as error:
    sweep.plan(tiny.tiny(), (), {path: text})
  assert len(str(error.value).splitlines()) == 1


def test_an_unknown_method():
  with pytest.raises(UserError, match="sweep.method.name: unknown name 'x'"):
    sweep.plan(given(), ["method=x"])


def test_the_command_line_replaces_the_config_s_values():
  plan = sweep.plan(given(vary={"optimizer.lr": (0.5,)}), ["optimizer.lr=0.1"])
  assert [cell.name for cell in plan.cells] == ["lr=0.1"]


def test_an_option_named_by_its_last_word_alone():
  with pytest.raises(UserError, match="did you mean 'method.inner_steps'"):
    sweep.plan(given(), ["inner_steps=3,5"])
