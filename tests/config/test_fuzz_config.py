"""Any valid config runs; an invalid one is one line that names the field."""

import copy
import json
import math
import shutil

import pytest
from fuzz import BUDGETS, fuzz
from fuzz_configs import configs
from fuzz_wrong import at, places
from hypothesis import strategies as st

import splitjax
from splitjax import Config, UserError
from splitjax.experiment.setup import tasks


def assert_names_a_field(message, tree):
  """Asserts that a message is one line that names a field of the config."""
  assert len(message.splitlines()) == 1 and message.isprintable(), repr(message)
  names, todo = set(), [tree]
  while todo:
    for name, value in todo.pop().items():
      names.add(name)
      todo += [value] if isinstance(value, dict) else []
  assert any(name in message for name in names), message


@BUDGETS
def test_a_config_comes_back_from_its_dict(large):
  def round_trips(tree):
    config = Config.from_dict(tree)
    text = json.dumps(config.to_dict(), allow_nan=False)
    assert Config.from_dict(json.loads(text)) == config
    assert Config.from_dict(config.to_dict()) == config
    return "equal"

  fuzz(round_trips, configs(), large=large, examples=(8, 150))


@BUDGETS
def test_a_right_config_is_built_or_names_what_the_data_forbid(large):
  def builds(tree):
    config = Config.from_dict(tree)
    try:
      task = tasks.build(config)
    except UserError as error:
      assert_names_a_field(str(error), tree)
      return "refused"
    assert len(task.test_sets.parts) == config.num_clients
    return "built"

  fuzz(builds, configs(), large=large, examples=(2, 15))


def is_built(tree):
  """Whether the data allow a config; see test_a_right_config_is_built."""
  try:
    tasks.build(Config.from_dict(tree))
  except UserError:
    return False
  return True


@pytest.mark.slow
def test_a_right_config_runs(tmp_path):
  folder = tmp_path / "run"

  def runs(tree):
    shutil.rmtree(folder, ignore_errors=True)
    splitjax.run(Config.from_dict(tree), folder)
    methods = tree.get("methods") or {tree["method"]["name"]: None}
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    lines = [json.loads(line) for line in lines]
    assert [(line["method"], line["round"]) for line in lines] == [
      (key, number) for key in methods for number in (1, 2)
    ]
    for line in lines:
      # null: after a fault no client has that loss
      faulty = "faults" in line
      losses = [x for x in line["loss"].values() if x is not None or not faulty]
      assert all(map(math.isfinite, losses)) and not line["masked"]
      assert all(map(math.isfinite, line["wire"].values()))
    for row in lines[-1]["accuracy"].values():
      # null: no client has a sample in that set
      assert all(value is None or 0 <= value <= 1 for value in row.values())
    report = json.loads((folder / "report.json").read_text())
    assert len(report["rows"]) >= len(methods)
    return "ran"

  fuzz(
    runs,
    configs().filter(is_built),
    large=True,
    examples=(2, 2),
    limit=300.0,
    shrink=False,
  )


@st.composite
def broken(draw):
  """A valid config's dict, a copy with one mistake, its field and its kind."""
  right = draw(configs())
  tree = copy.deepcopy(right)
  path, wrong = draw(st.sampled_from(places(tree)))
  *way, name = path
  node = at(tree, way)
  kind = draw(st.sampled_from(["value"] * 6 + ["misspelt", "missing"]))
  if kind == "missing" and path in REQUIRED:
    del node[name]
    return right, tree, name, kind
  if kind == "misspelt" and path[0] not in ("method", "methods"):
    other = name + draw(st.sampled_from(["s", "_", "Ω", "\n", "z" * 500]))
    node[other] = node.pop(name)
    return right, tree, name, kind
  node[name] = draw(st.sampled_from(wrong))
  return right, tree, name, "value"


REQUIRED = [("data",), ("data", "name"), ("data", "partition"), ("backbone",)]


@BUDGETS
def test_a_wrong_config_names_the_field(large):
  def names_it(wrong):
    right, tree, name, kind = wrong
    with pytest.raises(UserError) as caught:
      tasks.build(Config.from_dict(tree))
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and message.isprintable()
    if name not in message:
      with pytest.raises(UserError) as caught:  # the data forbade it before
        tasks.build(Config.from_dict(right))
      assert str(caught.value) == message, (name, message)
    return kind

  fuzz(names_it, broken(), large=large, examples=(25, 400))
