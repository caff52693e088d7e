"""A config: its fields, their values from Python, and what it refuses."""

import copy
import dataclasses
import inspect
import json
import pickle
import re
from pathlib import Path
from typing import get_args

import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from refusals import refused

import splitjax
from splitjax import (
  BACKBONES,
  METHODS,
  PARTITIONS,
  SHIFTS,
  Config,
  UserError,
  experiment,
)
from splitjax.config import significant
from splitjax.config.config import (
  BOOKKEEPING,
  FaultsConfig,
  Rows,
  paths,
  slots,
  value_of,
  within,
)
from splitjax.engine import Faults
from splitjax.fields import Text
from splitjax.models.network import Draws
from splitjax.wire import Form

ROWS = [
  ({"rounds": 2**31}, "rounds"),
  ({"rounds": True}, "rounds"),
  ({"optimizer.lr": float("nan")}, "optimizer.lr"),
  ({"fleet.memory": (5.0, 1.0)}, "fleet.memory"),
  ({"eval.rhos": ()}, "eval.rhos"),
  ({"eval.thresholds": np.array([[1], [2]])}, "eval.thresholds"),
  ({"eval.shift": "out_of_client", "eval.holdout": 0.1}, "eval.holdout"),
  ({"eval.threshold_rule": "fixed"}, "eval.threshold_rule"),
  ({"eval.threshold_rule": "calibrated"}, "eval.threshold_rule"),
  ({"eval.holdout": 1.0}, "eval.holdout"),
  ({"eval.inside": 3, "order.name": "cyclic"}, "eval.inside=3"),
  ({"eval.metrics": "ec"}, "eval.metrics.ec"),
  ({"eval.metrics": ("ece", "ece")}, "eval.metrics"),
  ({"eval.metrics": "e=ece(bins=0)"}, "eval.metrics.e"),
  ({"eval.metrics": "accuracy=ece"}, "eval.metrics.accuracy"),
  ({"eval.metrics": 3}, "eval.metrics"),
  ({"methods": {}}, "methods"),
  ({"methods": {"a": "harmony", "b": "harmony(label='a+FT')"}}, "methods"),
  ({"methods": {"a": "harmony", "b": "harmony(label=a)"}}, "methods"),
  ({"methods": {1: "local"}}, "methods"),
  ({"methods": {"a" * 101: "local"}}, "methods"),
  ({"data.name": "mnst"}, "data.name"),
  ({"data.name": "npz:/nowhere.npz"}, "data.name"),
  ({"data.augment": "crop,flip"}, "data.augment"),
  ({"data.domains": ("rotatoin",)}, "data.domains"),
  ({"eval.domains": ("rotation 3",), "eval.shift": "local"}, "eval.domains"),
  ({"data.train_samples": 9}, "data.train_samples"),
  ({"data.pool": "all"}, "eval.shift"),
  ({"data.partition.num_shards": 11}, "data.partition.num_shards"),
  ({"backbone.depths": (1, 3)}, "backbone.depths"),
  ({"num_clients": 10**6}, "num_clients"),
  ({"participants_per_round": 99}, "participants_per_round"),
  ({"batch_norm": np.array(["average", "b"])}, "batch_norm"),
  ({"seed": 10**5000}, "seed"),
  ({"title": "a\nb"}, "title"),
  ({"paper": "SplitGP table II"}, "paper"),
  ({"system.devices": 10**6}, "system.devices"),
  ({"system.client_power": (1.0,)}, "system.client_power"),
  ({"sweep": {"rounds": (1, 2)}}, "config"),
]
"""Fields of the tiny run that no command line of test_commands has wrong, and
what the error begins with."""


@pytest.mark.parametrize(("changes", "field"), ROWS)
def test_a_mistake_is_one_line_that_begins_with_its_field(changes, field):
  with refused(field):
    c = tiny.tiny()
    splitjax.config.assign(c, changes)
    experiment.build(c)


OTHERS = """roundz=rounds learning_rate=optimizer.lr optimiser.lr=optimizer.lr
optimizer.learning_rate=optimizer.lr lr=optimizer.lr wd=optimizer.weight_decay
model=backbone dataset=data.name alpha=data.partition=dirichlet
fraction_fit=participants_per_round local_bs=batch_size epochs=local_epochs
gpu=system.devices fedavgm=mean_optimizer.name method=methods xyzzy=""".split()
"""What somebody types, also from another library, and what is meant."""


@pytest.mark.parametrize("case", OTHERS)
def test_another_librarys_field_is_answered_with_ours(case):
  path, _, suggested = case.partition("=")
  with refused(path) as error:
    splitjax.config.assign(splitjax.default(), {path: 1})
  _, _, suggestion = str(error.value).partition("did you mean ")
  assert suggestion.startswith(suggested)
  assert bool(suggested) == bool(suggestion)


def test_an_unknown_field_is_an_error_where_it_is_set_or_read():
  c = splitjax.default()
  for group, name in ((c, "roundz"), (c.optimizer, "rate"), (c.backbone, "z")):
    with pytest.raises(UserError):
      setattr(group, name, 1)
    with pytest.raises(UserError):
      getattr(group, name)
    assert not hasattr(group, name)


@pytest.mark.parametrize(
  ("path", "value", "plain"),
  [
    ("rounds", np.int64(3), 3),
    ("optimizer.lr", jnp.float32(0.5), 0.5),
    ("optimizer.lr", np.float32(0.1), 0.1),
    ("optimizer.lr", np.float16(0.1), 0.1),
    ("optimizer.lr", 1, 1.0),
    ("tensorboard", np.bool_(False), False),
    ("optimizer.name", np.str_("adam"), "adam"),
    ("eval.rhos", [np.float16(0.25), 1], (0.25, 1.0)),
    ("eval.rhos", 0.5, (0.5,)),
    ("data.dir", Path("a/b"), "a/b"),
    ("backbone.depths", range(1, 3), (1, 2)),
    ("data.partition.k", np.int32(2), 2),
    ("checkpoint.every", "auto", "auto"),
  ],
)
def test_a_value_gets_the_type_of_its_field(path, value, plain):
  c = tiny.tiny()
  group, _, name = path.rpartition(".")
  setattr(value_of(c, group), name, value)
  found = value_of(Config.from_dict(c), path)
  assert found == plain and type(found) is type(plain)


def test_what_other_packages_define_is_what_the_config_takes():
  names = {field.name for field in dataclasses.fields(Faults)}
  assert names == set(slots(FaultsConfig))
  form, _ = get_args(slots(Rows)["form"].hint)
  assert get_args(form) == get_args(Form)
  assert get_args(slots(Config)["init"].hint) == get_args(Draws)


# Names with options.


def test_every_option_of_a_factory_is_in_the_defaults():
  harmony = splitjax.spec(METHODS, "harmony")
  assert harmony.inner_steps == 3 and harmony.form == "float16"
  # What a partial binds is the method, not an option.
  assert "finetune" not in splitjax.spec(METHODS, "fedavg_ft").options
  assert "finetune" in splitjax.spec(METHODS, "fedavg").options


def test_a_spec_in_a_config_is_a_copy():
  mine = splitjax.spec(METHODS, "splitgp", lam=0.3)
  c = tiny.tiny()
  splitjax.compare(c, {"a": mine, "b": mine})
  c.methods["a"].lam = 0.9
  assert (mine.lam, c.methods["b"].lam) == (0.3, 0.3)
  c.methods = {**c.methods, "c": splitjax.spec(METHODS, "local")}
  c.methods["d"] = splitjax.spec(METHODS, "fedavg")
  assert list(Config.from_dict(c).methods) == ["a", "b", "c", "d"]
  # What lies under another registry is no name of this field.
  with refused("backbone"):
    c.backbone = splitjax.spec(SHIFTS, "global")


# Runs.


def test_fields_without_effect_make_no_other_run():
  plain = significant(tiny.resolved().to_dict())
  for path, value, same in (
    ("system.devices", 2, True),
    ("paper", "HARMONY Table 2", True),
    ("checkpoint.every", 7, True),
    ("rounds", 3, False),
    ("eval.every", 2, False),
    ("seed", 1, False),
  ):
    c = tiny.tiny()
    splitjax.config.assign(c, {path: value})
    assert (significant(Config.from_dict(c).to_dict()) == plain) == same


def test_every_field_is_documented():
  groups = [Config]
  for cls in groups:
    source = inspect.getsource(cls)
    for name, slot in slots(cls).items():
      comment = rf"(#: .*\n  {name}: )|(\n  {name}: .*  #: )"
      assert re.search(comment, source), (cls, name)
      if slot.is_group:
        groups.append(slot.hint)
  for path in BOOKKEEPING:
    assert any(within(field, [path]) for field in paths()), path


def test_a_config_comes_back_from_its_dict():
  c = tiny.tiny(a="splitgp", b="local")
  c.data.partition, c.loss = "dirichlet(alpha=0.3)", "label_smoothing"
  c.eval.shift, c.eval.metrics = "local", "ece, mine=ece(bins=5)"
  c.fleet.allocation = "supersfl"
  config = Config.from_dict(c)
  text = json.dumps(config.to_dict(), allow_nan=False)
  for again in (
    Config.from_dict(json.loads(text)),
    Config.from_dict(config),
    pickle.loads(pickle.dumps(config)),
    copy.deepcopy(config),
  ):
    assert again == config and again.to_dict() == config.to_dict()
    again.data.partition.name = "dominant_label"
    again.optimizer.lr = 9.0
    assert config.data.partition.name != "dominant_label"
    assert config.optimizer.lr != 9.0


def test_a_run_takes_one_config(tmp_path):
  c = tiny.tiny()
  assert experiment.build(c).config == experiment.build(c.to_dict()).config
  splitjax.vary(c, {"seed": (0, 1)})
  for wrong in (c, None, 3, {"config": c.to_dict(), "data": {}}):
    with refused("config"):
      splitjax.run(wrong, tmp_path)
  with refused("config"):
    splitjax.run_seeds(c, tmp_path, np.arange(2))
  with refused("--workdir"):
    splitjax.run(tiny.tiny(), "")
  for again in (splitjax.report_again, splitjax.evaluate_again):
    with refused("--workdir"):
      again("")


def test_another_name_takes_its_defaults_and_the_same_keeps_options():
  c = tiny.tiny(a="splitgp")
  method = c.method
  method.label, method.lam = "SplitGP", 0.3
  method.name = "splitgp"
  assert (method.label, method.lam) == ("SplitGP", 0.3)
  with refused("methods.a"):
    method.name = "splitg"
  assert method.lam == 0.3
  method.name = "local"
  local = splitjax.spec(METHODS, "local")
  assert (method.label, method.options) == ("", local.options)
  with refused("methods.a.lam"):
    method.lam = 1
  splitjax.compare(c, {"a": method, "b": method})
  with refused("methods"):
    c.method  # noqa: B018


def test_a_factory_of_ones_own(monkeypatch):
  def half(labels, num_clients, seed, *, share: float = 0.5): ...
  def needs(labels, num_clients, seed, *, k: int): ...
  def bare(labels, num_clients, seed, *, k=3): ...
  def hides(labels, num_clients, seed, *, name: str = ""): ...

  monkeypatch.setitem(PARTITIONS, "mine", half)
  c = tiny.tiny()
  c.data.partition = splitjax.spec(PARTITIONS, "mine", share=np.float32(0.1))
  assert Config.from_dict(c).data.partition.share == 0.1
  for wrong in (needs, bare, hides, 3):
    monkeypatch.setitem(PARTITIONS, "mine", wrong)
    with refused("mine=mine", "mine: "):
      splitjax.spec(PARTITIONS, "mine")


def test_networks_are_drawn_as_the_config_says():
  c = tiny.tiny()
  c.init = "torch"
  net = experiment.make_backbone(tiny.resolved(c), (8, 8, 1), 10)
  assert net.start == "torch"
  # This one has a distribution of its own.
  c.backbone = splitjax.spec(
    BACKBONES, "vit_s16", depths=(1,), width=1 / 32, length=5, resolution=32
  )
  with refused("init"):
    net = experiment.make_backbone(tiny.resolved(c), (32, 32, 3), 10)
    experiment.check_layers(tiny.resolved(c), net)


# Sweeps: lists of values become cells and seeds.


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
  plan = splitjax.config.plan(c)
  assert plan.seeds == (3, 4)
  names = [cell.name for cell in plan.cells]
  assert names == ["k=1,lr=0.1", "k=1,lr=0.2", "k=2,lr=0.1", "k=2,lr=0.2"]
  last = plan.cells[-1]
  assert last.values == {"data.partition.k": 2, "optimizer.lr": 0.2}
  assert last.config.data.partition.k == 2
  assert last.config.optimizer.lr == 0.2
  assert plan.cells[0].config.optimizer.lr == 0.1
  assert c.sweep and not last.config.sweep


def test_values_in_python_are_several_and_differ():
  for values in ((0.1, 0.1), (), 0.1):
    c = draft()
    c.sweep = {"optimizer.lr": values}
    with refused("sweep.optimizer.lr"):
      splitjax.config.plan(c)


def test_a_value_of_a_cell_is_refused_with_the_cell():
  for text, field in (
    ("optimizer.lr=0.1,abc", "lr=abc: optimizer.lr"),
    ("methods.a.lamb=0.1", "lamb=0.1: methods.a.lamb"),
  ):
    with refused(field):
      splitjax.config.plan(draft(a="splitgp"), [text])


def test_a_field_both_swept_and_overridden_is_refused():
  c = draft(vary={"optimizer.lr": (0.1, 0.2)}, a="splitgp", b="local")
  for swept in ((), ["optimizer.lr=0.3,0.4"]):
    with refused("--config.optimizer.lr"):
      splitjax.config.plan(c, swept, {"optimizer.lr": 0.5})
  assert splitjax.config.plan(c, (), {"rounds": 2}).cells


def test_changes_of_a_paper_s_setting_are_recorded():
  c = draft(a="splitgp", b="local")
  overridden = {"rounds": 2, "system.devices": 1, "methods.a.lam": 0.3}
  (cell,) = splitjax.config.plan(c, (), overridden).cells
  assert cell.config.changed == ()  # beside no paper
  c.paper = "HARMONY Table 2"
  (cell,) = splitjax.config.plan(c, (), overridden).cells
  assert cell.config.changed == ("rounds=2", "methods.a.lam=0.3")


def test_names_of_methods_replace_those_of_a_config():
  c = tiny.tiny(few="splitgp", harmony="harmony", local="local")
  c.methods["few"].lam = 0.7
  values = {"methods.few.gamma": Text("0.4"), "methods": Text("fedavg,few")}
  made = splitjax.config.plan(c, (), values).cells[0].config
  assert list(made.methods) == ["fedavg", "few"]
  assert str(made.methods["few"]) == "splitgp(lam=0.7, gamma=0.4)"
  made = (
    splitjax.config.plan(c, (), {"methods": Text("fedavg")}).cells[0].config
  )
  assert list(made.methods) == ["fedavg"] and len(c.methods) == 3


def test_fields_that_end_alike_keep_their_names():
  vary = {"backbone.width": (4,), "eval.every": (1,), "checkpoint.every": (1,)}
  (cell,) = splitjax.config.plan(draft(vary=vary), ["backbone.width=6"]).cells
  assert cell.name == "width=6,eval.every=1,checkpoint.every=1"
