"""A config is checked whole before anything is compiled."""

import dataclasses
import functools
import pickle
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from refusals import refused

import splitjax
from splitjax import BACKBONES, METHODS, PARTITIONS, Config, experiment, fields
from splitjax.config import plan, significant, with_values
from splitjax.fields import Effect


def given(**changes):
  """The dict of the tiny run with fields changed by dotted path ('__')."""
  return tiny.changed(tiny.tiny().to_dict(), **changes)


ROWS = [
  ({"rounds": 0}, "rounds"),
  ({"rounds": 2.0}, "rounds"),
  ({"rounds": 2**31}, "rounds"),
  ({"optimizer__lr": float("nan")}, "optimizer.lr"),
  ({"optimizer__momentum": 1.0}, "optimizer.momentum"),
  ({"eval__rhos": (0.2, 0.2)}, "eval.rhos"),
  ({"eval__thresholds": np.array([[1], [2]])}, "eval.thresholds"),
  ({"eval__shift__name": "no"}, "eval.shift.name"),
  ({"method": 3}, "method"),
  ({"method__name": "harmoni"}, "method.name"),
  ({"method__inner_step": 3}, "method (harmony)"),
  ({"method__gamma": 1.5}, "method.gamma"),
  ({"method__label": "A+FT"}, "methods"),
  ({"data__name": "mnst"}, "data.name"),
  ({"data__partition__num_shards": 11}, "data.partition.num_shards"),
  ({"backbone__depths": (1, 3)}, "backbone.depths"),
  ({"backbone__name": "vgg"}, "backbone.name"),
  ({"num_clients": 1}, "num_clients"),
  ({"participants_per_round": 7}, "participants_per_round"),
  ({"batch_norm": np.array(["average", "b"])}, "batch_norm"),
  ({"seed": 10**5000}, "seed"),
  ({"title": "a\nb"}, "title"),
  ({"paper": "SplitGP table II"}, "paper"),
  ({"system__client_power": (1.0,)}, "system.client_power"),
  ({"x\ny": 3}, "config"),
]


@pytest.mark.parametrize(("changes", "field"), ROWS)
def test_a_mistake_is_one_line_that_begins_with_its_field(changes, field):
  with refused(field):
    experiment.build(Config.from_dict(given(**changes)))


@pytest.mark.parametrize(
  "methods",
  [{1: {"name": "local"}}, {"a" * 101: {"name": "local"}}],
)
def test_keys_of_methods_are_identifiers(methods):
  tree = given()
  del tree["method"]
  with refused("methods"):
    Config.from_dict(tree | {"methods": methods})


def test_a_config_is_a_group_of_fields():
  with refused("config"):
    Config.from_dict(None)


def test_a_mistyped_name_comes_with_the_nearest():
  with refused("config") as error:
    Config.from_dict(given(roundz=3))
  assert "did you mean 'rounds'" in str(error.value)


def test_a_data_set_that_is_not_prepared_names_the_command(tmp_path):
  with refused("data.name") as error:
    experiment.build(given(data__name="fashion_mnist", data__dir=str(tmp_path)))
  assert "python -m splitjax.data prepare fashion_mnist" in str(error.value)


def test_methods_that_exclude_each_other():
  tree = given()
  tree["methods"] = {"a": tree["method"]}
  with refused("config"):
    Config.from_dict(tree)
  tree = tiny.tiny(a="splitgp", b="splitgp").to_dict()
  tree["methods"]["a"]["label"] = tree["methods"]["b"]["label"] = "same"
  with refused("methods"):
    Config.from_dict(tree)


def test_every_option_of_a_factory_is_in_the_defaults():
  harmony = splitjax.spec(METHODS, "harmony")
  assert harmony.inner_steps == 3 and harmony.form == "float16"
  # What a partial binds is the method, not an option.
  assert "finetune" not in splitjax.spec(METHODS, "fedavg_ft")
  assert "finetune" in splitjax.spec(METHODS, "fedavg")


def test_overrides_keep_their_kind():
  c = splitjax.default()
  c.participants_per_round = 10  # None by default
  c.data.partition.num_shards = "auto"  # a number by default
  c.eval.thresholds = (0.1, 0.2)
  out = Config.from_dict(c.to_dict())
  assert out.participants_per_round == 10
  assert out.data.partition.options["num_shards"] == "auto"
  assert out.eval.thresholds == (0.1, 0.2)


@pytest.mark.parametrize(
  ("path", "value", "plain"),
  [
    ("rounds", np.int64(3), 3),
    ("optimizer.lr", jnp.float32(0.5), 0.5),
    ("tensorboard", np.bool_(False), False),
    ("optimizer.name", np.str_("adam"), "adam"),
    ("eval.rhos", [np.float16(0.25), 1], (0.25, 1.0)),
  ],
)
def test_numbers_of_numpy_are_taken(path, value, plain):
  c = tiny.changed(tiny.tiny(), **{path.replace(".", "__"): value})
  for given in (c, c.to_dict()):
    found = functools.reduce(getattr, path.split("."), Config.from_dict(given))
    assert found == plain and type(found) is type(plain)
  if np.ndim(value) == 0:
    splitjax.vary(c, {path: np.array([value])})
    (cell,) = plan(c).cells
    assert cell.values in ({}, {path: plain})


def test_a_run_takes_what_a_config_file_returns(tmp_path):
  c = tiny.tiny()
  assert experiment.build(c).config == experiment.build(c.to_dict()).config
  assert Config.from_dict(tiny.resolved(c)) == tiny.resolved(c)
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


def test_every_field_of_config_has_a_default_in_the_config_dict():
  known = set(splitjax.default())
  fields = {f.name for f in dataclasses.fields(splitjax.config.Config)}
  assert fields - {"methods"} | {"method"} == known


@pytest.mark.parametrize(
  ("changes", "same"),
  [
    ({"system__devices": 2}, True),
    ({"paper": "HARMONY Table 2", "scale": "small"}, True),
    ({"system__clients_per_chunk": 3}, True),
    ({"checkpoint__every": 7}, True),
    ({"rounds": 3}, False),
    ({"eval__every": 2}, False),
    ({"seed": 1}, False),
  ],
)
def test_fields_without_effect_make_no_other_run(changes, same):
  one, two = Config.from_dict(given()), Config.from_dict(given(**changes))
  assert (experiment.unlike(one, two) is None) == same


def test_a_setting_leaves_numerics_out():
  tree = given(seed=3, eval__every=4)
  setting = significant(tree, Effect.SETTING)
  assert "seed" not in setting and "every" not in setting["eval"]
  assert setting == significant(given(), Effect.SETTING)


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


def test_a_text_is_a_name_with_its_defaults():
  c = tiny.tiny()
  c.data.partition = "iid"
  assert Config.from_dict(c).data.partition.name == "iid"
  fields = {"data.partition.alpha": "0.3", "data.partition": "dirichlet"}
  tree = with_values(tiny.tiny().to_dict(), fields)
  assert tree["data"]["partition"] == {"name": "dirichlet", "alpha": 0.3}
  with refused("eval.shift.name"):
    c.eval.shift.name = "no"
  with refused("eval.shift"):
    c.eval.shift.alpha = 1


@pytest.mark.parametrize(
  ("before", "fields", "bins"),
  [
    (None, {"eval.metrics": "ece,auroc", "eval.metrics.ece.bins": "9"}, 9),
    (("auroc", "ece"), {"eval.metrics.ece.bins": "9"}, 9),
    ({"ece": {"name": "auroc"}}, {"eval.metrics.ece.name": "ece"}, 15),
  ],
)
def test_options_of_metrics_are_set_like_those_of_methods(before, fields, bins):
  c = tiny.tiny()
  c.eval.metrics = before
  (cell,) = plan(c.to_dict(), (), fields).cells
  assert cell.config.eval.metrics["ece"].options == {"bins": bins}
  fields.pop("eval.metrics.ece.bins", None)
  swept = plan(c.to_dict(), ["eval.metrics.ece.bins=3,4"], fields)
  each = [cell.config.eval.metrics["ece"].options for cell in swept.cells]
  assert each == [{"bins": 3}, {"bins": 4}]


def test_options_of_a_metric_that_is_not_named():
  given = {"eval.metrics": "auroc", "eval.metrics.ece.bins": "9"}
  with refused("--config.eval.metrics.ece.bins"):
    plan(tiny.tiny().to_dict(), (), given)


def test_a_pickled_config_takes_names_alone():
  c = pickle.loads(pickle.dumps(tiny.tiny()))
  c.data.partition.name = "dirichlet"
  c.data.partition.alpha = 0.2
  chosen = Config.from_dict(c).data.partition
  assert (chosen.name, chosen.options["alpha"]) == ("dirichlet", 0.2)


def test_values_of_other_libraries_become_pythons():
  given = [np.array([0.1, 2], np.float32), range(1, 3), Path("a/b")]
  assert fields.native({"a": given}) == {"a": [(0.1, 2.0), (1, 2), "a/b"]}


def test_methods_can_be_chosen_again():
  c = tiny.tiny(a="splitgp", b="local")
  splitjax.compare(c, {"a": c.methods.a})
  assert list(tiny.resolved(c).methods) == ["a"]


def test_a_spec_checks_its_options():
  with refused("data.partition"):
    splitjax.spec(PARTITIONS, "shard", kk=3)
  c = tiny.tiny()
  c.data.partition = splitjax.spec(PARTITIONS, "shard", k=np.int32(2))
  assert Config.from_dict(c).data.partition.options["k"] == 2


def test_fields_that_are_left_out_are_at_their_defaults():
  config = tiny.resolved(tiny.tiny())
  tree, left_out = config.to_dict(), 0
  for group in ("eval", "wire", "privacy", "system", "faults", "optimizer"):
    kind = type(getattr(config, group))
    for field in dataclasses.fields(kind):
      partial = {**tree, group: dict(tree[group])}
      del partial[group][field.name]
      standard = getattr(kind(), field.name)
      new = getattr(Config.from_dict(partial), group)
      assert getattr(new, field.name) == standard, (group, field.name)
      left_out += 1
  assert left_out > 40
