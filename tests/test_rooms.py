"""Who may import whom: ARCHITECTURE.md section 4, read from the sources."""

import ast
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from splitjax.methods import METHODS

ROOT = Path(__file__).resolve().parents[1]
ANY = "*"

# Room -> rooms it may import, in order: a room knows none below itself. "*" is
# everything above. The modules of a package are one room and know each other.
ROOMS = {
  "types": "",
  "trees": "types",
  "losses": "types",
  "wire": "types trees",
  "winograd": "types",
  "inturn": "types winograd",
  "ops": "types inturn",
  "block": "types",
  "start": "types",
  "backbone": "types trees block start",
  "backbones": "types ops block start backbone",
  "protocol": "types trees losses wire backbone",
  "merge": "types trees block",
  "fleet": "types",
  "faults": "types",
  "data.feed": "types",
  "methods": "types trees losses wire block backbone protocol merge fleet",
  "mesh": "types",
  "hosts": "types",
  "turn": "types trees wire faults data.feed",
  "cohorts": "types trees wire merge faults data.feed turn",
  "orders": "types data.feed",
  "serving": "types trees wire data.feed turn cohorts",
  "rounds": "types trees fleet faults data.feed mesh cohorts serving",
  "pooled": "types trees data.feed",
  "evaluate": "types trees losses fleet data.feed mesh cohorts rounds pooled",
  "proxies": "types",
  # The host's side: numpy and text, no networks.
  "storage.lock": "",
  "data": "types storage.lock",
  "storage.files": "",
  "progress": "",
  "signals": "",
  "storage": "types mesh hosts progress",
  "fields": "types",
  "metrics": "types",
  "gate": "types",
  "forgetting": "metrics",
  "calibrate": "types gate",
  "reports": "types fields storage.files metrics gate forgetting",
  "handout": "reports",
  "tensorboard": "types storage.files forgetting",
  "trouble": "types",
  "figures": "types reports metrics forgetting",
  # What knows every room above it.
  "ranges": "types data fields faults reports",
  "config": ANY,
  "draft": ANY,
  "sandbox": ANY,
  "contract": ANY,
  "network": ANY,
  "sizes": ANY,
  "latency": ANY,
  "feasible": ANY,
  "budget": ANY,
  "memory": ANY,
  "fitting": ANY,
  "world": ANY,
  "courses": ANY,
  "storage.identity": ANY,
  "storage.folders": ANY,
  "storage.claim": ANY,
  "storage.standing": ANY,
  "storage.finished": ANY,
  "clients": ANY,
  "diary": ANY,
  "embeddings": ANY,
  "inside": ANY,
  "lane": ANY,
  "training": ANY,
  "resume": ANY,
  "describe": ANY,
  "system": ANY,
  "results": ANY,
  "harvest": ANY,
  "again": ANY,
  "batched": ANY,
  "experiment": ANY,
  "sweep": ANY,
  "grid": ANY,
  "export": ANY,
  "farewell": ANY,
  "modes": ANY,
  "cli": ANY,
  "__init__": ANY,
  "configs": "__init__",
  "launch": "cli",
}
HOST = set(
  "figures reports storage.files storage.lock data progress metrics gate"
  " forgetting calibrate handout trouble tensorboard fields farewell modes cli"
  " config signals draft configs launch sweep".split()
)
"""Rooms that must not import jax themselves."""

# Outside library -> rooms or single modules that may import it. numpy anyone
# may, jax whoever is not in HOST.
LIBRARIES = {
  "flax": "backbones",
  "optax": "losses methods.outer",
  "orbax": "storage.checkpoint storage.keeper",
  "tensorflow_datasets": "data",
  "array_record": "data",
  "PIL": "data",
  "sklearn": "data.sources figures.skew",
  "threadpoolctl": "figures.skew",
  "scipy": "metrics",
  "matplotlib": "figures",
  "tqdm": "progress data",
  "tensorboardX": "tensorboard",
  "ml_collections": "draft configs launch",
  "configs.settings": "configs",
  "configs.hydra_settings": "configs",
  "absl.app": "launch",
  "absl.flags": "launch",
  "absl.logging": "launch data storage.lock",
}
LAZY = {"tensorflow_datasets", "array_record", "tensorboardX"}
"""Imported inside functions alone: a run on bundled data needs it not."""


class Import(NamedTuple):
  """One import statement's one name; `inside` a function or not."""

  name: str
  inside: bool


def imports(source: str) -> list[Import]:
  """Every name a module imports, `from a import b` as a.b."""
  out = []

  def walk(node, inside):
    if isinstance(node, ast.Import):
      out.extend(Import(alias.name, inside) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      base = "." * node.level + (node.module or "")
      out.extend(Import(f"{base}.{a.name}", inside) for a in node.names)
    elif isinstance(node, ast.Name) and node.id == "__import__":
      out.append(Import(".__import__", inside))
    inside = inside or isinstance(node, ast.FunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
      walk(child, inside)

  walk(ast.parse(source), False)
  return out


def within(name: str, places) -> str | None:
  """The longest of `places` that is `name` or holds it."""
  held = [p for p in places if name == p or name.startswith(p + ".")]
  return max(held, key=len, default=None)


def target(name: str) -> str | None:
  """The room that `splitjax.x.y` lies in; a public name is __init__'s."""
  inner = name.removeprefix("splitjax").removeprefix(".")
  return within(inner, ROOMS) or ("__init__" if inner.count(".") < 1 else None)


def complaints(module: str, source: str) -> list[str]:
  """What a module imports and must not."""
  room = within(module, ROOMS)
  if room is None:
    return [f"{module} is in no room: add it to ROOMS"]
  names = list(ROOMS)
  above = names[: names.index(room)]
  allowed = above if ROOMS[room] == ANY else ROOMS[room].split()
  out = []
  for name, inside in imports(source):
    top = name.split(".")[0]
    if top == "splitjax":
      if target(name) not in {room, *allowed}:
        out.append(f"{module} imports {name}")
    elif top == "jax":
      if room in HOST:
        out.append(f"{module} imports jax")
    elif name.startswith("importlib.metadata"):
      pass  # versions, no modules
    elif top not in sys.stdlib_module_names | {"numpy"} or top == "importlib":
      library = within(name, LIBRARIES)
      doors = LIBRARIES[library].split() if library else ()
      if within(module, doors) is None:
        out.append(f"{module} imports {name}")
      elif top in LAZY and not inside:
        out.append(f"{module} imports {name} outside a function")
  return out


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


@pytest.mark.parametrize("module", sorted(modules()))
def test_a_module_imports_only_what_its_room_may(module):
  assert complaints(module, modules()[module].read_text()) == []


def test_the_table_has_no_upward_arrow_and_no_empty_room():
  names, present = list(ROOMS), modules()
  for place, (room, allowed) in enumerate(ROOMS.items()):
    assert allowed == ANY or set(allowed.split()) <= set(names[:place]), room
    assert any(within(name, [room]) for name in present), f"no {room}"


@pytest.mark.parametrize("engine", ["turn", "cohorts", "rounds", "evaluate"])
def test_an_engine_knows_no_method_by_name(engine):
  tree = ast.parse(modules()[engine].read_text())
  said = {
    str(value)
    for node in ast.walk(tree)
    for value in (
      getattr(node, "id", None),
      getattr(node, "attr", None),
      getattr(node, "arg", None),
      getattr(node, "value", None) if isinstance(node, ast.Constant) else None,
    )
  }
  assert not said & METHODS.keys()


@pytest.mark.parametrize(
  ("module", "source"),
  [
    ("types", "from splitjax import trees"),
    ("methods.new", "from splitjax.data import feed"),
    ("methods.new", "from splitjax.data.feed import Samples"),
    ("methods.new", "from splitjax import rounds"),
    ("methods.new", "from splitjax import METHODS"),
    ("methods.new", "import optax"),
    ("methods.new", "def f():\n  import splitjax.evaluation.evaluate"),
    ("rounds", "from splitjax.methods import METHODS"),
    ("evaluate", "from splitjax.data import shift"),
    ("data.feed", "from splitjax.data import sources"),
    ("backbones.new", "from splitjax import protocol"),
    ("protocol", "from flax import linen"),
    ("data.sources", "import tensorflow_datasets as tfds"),
    ("methods.new", "def f():\n  import tensorflow_datasets"),
    ("data.sources", "import jax.numpy as jnp"),
    ("gate", "import jax"),
    ("reports.report", "from splitjax import world"),
    ("world", "from splitjax.experiment.runner import run"),
    ("cli", "from absl import flags"),
    ("training", "import orbax.checkpoint as ocp"),
    ("reports.report", "import matplotlib.pyplot as plt"),
    ("world", "from ml_collections import ConfigDict"),
    ("world", "import torch"),
    ("rounds", "from . import methods"),
    ("rounds", "__import__('splitjax.methods')"),
    ("rounds", "import importlib"),
    ("launch", "from splitjax import experiment"),
    ("brand_new", "import numpy"),
  ],
)
def test_a_wrong_import_would_be_noticed(module, source):
  assert len(complaints(module, source)) == 1


@pytest.mark.parametrize(
  ("module", "source"),
  [
    ("data.sources", "def f():\n  import tensorflow_datasets as tfds"),
    ("backbones.new", "from flax import linen as nn\nimport jax"),
    (
      "experiment",
      "from splitjax import world\nfrom splitjax.data import feed",
    ),
    ("methods.new", "from splitjax.methods.optimizer import Optimizer"),
    ("configs.new", "from splitjax import METHODS\nimport splitjax"),
    ("rounds", "import jax\nimport numpy as np\nimport functools"),
  ],
)
def test_a_right_import_passes(module, source):
  assert complaints(module, source) == []
