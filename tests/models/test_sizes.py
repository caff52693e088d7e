"""Parameters by cut, beside a paper's table."""

import importlib.util
import json
from pathlib import Path

import pytest

from splitjax import cli

ROOT = Path(__file__).resolve().parents[2]


def table1():
  path = ROOT / "configs" / "harmony_table1.py"
  spec = importlib.util.spec_from_file_location("harmony_table1", path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module.get_config().to_dict()


def test_harmony_table_1(capsys):
  assert cli.launch("describe", table1(), None, as_json=True) == 0
  facts = json.loads(capsys.readouterr().out)
  networks = facts["networks"]
  assert [n["whole"] for n in networks.values()] == [
    3_868_170, 9_231_114, 2_351_972, 23_917_832, 21_704_164
  ]  # fmt: skip
  for network in networks.values():
    for cut in network["cuts"]:
      assert cut["phi"] + cut["theta"] == network["whole"]
    for side, printed in network["printed"].items():
      found = [cut[side] for cut in network["cuts"]]
      for said, size in zip(printed, (min(found), max(found)), strict=True):
        assert abs(1000 * said - size) <= 50  # one digit behind the point


def test_text_says_where_a_table_differs(capsys):
  given = table1()
  only = {"vgg11": given["networks"]["vgg11"]}
  only["vgg11"]["printed"]["phi"] = (76.0, 962.4)
  assert cli.launch("describe", {**given, "networks": only}, None) == 0
  lines = capsys.readouterr().out.splitlines()
  differs = [line for line in lines if "differs" in line]
  assert len(differs) == 1 and "962,304" in differs[0]
  assert sum(line.startswith("VGG-11 ") for line in lines) == 1


def test_a_network_without_a_title_has_its_key(capsys):
  bare = {"name": "toy", "shape": (2, 2, 1), "classes": 3, "width": 5}
  given = {"networks": {"small": bare}}
  assert cli.launch("describe", given, None, as_json=True) == 0
  (small,) = json.loads(capsys.readouterr().out)["networks"].values()
  # Four dense blocks 4-5-5-5-5 and the head 5-3.
  whole = 4 * 5 + 5 + 3 * (5 * 5 + 5) + 5 * 3 + 3
  assert (small["title"], small["whole"]) == ("small", whole)
  assert small["printed"] == {}


@pytest.mark.parametrize(
  ("mode", "workdir", "changes", "words"),
  [
    ("train", "w", {}, "--mode=describe"),
    ("describe", "w", {}, "without --workdir"),
    ("describe", None, {"name": "vgg"}, "did you mean 'vgg11'"),
    ("describe", None, {"shape": (32, 32)}, "(H, W, c)"),
    ("describe", None, {"classes": None}, "networks.vgg11.classes"),
    ("describe", None, {"clases": 3}, "did you mean 'classes'"),
    ("describe", None, {"printed": 3}, "networks.vgg11.printed=3"),
    ("describe", None, {"printed": {"fi": (1, 2)}}, "'fi'"),
    ("describe", None, {"printed": {"phi": (1,)}}, "smallest and largest"),
    ("describe", None, {"title": 3}, "networks.vgg11.title=3"),
    ("describe", None, {"depths": (99,)}, "cannot be cut at 99"),
    ("describe", None, {"depths": ()}, "backbone.depths=()"),
    ("describe", None, {"width": -1.0}, "backbone.width=-1.0"),
    ("describe", None, {"width": "wide"}, "networks.vgg11.width='wide'"),
  ],
)
def test_mistakes_are_one_line(mode, workdir, changes, words, capsys):
  given = table1()
  given["networks"]["vgg11"].update(changes)
  assert cli.launch(mode, given, workdir) == 2
  said = capsys.readouterr().err.splitlines()
  assert len(said) == 1 and words in said[0]


@pytest.mark.parametrize(
  ("networks", "words"),
  [
    ({"VGG-11": {"name": "vgg11"}}, "key 'VGG-11' must be a plain word"),
    ({"vgg11": {"depths": (2,)}}, "networks.vgg11: needs a name"),
    ({"vgg11": 3}, "networks.vgg11=3 must be a group"),
    ({}, "at least one network"),
  ],
)
def test_networks_that_cannot_be_are_one_line(networks, words, capsys):
  assert cli.launch("describe", {"networks": networks}, None) == 2
  said = capsys.readouterr().err.splitlines()
  assert len(said) == 1 and words in said[0]
