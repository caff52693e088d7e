"""Parameters by cut, beside a paper's table."""

import importlib.util
import json
from pathlib import Path

import pytest

from splitjax import cli

ROOT = Path(__file__).resolve().parent.parent


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
  only = {"VGG-11": given["networks"]["VGG-11"]}
  only["VGG-11"]["printed"]["phi"] = (76.0, 962.4)
  assert cli.launch("describe", {**given, "networks": only}, None) == 0
  lines = capsys.readouterr().out.splitlines()
  differs = [line for line in lines if "differs" in line]
  assert len(differs) == 1 and "962,304" in differs[0]


def vgg(**options):
  return {"backbone": {"name": "vgg11", **options}}


@pytest.mark.parametrize(
  ("mode", "workdir", "changes", "words"),
  [
    ("train", "w", {}, "--mode=describe"),
    ("describe", "w", {}, "without --workdir"),
    ("describe", None, {"backbone": {"name": "vgg"}}, "vgg11"),
    ("describe", None, {"shape": (32, 32)}, "(H, W, c)"),
    ("describe", None, {"classes": None}, "networks.VGG-11.classes"),
    ("describe", None, {"clases": 3}, "did you mean 'classes'"),
    ("describe", None, {"printed": 3}, "networks.VGG-11.printed=3"),
    ("describe", None, {"printed": {"fi": (1, 2)}}, "'fi'"),
    ("describe", None, {"printed": {"phi": (1,)}}, "smallest and largest"),
    ("describe", None, vgg(depths=(99,)), "cannot be cut at 99"),
    ("describe", None, vgg(depths=()), "backbone.depths=()"),
    ("describe", None, vgg(width=-1.0), "backbone.width=-1.0"),
  ],
)
def test_mistakes_are_one_line(mode, workdir, changes, words, capsys):
  given = table1()
  given["networks"]["VGG-11"].update(changes)
  assert cli.launch(mode, given, workdir) == 2
  said = capsys.readouterr().err.splitlines()
  assert len(said) == 1 and words in said[0]
