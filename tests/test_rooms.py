"""Who may import whom, read from the sources: docs/architecture.md has why."""

import ast
import functools
import graphlib
import importlib
import re
import sys
import tomllib
from pathlib import Path

from splitjax.methods import METHODS

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
# Library -> rooms or modules that may import it. numpy anyone may. Data and
# reports run on the host, but for what is named beside jax.
LIBRARIES = {
  "jax": "types target trees losses parameters wire models data.feed"
  " data.augmentations data.corruptions fleet methods engine rules simulation"
  " evaluation experiment __init__ configs",
  "flax": "models",
  "optax": "losses methods.fedpac methods.optimizer methods.task_losses",
  "orbax": "experiment.storage",
  "tensorflow_datasets": "data",
  "PIL": "data",
  "sklearn": "data.sources evaluation.skew evaluation.metrics",
  "threadpoolctl": "evaluation.skew",
  "joblib": "experiment.machine",
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
LAZY = ("tensorflow_datasets", "pooch", "tensorboardX")
"""Imported inside functions alone: a run on bundled data needs it not."""


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
    inside = inside or isinstance(node, ast.FunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
      visit(child, inside)

  visit(ast.parse(source), False)
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
    if top == "splitjax":
      target = within(inner, ROOMS) or "__init__"
      allowed = target in {room, *ROOMS[room].split()}
    elif library := within(name, LIBRARIES):
      allowed = within(module, LIBRARIES[library].split()) is not None
      allowed = allowed and (inside or top not in LAZY)
    else:
      allowed = top in sys.stdlib_module_names | {"numpy"}
    if not allowed:
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


def test_no_modules_import_each_other_in_a_circle():
  found, edges = modules(), {}
  for module, path in found.items():
    names = [
      name.removeprefix("splitjax.")
      for name, _ in imports(path.read_text())
      if name.split(".")[0] in ("splitjax", "configs")
    ]
    edges[module] = {within(name, found) for name in names} - {None, module}
  graphlib.TopologicalSorter(edges).prepare()


def test_the_engine_knows_no_method_by_name():
  for name, path in modules().items():
    if within(name, ["engine", "evaluation"]):
      tree = ast.walk(ast.parse(path.read_text()))
      said = {str(n.value) for n in tree if isinstance(n, ast.Constant)}
      assert not said & METHODS.keys(), name


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
