"""Any config runs or is refused in one line that names a field.

Values are drawn by the annotations of the fields, right ones and wrong ones.
"""

import copy
import functools
import json
import math
import typing

import pytest
import tiny
from fuzz import BUDGETS, fuzz, one_line
from hypothesis import strategies as st

import splitjax
from splitjax import METHODS, Config, UserError
from splitjax.experiment.setup import tasks
from splitjax.fields import Bounds, alternatives, readable
from splitjax.registry import flat, hint_of

NOTHING = [None, {}, [], b"x", 1j, object, {"name": 3}]
INF, NAN, HUGE = float("inf"), float("nan"), 10**400
NUMBERS = [NAN, INF, -INF, 1e39, -1e300, HUGE, -(10**5000), "1", "", True]
TEXTS = [0, 1.5, True, "nonsense", "", "Ω", "a\nb", "\ud800", ("digits",)]
NAMES = [None, 3, "", "nope", ["a"], {}, ("a", "b"), "a\nb", "x" * 999, NAN]
TUPLES = [3, "12", ("a",), (True,), (NAN,), (None,), ((1.0,),), (HUGE,)]


@functools.cache
def base(method):
  """A valid config of a method, and the annotations of its fields."""
  c = tiny.tiny(**({method: method} if method in tiny.ONE_SERVER else {}))
  if "method" in c:
    c.method.name = method
  tree = c.to_dict()
  hints = {
    path: hint_of(Config, path.split("."), tree)
    for path in sorted(flat(tree))
    if path != "eval.attacks"
  }
  return tree, {path: h for path, h in hints.items() if h and readable(h)}


def put(tree, path, value):
  """A copy of a config's dict with another value of a field."""
  return tiny.changed(copy.deepcopy(tree), **{path.replace(".", "__"): value})


def bounds_of(hint):
  marks = getattr(hint, "__metadata__", ())
  return next((m for m in marks if isinstance(m, Bounds)), Bounds())


def right(hint, now):
  """Values of a type, within its bounds; texts stay as they are."""
  bounds, drawn = bounds_of(hint), [st.just(now)]
  low = bounds.at_least if bounds.above is None else bounds.above
  high = bounds.at_most if bounds.below is None else bounds.below
  low = low or 0
  number = st.floats(
    low,
    low + 2 if high is None else high,
    exclude_min=bounds.above is not None,
    exclude_max=bounds.below is not None,
  ).filter(lambda x: x == 0 or abs(x) > 1e-6)
  for kind in alternatives(hint):
    if typing.get_origin(kind) is typing.Literal:
      drawn.append(st.sampled_from(typing.get_args(kind)))
    elif typing.get_origin(kind) is tuple and typing.get_args(kind)[0] is float:
      drawn.append(st.lists(number, min_size=1, max_size=3).map(tuple))
    elif kind is bool:
      drawn.append(st.booleans())
    elif kind is int:
      drawn.append(st.integers(int(low), int(low) + 4))
    elif kind is float:
      drawn.append(number)
    elif kind is type(None):
      drawn.append(st.none())
  return st.one_of(drawn)


def wrong(path, hint):
  """Values that no field of that type can have."""
  kinds, bounds = alternatives(hint), bounds_of(hint)
  if path.endswith(".name") and "optimizer" not in path and "order" not in path:
    return NAMES
  out = [x for x in NOTHING if x is not None or type(None) not in kinds]
  if int in kinds or float in kinds:
    out += [*NUMBERS, (1,)]
    out += [] if float in kinds else [0.5, 1.0, 2**31, -(2**31), 10**30]
    for limit, sign in ((bounds.at_least, -1), (bounds.at_most, 1)):
      out += [] if limit is None else [limit + sign]
    out += [x for x in (bounds.above, bounds.below) if x is not None]
  elif bool in kinds:
    out += [0, 1, "True", "", NAN]
  elif str in kinds:
    out += [x for x in TEXTS if not isinstance(x, str)] + ["a\nb", "\ud800"]
  elif any(typing.get_origin(kind) is tuple for kind in kinds):
    out = [x for x in out if x != []] + TUPLES
  else:
    out += [*TEXTS, NAN]
  return out


@st.composite
def configs(draw, most=4):
  """The dict of a config with some other values, and the fields changed."""
  tree, hints = base(draw(st.sampled_from(sorted(METHODS))))
  changed = draw(st.lists(st.sampled_from(list(hints)), max_size=most))
  for path in changed:
    tree = put(tree, path, draw(right(hints[path], flat(tree)[path])))
  return tree, changed


@st.composite
def mistakes(draw):
  """The dict of a config with one mistake, and the name that it is in."""
  tree, hints = base(draw(st.sampled_from(sorted(METHODS))))
  path = draw(st.sampled_from(list(hints)))
  name = path.split(".")[-1]
  if draw(st.booleans()) or path.startswith("method"):
    return put(
      tree, path, draw(st.sampled_from(wrong(path, hints[path])))
    ), name
  more = draw(st.sampled_from(["s", "_", "Ω", "\n", "z" * 500]))
  return put(tree, path + more, 1), name


def refused(error, names):
  one_line(error)
  assert any(name.split(".")[-1] in str(error) for name in names), error
  return "refused"


@BUDGETS
def test_a_config_comes_back_from_its_dict(large):
  def round_trips(given):
    try:
      config = Config.from_dict(given[0])
    except UserError as error:
      return refused(error, given[1])
    text = json.dumps(config.to_dict(), allow_nan=False)
    assert Config.from_dict(json.loads(text)) == config
    return "equal"

  fuzz(round_trips, configs(8), large=large, examples=(40, 300))


@BUDGETS
def test_a_config_is_built_or_names_what_is_forbidden(large):
  def builds(given):
    try:
      config = Config.from_dict(given[0])
      task = tasks.build(config)
    except UserError as error:
      return refused(error, flat(given[0]))
    assert len(task.test_sets.parts) == config.num_clients
    return "built"

  fuzz(builds, configs(3), large=large, examples=(6, 40), limit=60.0)


@pytest.mark.slow
def test_a_config_runs(tmp_path_factory):
  def runs(given):
    folder = tmp_path_factory.mktemp("run")
    try:
      config = Config.from_dict(given[0])
      tasks.build(config)
    except UserError:
      return "refused"
    splitjax.run(config, folder)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    lines = [json.loads(line) for line in lines]
    assert [line["round"] for line in lines] == [*range(1, config.rounds + 1)]
    for line in lines:
      # null: after a fault no client has that loss
      losses = [x for x in line["loss"].values() if x is not None]
      assert all(map(math.isfinite, losses)) and not line["masked"]
    for row in lines[-1]["accuracy"].values():
      # null: no client has a sample in that set
      assert all(value is None or 0 <= value <= 1 for value in row.values())
    return "ran"

  fuzz(runs, configs(2), large=True, examples=(3, 3), limit=300, shrink=False)


@BUDGETS
def test_a_mistake_names_its_field(large):
  def names_it(given):
    with pytest.raises(UserError) as caught:
      tasks.build(Config.from_dict(given[0]))
    return refused(caught.value, [given[1]])

  fuzz(names_it, mistakes(), large=large, examples=(80, 400))
