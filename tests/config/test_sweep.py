"""Sweeps: a config with lists of values becomes runs and seeds."""

import pytest
import tiny
from refusals import refused

import splitjax
from splitjax import (
  Config,
  config,
)


def given(*, vary=None, **methods):
  c = tiny.tiny(**methods)
  if vary:
    splitjax.vary(c, vary)
  return c.to_dict()


def test_nothing_swept_is_one_run():
  plan = config.plan(given())
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
  plan = config.plan(given(vary=vary))
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
  (first, _) = config.plan(given(vary=vary)).cells
  assert first.name == "width=4,eval.every=1,checkpoint.every=1"


def test_an_option_of_a_method_makes_cells():
  methods = {"a": "harmony", "b": "splitgp"}
  vary = {"methods.b.lam": (0.2, 0.9), "data.partition.k": (1, 2)}
  cells = config.plan(given(vary=vary, **methods)).cells
  assert [cell.name for cell in cells[:2]] == ["lam=0.2,k=1", "lam=0.2,k=2"]
  options = [cell.config.methods["b"].options["lam"] for cell in cells]
  assert options == [0.2, 0.2, 0.9, 0.9]
  assert {tuple(cell.config.methods) for cell in cells} == {("a", "b")}


def test_the_one_method_of_a_config():
  cells = config.plan(given(), ["method=local,fedavg"]).cells
  names = [(cell.name, *cell.config.methods) for cell in cells]
  assert names == [("method=local", "local"), ("method=fedavg", "fedavg")]
  cells = config.plan(given(), ["method.inner_steps=3,5"]).cells
  found = [cell.config.methods["harmony"] for cell in cells]
  assert [spec.options["inner_steps"] for spec in found] == [3, 5]
  with refused("method=x"):
    config.plan(given(), ["method=x"])
  with refused("inner_steps"):
    config.plan(given(), ["inner_steps=3,5"])


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
  cells = config.plan(given(), [text]).cells
  assert [cell.values[path] for cell in cells] == values


def test_cell_names_are_valid_folder_names():
  values = ["npz:/a b/c.npz", "npz:../d.npz"]
  axes = {"data.name": values}
  names = [cell.name for cell in config.plan(given(vary=axes)).cells]
  assert names == ["name=npz__ab_c.npz", "name=npz_.._d.npz"]


METHODS_OF = {"a": "splitgp", "b": "local"}


@pytest.mark.parametrize(
  ("vary", "more", "field"),
  [
    ({"optimizer.lrs": (1,)}, [], "lrs=1: sweep"),
    ({"optimizer.lr": (0.1, 0.1)}, [], "sweep.optimizer.lr"),
    ({"optimizer.lr": ()}, [], "sweep.optimizer.lr"),
    ({"seed": (2**31,)}, [], "sweep.seed"),
    ({"methods.c.lam": (0.1,)}, [], "lam=0.1: sweep"),
    ({"methods.a.lamb": (0.1,)}, [], "lamb=0.1: methods.a (splitgp)"),
    ({"method": ("local",)}, [], "method=local"),
    ({"data.name": ("npz:a:b", "npz:a/b")}, [], "sweep"),
    ({"title": ("a", "b")}, [], "sweep.title"),
    ({"optimizer.lr": range(1, 10_001)}, [], "sweep"),
    ({}, ["optimizer.lr"], "--sweep=optimizer.lr"),
    ({}, ["lam=0.2,0.5"], "lam"),
    ({}, ["rounds=1", "rounds=2"], "--sweep=rounds"),
    ({}, ["optimizer.lr=0.1,,1"], "--sweep=optimizer.lr"),
    ({}, ["optimizer.lr=0.1,abc"], "lr=abc: optimizer.lr"),
  ],
)
def test_an_invalid_sweep_is_one_line(vary, more, field):
  with refused(field):
    config.plan(given(vary=vary, **METHODS_OF), more)


def test_a_field_both_swept_and_overridden_is_refused():
  tree = given(vary={"optimizer.lr": (0.1, 0.2)}, **METHODS_OF)
  for more in ((), ["optimizer.lr=0.3,0.4"]):
    with refused("--config.optimizer.lr"):
      config.plan(tree, more, {"optimizer.lr": 0.5})
  assert config.plan(tree, (), {"rounds": 2}).cells


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
  (cell,) = config.plan(tree, (), overridden).cells
  assert cell.config.changed == ()  # beside no paper
  (cell,) = config.plan(
    {**tree, "paper": "HARMONY Table 2"}, (), overridden
  ).cells
  assert cell.config.changed == ("rounds=2", "methods.a.lam=0.3")


def test_swept_names_keep_what_the_config_says_of_its_own():
  c = tiny.tiny()
  own = Config.from_dict(c).data.partition
  first, second = config.plan(c, ["data.partition.name=shard,dirichlet"]).cells
  assert first.config.data.partition == own
  # Cells of a grid know each other's config, whichever is started again.
  assert second.at(first.values) == first.config
  c.method.inner_steps = 4
  first, _ = config.plan(c, ["method.name=harmony,fedavg"]).cells
  assert first.config.methods["harmony"].options["inner_steps"] == 4


def test_the_command_line_replaces_the_config_s_values():
  plan = config.plan(given(vary={"optimizer.lr": (0.5,)}), ["optimizer.lr=0.1"])
  assert [cell.name for cell in plan.cells] == ["lr=0.1"]
