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
  LOSSES,
  METHODS,
  PARTITIONS,
  SHIFTS,
  Config,
  UserError,
  experiment,
)
from splitjax.config import significant
from splitjax.config.config import BOOKKEEPING, FaultsConfig, Rows
from splitjax.config.tree import FieldGroup, paths, slots, value_of
from splitjax.engine import Faults
from splitjax.models.network import Draws
from splitjax.options import Spec
from splitjax.wire import Form

ROWS = [
  ({"rounds": 0}, "rounds"),
  ({"rounds": 2.0}, "rounds"),
  ({"rounds": 2**31}, "rounds"),
  ({"rounds": True}, "rounds"),
  ({"optimizer.lr": float("nan")}, "optimizer.lr"),
  ({"optimizer.lr": "0.1"}, "optimizer.lr"),
  ({"fleet.memory": (5.0, 1.0)}, "fleet.memory"),
  ({"eval.rhos": ()}, "eval.rhos"),
  ({"eval.rhos": tuple(range(2000))}, "eval.rhos"),
  ({"eval.thresholds": np.array([[1], [2]])}, "eval.thresholds"),
  ({"eval.threshold_rule": "calibrated"}, "eval.threshold_rule"),
  ({"eval.shift": "out_of_client", "eval.holdout": 0.1}, "eval.holdout"),
  ({"eval.inside": 1}, "eval.inside"),
  ({"eval.inside": 3, "order.name": "cyclic"}, "eval.inside=3"),
  ({"eval.shift.name": "no"}, "eval.shift"),
  ({"methods": 3}, "methods"),
  ({"methods": {}}, "methods"),
  ({"methods.harmony.name": "harmoni"}, "methods.harmony"),
  ({"methods.harmony.gamma": 1.5}, "methods.harmony.gamma"),
  ({"methods": {"a": "harmony", "b": "harmony(label='a+FT')"}}, "methods"),
  ({"methods": {"a": "harmony", "b": "harmony(label=a)"}}, "methods"),
  ({"methods": {1: "local"}}, "methods"),
  ({"methods": {"a" * 101: "local"}}, "methods"),
  ({"data.name": "mnst"}, "data.name"),
  ({"data.name": "npz:"}, "data.name"),
  ({"data.name": "npz:/nowhere.npz"}, "data.name"),
  ({"data.augment": "crop,flip"}, "data.augment"),
  ({"data.domains": ("rotatoin",)}, "data.domains"),
  ({"data.train_samples": 9}, "data.train_samples"),
  ({"data.pool": "all"}, "eval.shift"),
  ({"data.partition": 3}, "data.partition"),
  ({"data.partition": {"k": 3}}, "data.partition"),
  ({"data.partition.num_shards": 11}, "data.partition.num_shards"),
  ({"backbone.depths": (1, 3)}, "backbone.depths"),
  ({"num_clients": 1}, "num_clients"),
  ({"num_clients": 10**6}, "num_clients"),
  ({"participants_per_round": 7}, "participants_per_round"),
  ({"batch_norm": np.array(["average", "b"])}, "batch_norm"),
  ({"seed": 10**5000}, "seed"),
  ({"title": "a\nb"}, "title"),
  ({"title": "\ud800"}, "title"),
  ({"paper": "SplitGP table II"}, "paper"),
  ({"system.devices": 10**6}, "system.devices"),
  ({"system.client_power": (1.0,)}, "system.client_power"),
  ({"sweep": {"rounds": (1, 2)}}, "config"),
  ({"x\ny": 3}, "x"),
  ({"": 3}, ":"),
]
"""Fields of the tiny run that no command line of test_commands has wrong, and
what the error begins with."""


@pytest.mark.parametrize(("changes", "field"), ROWS)
def test_a_mistake_is_one_line_that_begins_with_its_field(changes, field):
  with refused(field):
    c = tiny.tiny()
    splitjax.config.assign(c, changes)
    experiment.build(c)


@pytest.mark.parametrize(
  ("path", "suggested"),
  [
    ("roundz", "rounds"),
    ("learning_rate", "optimizer.lr"),
    ("optimizer.learning_rate", "optimizer.lr"),
    ("optimiser.lr", "optimizer.lr"),
    ("lr", "optimizer.lr"),
    ("wd", "optimizer.weight_decay"),
    ("model", "backbone"),
    ("dataset", "data.name"),
    ("alpha", "data.partition=dirichlet"),
    ("frac", "participants_per_round"),
    ("fraction_fit", "participants_per_round"),
    ("join_ratio", "participants_per_round"),
    ("local_bs", "batch_size"),
    ("epochs", "local_epochs"),
    ("gpu", "system.devices"),
    ("fedavgm", "mean_optimizer.name"),
    ("method", "methods"),
    ("xyzzy", ""),
  ],
)
def test_another_librarys_field_is_answered_with_ours(path, suggested):
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


def test_a_config_is_a_group_of_fields():
  whole = {"config": tiny.tiny().to_dict(), "data": {}}
  for source in (None, 3, "a", whole):
    with refused("config"):
      Config.from_dict(source)


@pytest.mark.parametrize(
  ("path", "value", "plain"),
  [
    ("rounds", np.int64(3), 3),
    ("optimizer.lr", jnp.float32(0.5), 0.5),
    ("optimizer.lr", np.float32(0.1), 0.1),
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
  *groups, name = path.split(".")
  setattr(value_of(c, ".".join(groups)) if groups else c, name, value)
  found = value_of(Config.from_dict(c), path)
  assert found == plain and type(found) is type(plain)
  assert (
    value_of(Config.from_dict(Config.from_dict(c).to_dict()), path) == plain
  )


def drafts():
  several = tiny.tiny(a="splitgp", b="local")
  several.data.partition, several.loss = (
    "dirichlet(alpha=0.3)",
    "label_smoothing",
  )
  several.eval.shift, several.eval.rhos = "local", None
  several.eval.metrics = "ece, few=ece(bins=5)"
  papers = tiny.tiny(a="supersfl")
  papers.data.partition, papers.fleet.allocation = "iid", "supersfl"
  return {"usual": tiny.tiny(), "several": several, "papers": papers}


@pytest.mark.parametrize("name", drafts())
def test_a_config_comes_back_from_its_dict(name):
  config = Config.from_dict(drafts()[name])
  text = json.dumps(config.to_dict(), allow_nan=False)
  for again in (
    Config.from_dict(json.loads(text)),
    Config.from_dict(config),
    pickle.loads(pickle.dumps(config)),
    copy.deepcopy(config),
  ):
    assert again == config and again.to_dict() == config.to_dict()
    assert again is not config
    again.data.partition.name = "dominant_label"
    again.optimizer.lr = 9.0
    assert config.data.partition.name != "dominant_label"
    assert config.optimizer.lr != 9.0


def test_fields_that_are_left_out_are_at_their_defaults():
  tree = tiny.resolved().to_dict()
  for path in paths():
    partial = copy.deepcopy(tree)
    group, _, name = path.rpartition(".")
    place = partial
    for word in group.split(".") if group else ():
      place = place[word]
    if path == "methods" or name not in place:
      continue
    del place[name]
    left = Config.from_dict(partial)
    assert value_of(left, path) == value_of(Config(), path)


def test_every_field_has_a_bound_or_a_reason_and_is_documented():
  """Group by group: each field has a comment."""

  def groups(cls):
    yield cls
    for slot in slots(cls).values():
      if isinstance(slot.hint, type) and issubclass(slot.hint, FieldGroup):
        yield from groups(slot.hint)

  for cls in groups(Config):
    source = inspect.getsource(cls)
    for name in slots(cls):
      comment = rf"(#: .*\n  {name}: )|(\n  {name}: .*  #: )"
      assert re.search(comment, source), (cls, name)
  known = set(paths())
  for path in BOOKKEEPING:
    assert path in known or any(f.startswith(f"{path}.") for f in known), path


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


def test_another_name_takes_its_defaults_and_the_same_keeps_options():
  c = tiny.tiny(a="splitgp")
  own = c.methods["a"]
  own.label, own.lam = "SplitGP", 0.3
  own.name = "splitgp"
  assert (own.label, own.lam) == ("SplitGP", 0.3)
  own.name = "local"
  assert (own.label, own.options) == (
    "",
    splitjax.spec(METHODS, "local").options,
  )
  c.data.partition.name = "dirichlet"
  c.data.partition.alpha = 0.3
  assert str(c.data.partition) == "dirichlet(alpha=0.3)"
  with refused("data.partition.k"):
    c.data.partition.k = 1
  with refused("data.partition"):
    c.data.partition.name = "dirichle"
  assert c.data.partition.alpha == 0.3


def test_a_text_is_a_name_or_a_call():
  c = tiny.tiny()
  c.data.partition = "iid"
  c.backbone = "cnn8(width=0.5, depths=(1, 2))"
  c.eval.metrics = "ece,few=ece(bins=5)"
  c.loss = "label_smoothing"
  made = Config.from_dict(c)
  assert made.data.partition == Spec(PARTITIONS, "iid")
  assert (made.backbone.width, made.backbone.depths) == (0.5, (1, 2))
  assert {k: m.options for k, m in made.eval.metrics.items()} == {
    "ece": {"bins": 15},
    "few": {"bins": 5},
  }
  assert made.loss.name == "label_smoothing"
  c.eval.metrics = None
  assert Config.from_dict(c).eval.metrics == {}


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


@pytest.mark.parametrize("label", ["option k of", "annotate", "Spec has"])
def test_a_factory_of_ones_own_must_have_readable_options(label, monkeypatch):
  def needs(labels, num_clients, seed, *, k: int): ...
  def bare(labels, num_clients, seed, *, k=3): ...
  def hides(labels, num_clients, seed, *, name: str = ""): ...

  cases = {"option k of": needs, "annotate": bare, "Spec has": hides}
  monkeypatch.setitem(PARTITIONS, "mine", cases[label])
  with refused("mine", "name=mine") as error:
    splitjax.spec(PARTITIONS, "mine")
  assert label in str(error.value)


def test_a_factory_of_ones_own_has_options(monkeypatch):
  def first_half(labels, num_clients, seed, *, share: float = 0.5): ...

  monkeypatch.setitem(PARTITIONS, "first_half", first_half)
  c = tiny.tiny()
  c.data.partition = splitjax.spec(
    PARTITIONS, "first_half", share=np.float32(0.1)
  )
  assert Config.from_dict(c).data.partition.share == 0.1
  monkeypatch.setitem(LOSSES, "none", 3)
  with refused("loss=none"):
    c.loss = "none"


# Runs.


def test_a_run_takes_what_a_config_file_returns(tmp_path):
  c = tiny.tiny()
  assert experiment.build(c).config == experiment.build(c.to_dict()).config
  splitjax.vary(c, {"seed": (0, 1)})
  for run in (
    lambda: splitjax.run(c, tmp_path),
    lambda: splitjax.run_seeds(c, tmp_path, np.arange(2)),
    lambda: splitjax.build(c),
  ):
    with refused("config"):
      run()
  with refused("config"):
    splitjax.run(3, tmp_path)
  for run in (splitjax.run, splitjax.report_again, splitjax.evaluate_again):
    with refused("--workdir"):
      run(*([tiny.tiny()] if run is splitjax.run else []), "")


@pytest.mark.parametrize(
  ("changes", "same"),
  [
    ({"system.devices": 2}, True),
    ({"paper": "HARMONY Table 2", "scale": "small"}, True),
    ({"system.clients_per_chunk": 3}, True),
    ({"checkpoint.every": 7}, True),
    ({"rounds": 3}, False),
    ({"eval.every": 2}, False),
    ({"seed": 1}, False),
  ],
)
def test_fields_without_effect_make_no_other_run(changes, same):
  one, two = tiny.resolved(), tiny.tiny()
  splitjax.config.assign(two, changes)
  two = Config.from_dict(two)
  equal = significant(one.to_dict()) == significant(two.to_dict())
  assert equal == same


def test_a_config_says_how_layers_are_drawn():
  for init in ("he", "torch"):
    config = tiny.resolved(tiny.changed(tiny.tiny(own="local"), init=init))
    assert experiment.make_backbone(config, (8, 8, 1), 10).start == init


def test_a_network_with_a_distribution_of_its_own_is_drawn_by_it():
  c = tiny.tiny()
  c.backbone = splitjax.spec(
    BACKBONES, "vit_s16", depths=(1,), width=1 / 32, length=5, resolution=32
  )
  c.init = "torch"
  facts = {"shape": (32, 32, 3), "classes": 10, "mean": (), "std": ()}
  with refused("init"):
    net = experiment.make_network(tiny.resolved(c), facts).backbone
    experiment.check_layers(tiny.resolved(c), net)


def test_methods_can_be_chosen_again():
  c = tiny.tiny(a="splitgp", b="local")
  c.headline = "b"
  splitjax.compare(c, {"a": c.methods["a"]})
  assert list(tiny.resolved(c).methods) == ["a"] and c.headline == ""
  assert c.method.name == "splitgp"
  splitjax.compare(c, {"a": c.method, "b": c.method})
  with refused("methods"):
    c.method  # noqa: B018
