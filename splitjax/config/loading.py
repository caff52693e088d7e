"""Config files: those that come with splitjax, a user's, and a run's own."""

import importlib
import importlib.util
import json
import re
import sys
import traceback
import types
from pathlib import Path

from splitjax.config.config import Config, vary
from splitjax.fields import unknown
from splitjax.files import printable
from splitjax.types import UserError

PACKAGE = Path(__file__).resolve().parents[1]
# Inside the package when installed, beside it in a checkout.
INSTALLED = (PACKAGE / "configs" / "quickstart.py").exists()
CONFIGS = (PACKAGE if INSTALLED else PACKAGE.parent) / "configs"
"""Folder of the configs that come with splitjax."""


def names() -> list[str]:
  """Lists the names of the configs that come with splitjax."""
  files = sorted(CONFIGS.glob("[a-z]*.py"))
  makes = re.compile(r"^(def )?get_config\b", re.MULTILINE)
  return [p.stem for p in files if makes.search(p.read_text("utf-8"))]


def load(text: str) -> Config:
  """Makes the config of FILE.py:WORDS, NAME:WORDS or RUN/config.json.

  Raises:
    UserError: there is no such file, or it gives no config; or the file raises
      one, to which its line is added.
  """
  path, words = find(text)
  if path.suffix == ".json":
    return of_run(path)
  module = execute(path)
  flag = f"--config={text}"
  if not hasattr(module, "get_config"):
    remedy = "write one that returns a config, such as splitjax.default()"
    raise UserError(f"{flag} has no function get_config(): {remedy}")
  try:
    c = module.get_config(words) if words else module.get_config()
  except UserError as error:
    raise UserError(f"{error}{line_in(path, error)}") from error
  if not isinstance(c, Config):
    text = f"get_config() returns {c!r:.100}; it must return the config"
    raise UserError(f"{flag}: {text}, as in `return c`")
  return c


def find(text: str) -> tuple[Path, str]:
  """Splits FILE.py:WORDS or NAME:WORDS into the file and the words."""
  parts = re.fullmatch(r"(.*\.(?:py|json)|[A-Za-z_]\w*)(?::(.*))?", text)
  name, words = (parts[1], parts[2] or "") if parts else (text, "")
  path = Path(name).expanduser()
  if path.suffix in (".yaml", ".yml"):
    form = "a Python file with get_config(), or a run's config.json"
    raise UserError(f"--config={name}: YAML is not read: a config is {form}")
  if path.is_file():
    return path, words
  if not re.fullmatch(r"[A-Za-z_]\w*", name):
    flag = f"--config={printable(name)}"
    raise UserError(f"{flag} cannot be read: check the path")
  if name not in names():
    kind = "file or config of splitjax"
    raise UserError(unknown("--config", name, names(), kind))
  return CONFIGS / f"{name}.py", words


def is_own(path: str | Path) -> bool:
  """Checks if a config file is a user's."""
  return Path(path).resolve().parent != CONFIGS


def execute(path: str | Path) -> types.ModuleType:
  """Executes a config file, so that it registers its methods and networks.

  It can import the modules beside it, and as `configs` those that splitjax's
  own configs share.

  Raises:
    UserError: there is no such file, or the file raises one.
  """
  path = Path(path).expanduser()
  origin = importlib.util.spec_from_file_location("config_file", path.resolve())
  if not path.is_file() or origin is None or origin.loader is None:
    raise UserError(f"config={str(path)!r}: there is no such Python file")
  folder = str(path.resolve().parent)
  if is_own(path) and folder not in sys.path:
    sys.path.insert(0, folder)
  _share(over=not is_own(path))
  module = importlib.util.module_from_spec(origin)
  sys.modules["config_file"] = module  # annotations are looked up there
  try:
    origin.loader.exec_module(module)
  except UserError as error:
    raise UserError(f"{error}{line_in(path, error)}") from error
  return module


def _share(*, over: bool) -> None:
  """Makes the shared modules of splitjax's configs importable as `configs`.

  If a user has a package `configs` with a module `settings`, `import configs`
  still imports the user's package, unless `over` is true.
  """
  package = importlib.util.find_spec("configs")
  folders = (package and package.submodule_search_locations) or ()
  if any(Path(folder).resolve() == CONFIGS for folder in folders):
    return
  if not over and any((Path(f) / "settings.py").exists() for f in folders):
    return
  if not INSTALLED:
    sys.path.insert(0, str(CONFIGS.parent))
    sys.modules.pop("configs", None)
    importlib.invalidate_caches()
  home = "splitjax.configs" if INSTALLED else "configs"
  sys.modules["configs"] = importlib.import_module(home)


def of_run(path: Path) -> Config:
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
  else:
    folders = [p.name.removeprefix("seed") for p in path.parent.glob("seed*")]
    seeds = sorted(int(number) for number in folders if number.isdecimal())
    vary(c, {"seed": seeds or (0,)})
  return c


def line_in(path: Path, error: Exception) -> str:
  """Names the line of a user's config file that led to an error."""
  frames = traceback.extract_tb(error.__traceback__)
  lines = [f.lineno for f in frames if Path(f.filename) == path.resolve()]
  return f" ({path.name}, line {lines[-1]})" if lines and is_own(path) else ""
