"""Sweeps: a config with lists of values becomes runs and seeds."""

import copy

import numpy as np
import pytest
import tiny
from refusals import refused

import splitjax
from splitjax import config
from splitjax.fields import Text


def draft(*, vary=None, **methods):
  c = tiny.tiny(**methods)
  if vary:
    splitjax.vary(c, vary)
  return c


def test_every_combination_is_a_cell():
  vary = {
    "data.partition.k": (1, 2),
    "optimizer.lr": (0.1, np.float32(0.2)),
    "seed": np.array((3, 4)),
  }
  c = draft(vary=vary)
  plan = config.plan(c)
  assert plan.seeds == (3, 4)
  names = [cell.name for cell in plan.cells]
  assert names == ["k=1,lr=0.1", "k=1,lr=0.2", "k=2,lr=0.1", "k=2,lr=0.2"]
  last = plan.cells[-1]
  assert last.values == {"data.partition.k": 2, "optimizer.lr": 0.2}
  assert last.config.data.partition.k == 2
  assert last.config.optimizer.lr == 0.2
  assert plan.cells[0].config.optimizer.lr == 0.1
  assert c.sweep and not last.config.sweep


TYPED = """
optimizer.lr=0.1,1 -> lr=0.1 lr=1.0
backbone.depths=(1,2),(2,) -> depths=_1_2_ depths=_2__
batch_norm=average,local -> batch_norm=average batch_norm=local
data.train_samples=None,80 -> train_samples=None train_samples=80
data.partition=shard(k=1),iid -> partition=shard_k_1_ partition=iid
data.partition.name=shard,iid -> name=shard name=iid
methods=local,a=splitgp(lam=0.3) -> methods=local methods=a_splitgp_lam_0.3_
methods.harmony.inner_steps=1,3 -> inner_steps=1 inner_steps=3
data.name=npz:a b/c.npz,npz:../d.npz -> name=npz_ab_c.npz name=npz_.._d.npz
""".strip().splitlines()
"""What the command line sweeps -> names of the cells."""


@pytest.mark.parametrize("line", TYPED)
def test_the_command_line_gives_values(line):
  text, _, names = line.partition(" -> ")
  cells = config.plan(draft(), [text]).cells
  assert [cell.name for cell in cells] == names.split()
  # A cell is made again from the values that grid.json keeps.
  for cell in cells:
    again = copy.deepcopy(cells[0].config)
    splitjax.config.assign(again, cell.values)
    assert again == cell.config


METHODS_OF = {"a": "splitgp", "b": "local"}


INVALID = """
optimizer.lrs=1 -> lrs=1: optimizer.lrs
seed=2147483648 -> sweep.seed
methods.c.lam=0.1 -> lam=0.1: methods.c.lam
methods.a.lamb=0.1 -> lamb=0.1: methods.a.lamb
method=local -> method=local: method
data.name=npz:a:b,npz:a/b -> sweep
lam=0.2,0.5 -> lam=0.2: lam
optimizer.lr=0.1,abc -> lr=abc: optimizer.lr
optimizer.lr=0.1,0.10 -> sweep
rounds=1,1 -> sweep.rounds
""".strip().splitlines()


@pytest.mark.parametrize("line", INVALID)
def test_an_invalid_sweep_is_one_line(line):
  text, _, field = line.partition(" -> ")
  with refused(field):
    config.plan(draft(**METHODS_OF), [text])


def test_values_in_python_are_several_and_differ():
  for values in ((0.1, 0.1), (), 0.1):
    c = draft()
    c.sweep = {"optimizer.lr": values}
    with refused("sweep.optimizer.lr"):
      config.plan(c)


def test_a_field_both_swept_and_overridden_is_refused():
  c = draft(vary={"optimizer.lr": (0.1, 0.2)}, **METHODS_OF)
  for swept in ((), ["optimizer.lr=0.3,0.4"]):
    with refused("--config.optimizer.lr"):
      config.plan(c, swept, {"optimizer.lr": 0.5})
  assert config.plan(c, (), {"rounds": 2}).cells


def test_changes_of_a_paper_s_setting_are_recorded():
  c = draft(**METHODS_OF)
  overridden = {"rounds": 2, "system.devices": 1, "methods.a.lam": 0.3}
  (cell,) = config.plan(c, (), overridden).cells
  assert cell.config.changed == ()  # beside no paper
  c.paper = "HARMONY Table 2"
  (cell,) = config.plan(c, (), overridden).cells
  assert cell.config.changed == ("rounds=2", "methods.a.lam=0.3")


def test_names_of_methods_replace_those_of_a_config():
  c = tiny.tiny(few="splitgp", harmony="harmony", local="local")
  c.methods["few"].lam = 0.7
  values = {"methods.few.gamma": Text("0.4"), "methods": Text("fedavg,few")}
  made = config.plan(c, (), values).cells[0].config
  assert list(made.methods) == ["fedavg", "few"]
  assert str(made.methods["few"]) == "splitgp(lam=0.7, gamma=0.4)"
  made = config.plan(c, (), {"methods": Text("fedavg")}).cells[0].config
  assert list(made.methods) == ["fedavg"] and len(c.methods) == 3


def test_a_name_may_follow_its_options():
  values = {"data.partition.alpha": 0.3, "data.partition.name": "dirichlet"}
  made = config.plan(draft(), (), values).cells[0].config
  assert str(made.data.partition) == "dirichlet(alpha=0.3)"


def test_fields_that_end_alike_keep_their_names():
  vary = {"backbone.width": (4,), "eval.every": (1,), "checkpoint.every": (1,)}
  (cell,) = config.plan(draft(vary=vary), ["backbone.width=6"]).cells
  assert cell.name == "width=6,eval.every=1,checkpoint.every=1"
