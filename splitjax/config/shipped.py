"""The config files that come with splitjax, and a user's own."""

import importlib
import importlib.util
import runpy
import sys
from pathlib import Path

from splitjax.types import UserError

PACKAGE = Path(__file__).resolve().parents[1]
CONFIGS = next(
  (
    folder
    for folder in (PACKAGE / "configs", PACKAGE.parent / "configs")
    if (folder / "quickstart.py").exists()
  ),
  None,
)
"""Folder of the configs that come with splitjax: beside the package in a
checkout, inside it where it is installed."""


def names() -> list[str]:
  """The names of the configs that come with splitjax."""
  found = sorted(p.stem for p in CONFIGS.glob("[a-z]*.py")) if CONFIGS else []
  return [name for name in found if not name.endswith("settings")]


def is_own(path: str | Path) -> bool:
  """Whether a config file is a user's."""
  return Path(path).resolve().parent != CONFIGS


def share(*, over: bool = False) -> None:
  """Lets config files import what splitjax's own ones share, as `configs`.

  Args:
    over: whether also where there is another package of that name.
  """
  found = importlib.util.find_spec("configs")
  if CONFIGS is None or (found and not over):
    return
  origin = None if found is None else found.origin
  if origin is None or Path(origin).resolve().parent != CONFIGS:
    home = "configs" if CONFIGS.parent != PACKAGE else "splitjax.configs"
    if home == "configs":
      sys.path.insert(0, str(CONFIGS.parent))
      sys.modules.pop("configs", None)
    sys.modules["configs"] = importlib.import_module(home)


def execute(path: str | Path) -> None:
  """Executes a config file for what it registers.

  Raises:
    UserError: there is no such file.
  """
  if not Path(path).is_file():
    raise UserError(f"config={str(path)!r}: no such file")
  share()
  runpy.run_path(str(path))
