"""Who may import whom, read from the sources: docs/architecture.md has why."""

import ast
import functools
import graphlib
import importlib
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Package -> what it may import of splitjax. Lowest first: a package knows
# nothing below its own row. The modules of a package know each other.
VOCABULARY = "types target trees losses files fields options parameters wire"
ROUND = f"{VOCABULARY} models data fleet methods engine"
BELOW = f"{ROUND} evaluation config"
ROOMS = {
  "types": "",
  "target": "types",
  "trees": "types",
  "losses": "types",
  "files": "types",
  "fields": "types",
  "options": "types fields",
  "parameters": "types fields",
  "wire": "types trees fields parameters",
  "models": VOCABULARY,
  "data": VOCABULARY,
  "fleet": f"{VOCABULARY} models data",
  "methods": f"{VOCABULARY} models data fleet",
  "engine": f"{VOCABULARY} models data fleet methods",
  "rules": ROUND,
  "simulation": f"{ROUND} rules",
  "evaluation": ROUND,
  "config": f"{ROUND} evaluation",
  "reports": f"{VOCABULARY} data evaluation config",
  "experiment": f"{BELOW} reports rules",
  "__init__": f"{BELOW} reports experiment simulation",
  "cli": f"{VOCABULARY} data config reports experiment",
  "__main__": "cli",
  "configs": "__init__ options config data evaluation reports",
  "launch": "cli",
}
HOST = "files fields options data config reports cli".split()
"""Rooms that must not import jax themselves, but for ON_DEVICE."""
ON_DEVICE = ("data.feed", "data.augmentations", "data.corruptions")

# Library -> rooms or modules that may import it. numpy anyone may, jax whoever
# is not in HOST.
LIBRARIES = {
  "flax": "models",
  "optax": "losses methods.fedpac methods.optimizer methods.task_losses",
  "orbax": "experiment.storage",
  "tensorflow_datasets": "data",
  "PIL": "data",
  "sklearn": "data.sources evaluation.skew evaluation.metrics",
  "threadpoolctl": "evaluation.skew",
  "scipy": "evaluation data.official models.pretrained reports",
  "pandas": "evaluation.latency evaluation.skew reports experiment configs",
  "pooch": "data.official",
  "matplotlib": "reports.figures",
  "tabulate": "reports experiment.describe",
  "chex": "simulation",
  "tqdm": "experiment.console data",
  "tensorboardX": "reports.tensorboard",
  "filelock": "data experiment.workdirs",
  "lazy_loader": "__init__ config data engine evaluation experiment fleet"
  " methods models reports",
  "absl": "cli",
  "configs": "configs",
}
LAZY = "tensorflow_datasets pooch tensorboardX"
"""Imported inside functions alone: a run on bundled data needs it not."""


@functools.cache
def tree_of(source: str) -> ast.Module:
  return ast.parse(source)


@functools.cache
def imports(source: str) -> list[tuple[str, bool]]:
  """Names imported at run time (a.b of `from a import b`), and if inside."""
  out = []

  def visit(node, inside):
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
      return
    if isinstance(node, ast.Import):
      out.extend((alias.name, inside) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      base = "." * node.level + (node.module or "")
      out.extend((f"{base}.{a.name}", inside) for a in node.names)
    elif isinstance(node, ast.Name) and node.id == "__import__":
      out.append((".__import__", inside))
    inside = inside or isinstance(node, ast.FunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
      visit(child, inside)

  visit(tree_of(source), False)
  return out


def within(name: str, places) -> str | None:
  """The longest of `places` that is `name` or holds it."""
  held = [p for p in places if name == p or name.startswith(p + ".")]
  return max(held, key=len, default=None)


def complaints(module: str, source: str) -> list[str]:
  """What a module imports and must not."""
  room = within(module, ROOMS)
  if room is None:
    return [f"{module} is in no room: add it to ROOMS"]
  out = []
  for name, inside in imports(source):
    top, _, inner = name.partition(".")
    library = within(name, LIBRARIES)
    if top == "splitjax":
      target = within(inner, ROOMS) or "__init__"
      if target not in {room, *ROOMS[room].split()}:
        out.append(f"{module} imports {name}")
    elif library:
      if within(module, LIBRARIES[library].split()) is None:
        out.append(f"{module} imports {name}")
      elif top in LAZY.split() and not inside:
        out.append(f"{module} imports {name} outside a function")
    elif top == "jax":
      if room in HOST and module not in ON_DEVICE:
        out.append(f"{module} imports jax")
    elif name.startswith("importlib.import_module") or top == "importlib":
      loads = module == "config.loading"  # config files
      if not loads and not name.startswith("importlib.metadata"):
        out.append(f"{module} imports {name}")
    elif top not in sys.stdlib_module_names | {"numpy"}:
      out.append(f"{module} imports {name}")
  return out


@functools.cache
def modules() -> dict[str, Path]:
  """Dotted name without `splitjax.` -> file."""
  package = ROOT / "splitjax"
  out = {}
  for path in package.rglob("*.py"):
    name = ".".join(path.relative_to(package).with_suffix("").parts)
    out[name if name == "__init__" else name.removesuffix(".__init__")] = path
  for path in (ROOT / "configs").glob("*.py"):
    out[f"configs.{path.stem}"] = path
  return {**out, "launch": ROOT / "launch.py"}


def test_modules_import_only_what_their_room_may():
  found = modules()
  said = [c for m in sorted(found) for c in complaints(m, found[m].read_text())]
  assert said == []


def edges(found: dict[str, Path]) -> dict[str, set[str]]:
  """Module -> the modules of `found` that it imports."""
  out = {}
  for module, path in found.items():
    names = [
      name.removeprefix("splitjax.")
      for name, _ in imports(path.read_text())
      if name.split(".")[0] in ("splitjax", "configs")
    ]
    targets = {within(n, found) for n in names}
    out[module] = targets - {None, module}
  return out


def test_the_table_has_no_upward_arrow_and_no_empty_room():
  names, present = list(ROOMS), modules()
  for place, (room, allowed) in enumerate(ROOMS.items()):
    assert set(allowed.split()) <= set(names[:place]), room
    assert any(within(name, [room]) for name in present), f"no {room}"


def test_no_modules_import_each_other_in_a_circle():
  graphlib.TopologicalSorter(edges(modules())).prepare()


def test_no_rooms_of_the_experiment_import_each_other_in_a_circle():
  """A folder of experiment/ is a room, and so is a module beside them."""
  found = {m: p for m, p in modules().items() if m.startswith("experiment.")}
  rooms: dict[str, set[str]] = {}
  for module, targets in edges(found).items():
    room = module.split(".")[1]
    others = {target.split(".")[1] for target in targets} - {room}
    rooms.setdefault(room, set()).update(others)
  graphlib.TopologicalSorter(rooms).prepare()


def test_modules_are_imported_by_their_names():
  found, renamed = modules(), []
  for module, path in found.items():
    if within(module, ["__init__", "configs"]):
      continue
    for node in ast.walk(tree_of(path.read_text())):
      if isinstance(node, ast.ImportFrom):
        base = (node.module or "").removeprefix("splitjax").lstrip(".")
        for alias in node.names:
          name = f"{base}.{alias.name}".lstrip(".")
          if alias.asname and name in found:
            renamed.append(f"{module}: {name} as {alias.asname}")
  assert renamed == []


def test_no_public_class_has_two_meanings():
  places: dict[str, list[str]] = {}
  for module, path in modules().items():
    for node in tree_of(path.read_text()).body:
      public = isinstance(node, ast.ClassDef) and not node.name.startswith("_")
      if public and not within(module, ["configs"]):
        places.setdefault(node.name, []).append(module)
  assert {k: v for k, v in places.items() if len(v) > 1} == {}


def test_the_engine_knows_no_method_by_name():
  from splitjax.methods import METHODS

  for name, path in modules().items():
    if within(name, ["engine", "evaluation"]):
      tree = ast.walk(tree_of(path.read_text()))
      said = {str(n.value) for n in tree if isinstance(n, ast.Constant)}
      assert not said & METHODS.keys(), name


@pytest.mark.parametrize(
  ("module", "source"),
  [
    ("types", "from splitjax import trees"),
    ("methods.new", "def f():\n  import splitjax.evaluation.exits"),
    ("methods.new", "from flax import linen"),
    ("data.sources", "import tensorflow_datasets as tfds"),
    ("data.sources", "import jax.numpy as jnp"),
    ("experiment.train", "import orbax.checkpoint as ocp"),
    ("experiment.task", "import torch"),
    ("engine.rounds", "from . import methods"),
    ("engine.rounds", "__import__('splitjax.methods')"),
    ("engine.rounds", "import importlib"),
    ("brand_new", "import numpy"),
  ],
)
def test_a_wrong_import_would_be_noticed(module, source):
  assert len(complaints(module, source)) == 1


ASKING = re.compile(
  r"(?<!>>> )\bjax\.(local_)?device(s|_count)\("
  r"|\bdefault_backend\b|\.memory_stats\("
)
"""What tells a program on what it is computed."""


def test_the_target_of_programs_is_asked_in_one_place():
  found = {m: ASKING.search(x.read_text()) for m, x in modules().items()}
  assert [module for module, match in found.items() if match] == ["target"]


def test_every_package_is_in_the_wheel():
  told = tomllib.loads((ROOT / "pyproject.toml").read_text())
  found = (ROOT / "splitjax").rglob("__init__.py")
  packages = {".".join(x.parent.relative_to(ROOT).parts) for x in found}
  listed = told["tool"]["setuptools"]["packages"]
  assert {*listed} == packages | {"splitjax.configs"}


def test_every_name_that_a_package_hands_on_is_there():
  for path in sorted((ROOT / "splitjax").rglob("__init__.py")):
    name = ".".join(path.parent.relative_to(ROOT).parts)
    package = importlib.import_module(name)
    names = getattr(package, "__all__", ())
    assert not [x for x in names if not hasattr(package, x)], name
