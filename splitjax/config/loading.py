"""Config files: those that come with splitjax, a user's, and a run's own."""

import contextlib
import importlib.util
import json
import re
import sys
import traceback
import types
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

from splitjax.config.config import Config, vary
from splitjax.fields import unknown
from splitjax.types import UserError

_HOMES = [parent / "configs" for parent in Path(__file__).resolve().parents[1:]]
# Inside the package when installed, beside it in a checkout.
_CONFIGS = next(x for x in _HOMES if (x / "quickstart.py").exists())
"""Folder of the configs that come with splitjax."""


def names() -> list[str]:
  """Lists the names of the configs that come with splitjax."""
  files = sorted(_CONFIGS.glob("*.py"))
  return [x.stem for x in files if "get_config" in x.read_text("utf-8")]


def is_users(path: Path) -> bool:
  """Checks if a config file is a user's."""
  return path.resolve().parent != _CONFIGS


def find(text: str) -> tuple[Path, str]:
  """Splits FILE.py:WORDS or NAME:WORDS into the file and the words, or ""."""
  # A path may hold colons, a name may not. All texts have this form.
  form = r"^(.*\.(?:py|json)|[^:]*)(?::(.*))?$"
  name, words = re.findall(form, text, re.DOTALL)[0]
  path = Path(name).expanduser()
  if path.suffix in (".py", ".json") and path.is_file():
    return path, words
  if name in names():
    return _CONFIGS / f"{name}.py", words
  kind = "Python file, config.json or config of splitjax"
  raise UserError(unknown("--config", name, names(), kind))


def load(text: str) -> Config:
  """Makes the config of FILE.py:WORDS, NAME:WORDS or RUN/config.json.

  An error has the line of the file that led to it.
  """
  path, words = find(text)
  if path.suffix == ".json":
    return _of_run(path)
  module = execute(path)
  if not hasattr(module, "get_config"):
    remedy = "write one that returns a config, such as splitjax.default()"
    raise UserError(f"--config={text} has no function get_config(): {remedy}")
  with _located(path):
    c = module.get_config(words) if words else module.get_config()
  if not isinstance(c, Config):
    problem = f"get_config() returns {c!r:.99}; it must return the config"
    raise UserError(f"--config={path}: {problem}")
  return c


def execute(path: str | Path) -> types.ModuleType:
  """Executes a config file, so that it registers its methods and networks.

  It can import the modules beside it, and as `configs` those that splitjax's
  own configs share.
  """
  path = Path(path).expanduser().resolve()
  origin = importlib.util.spec_from_file_location("config_file", path)
  if not path.is_file() or origin is None or origin.loader is None:
    raise UserError(f"config={str(path)!r}: there is no such Python file")
  if is_users(path) and str(path.parent) not in sys.path:
    sys.path.insert(0, str(path.parent))
  # A user may have a package `configs` as well: a file finds the modules of its
  # own side first.
  package = PathFinder.find_spec("configs")
  theirs = [*((package and package.submodule_search_locations) or ())]
  if _CONFIGS not in [Path(folder).resolve() for folder in theirs]:
    ours = [str(_CONFIGS)]
    shared = types.ModuleType("configs")
    shared.__path__ = theirs + ours if is_users(path) else ours + theirs
    sys.modules["configs"] = shared
  module = importlib.util.module_from_spec(origin)
  sys.modules["config_file"] = module  # annotations are looked up there
  with _located(path):
    origin.loader.exec_module(module)
  return module


def _of_run(path: Path) -> Config:
  """Reads the config of a run, which its workdir keeps.

  A workdir of several seeds has a folder for each: they are swept.
  """
  try:
    tree = json.loads(path.read_bytes())["config"]
    seed = tree.pop("seed")
  except (ValueError, KeyError, TypeError, AttributeError):
    text = "is no config.json of a run of this program"
    raise UserError(f"--config={path} {text}") from None
  c = Config.from_dict(tree)
  if isinstance(seed, int):
    c.seed = seed
  else:  # a sentence, which says that the run has a folder for each seed
    folders = [p.name.removeprefix("seed") for p in path.parent.glob("seed*")]
    seeds = sorted(int(number) for number in folders if number.isdecimal())
    vary(c, {"seed": seeds or (0,)})
  return c


@contextlib.contextmanager
def _located(path: Path) -> Iterator[None]:
  """Adds to an error the line of a user's config file that led to it."""
  try:
    yield
  except UserError as error:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if Path(f.filename) == path.resolve()]
    if not lines or not is_users(path):
      raise
    raise UserError(f"{error} ({path.name}, line {lines[-1]})") from error
