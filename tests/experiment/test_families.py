"""Runs of families: configs, reports, export, resuming."""

import copy

import families_world as fw
import numpy as np
import pytest
import tiny
from runs import ROUNDS, config, same_run, stopped

import splitjax
from splitjax import Config, UserError
from splitjax.experiment import runner
from splitjax.experiment.describe import describe, description
from splitjax.experiment.setup import tasks
from splitjax.experiment.setup.network import make_backbone
from splitjax.methods.base import whole_network

pytestmark = pytest.mark.usefixtures("traced_once")

A, B = fw.FAMILIES["families"].values()
CNN = {"network": {"name": "cnn4", "depths": (1,)}}


def draft(**changes):
  return tiny.changed(tiny.tiny(own="splitgp"), **{**fw.FAMILIES, **changes})


def with_families(a=A, b=B, **changes):
  return draft(families={"a": copy.deepcopy(a), "b": b}, **changes)


@pytest.mark.parametrize(
  ("given", "words"),
  [
    (draft(families={"trunk": A}), "'trunk' names the blocks that all share"),
    (draft(families={"a b": A}), "must be an ASCII identifier"),
    (draft(families={}), "entry.width=5: there are no families"),
    (draft(backbone__depths=(1,)), "backbone.depths=(1,): with families"),
    (
      with_families({**A, "network": {**A["network"], "depths": (9,)}}),
      "families.a: network.depths=(9,): toy cannot be cut at 9",
    ),
    (with_families({**A, "blocks": 4}), "families.a: blocks=4: toy has 3"),
    (with_families({**A, "share": 0.01}), "none of the 6 clients"),
    (draft(entry__grid=2), "are no map, which entry.grid needs"),
    (draft(system__compute_dtype="bfloat16", families={"a": CNN}), None),
    (draft(batch_norm="local"), "does not normalise batches"),
    (draft(method="hydra", methods={}), "families: one server trains"),
    (draft(method="scaffold", methods={}), "families: its server keeps"),
    (draft(num_clients=2), "families.a: num_clients=1 is fewer than the 2"),
    (
      draft(
        entry__shared=False,
        mean_optimizer__name="fedadam",
        method="fedavg",
        methods={},
      ),
      "mean_optimizer.name needs one mean for all",
    ),
  ],
)
def test_what_does_not_fit_is_one_line(given, words):
  if words is None:
    tasks.build(Config.from_dict(given))
    return
  with pytest.raises(UserError) as error:
    tasks.build(Config.from_dict(given))
  assert words in str(error.value)
  assert "\n" not in str(error.value)


def test_families_are_dealt_by_share_and_seed_in_one_order():
  tree = config("splitgp", **fw.FAMILIES).to_dict()
  tree["families"] = dict(reversed(tree["families"].items()))
  one, other = (
    tasks.build(Config.from_dict({**tree, "seed": seed})).network.fleet
    for seed in (0, 1)
  )
  assert [c.family for c in one.cohorts] == ["a", "a", "b"]
  for fleet in (one, other):
    assert {f: len(ids) for f, ids in fleet.families.items()} == {
      "a": 4,
      "b": 2,
    }
    assert [len(c.ids) for c in fleet.cohorts] == [2, 2, 2]
  assert one.families != other.families


def test_a_family_may_be_called_head():
  given = draft(families={"head": A, "b": B})
  net = make_backbone(Config.from_dict(given), (8, 8, 1), 10)
  full = splitjax.models.shapes.network(net)
  for name, own in net.families.items():
    assert net.having(whole_network(own, full)).family == name


def test_tokens_become_the_trunks_map():
  """A ViT's tokens, without the class token, and a CNN's map."""
  small = {"name": "vit_s16", "width": 0.05, "length": 3, "depths": (1,)}
  given = draft(
    entry__grid=4,
    entry__width=4,
    backbone={"name": "cnn4", "width": 0.1},
    families={
      "cnn": {"network": {"name": "cnn4", "width": 0.1, "depths": (1,)},
              "blocks": 2},
      "vit": {"network": {**small, "resolution": 16, "patch": 4}, "blocks": 2},
    },
  )  # fmt: skip
  net = make_backbone(Config.from_dict(given), (16, 16, 1), 3)
  shape = splitjax.models.shapes.outputs(net)
  assert shape["vit/block2"] == (17, 18)
  assert shape["cnn/conv2"] == (4, 4, 6)
  assert shape["vit/entry"] == shape["cnn/entry"] == (4, 4, 4)
  trunk = "trunk/conv1", "trunk/conv2", "trunk/dense1"
  assert net.of("vit").names()[2:] == ("vit/entry", *trunk)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, traced_once):
  del traced_once
  place = tmp_path_factory.mktemp("families")
  changes = {**fw.FAMILIES, "eval__embeddings": 6}
  return place, runner.run(config("splitgp", **changes), place)


@pytest.mark.slow
def test_a_report_has_accuracy_and_skew_by_family(trained):
  place, results = trained
  summary = results["rows"][0]["summary"]
  members = tasks.build(config("splitgp", **fw.FAMILIES)).network.fleet.families
  accuracy = np.array(summary["per_client"]["accuracy"], float)
  for family, own in members.items():
    found = summary["families"][family]
    assert found["clients"] == len(own)
    np.testing.assert_allclose(found["accuracy"], accuracy[:, own].mean(axis=1))
  assert {"silhouette_family", "silhouette_depth"} < set(summary["skew"])
  page = (place / "report.md").read_text()
  assert "## Accuracy by family" in page and "| own, a |" in page
  assert "by family" in page
  text = description.text(describe.describe(config("splitgp", **fw.FAMILIES)))
  assert "a/entry" in text and "trunk/block2" in text and "family" in text


@pytest.mark.slow
def test_a_stopped_run_goes_on_to_the_same_bits(trained, tmp_path):
  whole, _ = trained
  changed = splitjax.load(whole, "own").config
  stopped(changed, tmp_path, 2)
  runner.run(changed, tmp_path)
  same_run(whole, tmp_path)
  assert splitjax.load(tmp_path, "own").state.round == ROUNDS
