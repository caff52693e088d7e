"""One wrong field in a right config is one line that begins with the field."""

import copy
import json

import pytest
import tiny
from refusals import refused
from wrong_fields import at, places

from splitjax import Config, experiment


def chosen(changes, **methods):
  """The dict of the tiny run with fields changed, as by `tiny.changed`."""
  c = tiny.changed(tiny.tiny(**methods), **changes)
  return Config.from_dict(c).to_dict()


BASES = {
  "usual": chosen({}),
  "several": chosen(
    {
      "data__partition": "dirichlet",
      "eval__shift": "local",
      "eval__rhos": None,
      "loss": "focal",
    },
    a="splitgp",
    b="local",
  ),
  "one server": chosen(
    {"data__partition": "pathological", "loss": "label_smoothing"},
    relay="splitnn",
  ),
  "papers": chosen(
    {"data__partition": "iid", "fleet__allocation": "supersfl"}, a="supersfl"
  ),
}


@pytest.mark.parametrize("base", BASES)
def test_a_config_comes_back_from_its_dict(base):
  config = Config.from_dict(BASES[base])
  text = json.dumps(config.to_dict(), allow_nan=False)
  assert Config.from_dict(json.loads(text)) == config
  assert Config.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
  "every", [pytest.param(1, id="all", marks=pytest.mark.slow), 12]
)
@pytest.mark.parametrize("base", BASES)
def test_a_wrong_value_is_refused_by_its_field(base, every):
  right = BASES[base]
  cases = [(path, value) for path, wrong in places(right) for value in wrong]
  for path, value in cases[[*BASES].index(base) :: every]:
    tree = copy.deepcopy(right)
    at(tree, path[:-1])[path[-1]] = value
    with refused(".".join(path)):
      experiment.build(Config.from_dict(tree))


@pytest.mark.parametrize("base", BASES)
def test_a_misspelt_field_is_refused_by_its_name(base):
  for number, (path, _) in enumerate(places(BASES[base])):
    if path[0] == "methods":  # a key is the user's own
      continue
    tree = copy.deepcopy(BASES[base])
    node, (*groups, name) = at(tree, path[:-1]), path
    node[name + ("x", "_", "Ω", "\n", "z" * 500)[number % 5]] = node.pop(name)
    with refused(".".join(groups) or "config"):
      Config.from_dict(tree)


@pytest.mark.parametrize("path", [("data",), ("backbone",), ("data", "name")])
def test_a_field_without_a_default_is_asked_for(path):
  tree = copy.deepcopy(BASES["usual"])
  del at(tree, path[:-1])[path[-1]]
  with refused(".".join(path)):
    Config.from_dict(tree)
