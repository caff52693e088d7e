"""Config files: those that come with splitjax, and a user's."""

import importlib
import importlib.util
import re
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from splitjax.files import expanded
from splitjax.registry import unknown
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
checkout, inside it when installed."""


def names() -> list[str]:
  """Lists the names of the configs that come with splitjax."""
  if CONFIGS is None:
    return []
  files = sorted(CONFIGS.glob("[a-z]*.py"))
  return [p.stem for p in files if "\ndef get_config(" in p.read_text("utf-8")]


def with_paths(argv: Sequence[str]) -> list[str]:
  """Replaces names of splitjax's configs in a command line by their paths.

  Also extends the import path, so that a config file can import the modules
  beside it (`neighbours`) and the modules that splitjax's configs share
  (`share`).

  Raises:
    UserError: a name is neither a file nor a config of splitjax.
  """
  out = list[str]()
  joined = re.sub(r"(?m)^(--?config)\n", r"\1=", "\n".join(argv)).split("\n")
  for argument in joined:
    flag, _, config = argument.partition("=")
    if flag not in ("-config", "--config"):
      out.append(argument)
      continue
    path, words = file_and_words(config)
    if path.startswith("~"):
      path = str(expanded(path))
    if Path(path).is_file():
      neighbours(path)
    elif re.fullmatch(r"[A-Za-z_]\w*", path):
      if path not in names():
        kind = "file or config of splitjax"
        raise UserError(unknown("--config", path, names(), kind))
      assert CONFIGS is not None
      share(over=True)
      path = f"{CONFIGS / path}.py"
    out.append(f"--config={path}{words}")
  share()
  return out


def file_and_words(config: str) -> tuple[str, str]:
  """Splits FILE.py:WORDS or NAME:WORDS into FILE.py or NAME, and :WORDS."""
  found = re.match(r"(.*\.py|[A-Za-z_]\w*)(:.*)?$", config)
  return (found[1], found[2] or "") if found else (config, "")


def is_own(path: str | Path) -> bool:
  """Checks if a config file is a user's."""
  return Path(path).resolve().parent != CONFIGS


def neighbours(path: str | Path) -> None:
  """Lets a user's config file import modules beside it."""
  folder = str(Path(path).resolve().parent)
  if is_own(path) and folder not in sys.path:
    sys.path.insert(0, folder)


def share(*, over: bool = False) -> None:
  """Makes the shared modules of splitjax's configs importable as `configs`.

  If a user has a package `configs` with a module `settings`, `import configs`
  still imports the user's package.

  Args:
    over: if true, `import configs` imports splitjax's modules even then.
  """
  if CONFIGS is None:
    return
  found = importlib.util.find_spec("configs")
  origin = None if found is None else found.origin
  if origin is not None and Path(origin).resolve().parent == CONFIGS:
    return
  places = () if found is None else found.submodule_search_locations or ()
  if not over and any((Path(p) / "settings.py").exists() for p in places):
    return
  home = "configs" if CONFIGS.parent != PACKAGE else "splitjax.configs"
  if home == "configs":
    sys.path.insert(0, str(CONFIGS.parent))
    sys.modules.pop("configs", None)
    importlib.invalidate_caches()
  sys.modules["configs"] = importlib.import_module(home)


def execute(path: str | Path) -> None:
  """Executes a config file, so that it registers its methods and networks.

  Raises:
    UserError: there is no such file.
  """
  path = expanded(path)
  if not path.is_file():
    raise UserError(f"config={str(path)!r}: no such file")
  neighbours(path)
  share()
  runpy.run_path(str(path))
