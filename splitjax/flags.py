"""Flags of the command line, for train, evaluate, report and describe.

splitjax train --config=quickstart --workdir=runs/quickstart
python launch.py --config=configs/quickstart.py --workdir=runs/quickstart
"""

import os
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from absl import app, flags, logging
from ml_collections import config_flags

from splitjax.config import shipped
from splitjax.files import blame, own_place
from splitjax.text import print_anywhere
from splitjax.types import UserError

MODES = ("train", "evaluate", "report", "describe")

_CONFIG = config_flags.DEFINE_config_file(
  "config",
  None,
  "A config file, or the name of one of splitjax's own, with words behind a"
  " colon: harmony_figure2:small. Override a field with --config.FIELD=VALUE,"
  " as in --config.rounds=10 or --config.methods.harmony.inner_steps=5. report"
  " needs none: numbers and configs are stored.",
  lock_config=False,
  sys_argv=[],  # overrides are read here, see _split
)
flags.DEFINE_string("workdir", None, "Folder for everything that a run writes.")
_DATA_DIR = flags.DEFINE_string(
  "data_dir",
  None,
  "Folder of all prepared data, as `python -m splitjax.data` takes it; the same"
  " as --config.data.dir.",
)
flags.DEFINE_enum(
  "mode",
  "train",
  MODES,
  "train: train what is not finished in the workdir, then report. evaluate:"
  " evaluate the saved networks again, with another config.eval or"
  " privacy.delta if given."
  " report: write tables and figures again from saved results; of several"
  " folders, report DIR DIR, one table over all. describe: print"
  " sizes, steps, FLOPs and traffic of the config without training; with"
  " --workdir also draw the clients' data.",
)
flags.DEFINE_list(
  "seeds",
  None,
  "Train once per seed, as in --seeds=0,1,2, and report over them.",
)
_SWEEP = flags.DEFINE_multi_string(
  "sweep",
  [],
  "Run once for each value of a field, as in --sweep=optimizer.lr=0.01,0.05;"
  " several flags: every combination.",
)
flags.DEFINE_enum(
  "figures",
  "report",
  ["none", "report", "all"],
  "Which reports have figures: report: the one that is asked for. all: those of"
  " its seeds and of a grid's cells, too.",
)
flags.DEFINE_enum("format", "text", ["text", "json"], "How describe prints.")
_CACHE = flags.DEFINE_string(
  "compilation_cache",
  "~/.cache/splitjax",
  "Folder of compiled programs, for the next start of the same config; an"
  " empty string disables it.",
)
_CPU_DEVICES = flags.DEFINE_integer(
  "cpu_devices",
  None,
  "Number of devices that the CPU counts as, so that clients train on all"
  " cores; by default one per core, at most 8.",
)
_ADDRESS = flags.DEFINE_string(
  "coordinator_address",
  None,
  "HOST:PORT of process 0, for a run of several processes.",
)
_PROCESSES = flags.DEFINE_integer(
  "num_processes", None, "Number of processes of the run."
)
_PROCESS = flags.DEFINE_integer(
  "process_id", None, "Number of this process, from 0 on."
)
flags.DEFINE_bool(
  "debug", False, "Show the whole traceback of an error instead of one line."
)


_overridden: dict[str, str] = {}
"""Field -> TEXT, for each --config.FIELD=TEXT in the flags parsed last."""


def fail(text: str) -> NoReturn:
  """Ends the program with a user's error: one line, exit status 2."""
  print(f"error: {text}", file=sys.stderr)
  sys.exit(2)


def usage() -> str:
  """Describes the flags."""
  return flags.FLAGS.module_help(__name__)


def main(argv: Sequence[str]) -> None:
  """Runs the command that the flags give; exits with its status, 2 on error."""
  from splitjax import commands  # --help must not wait for jax

  if not flags.FLAGS["verbosity"].present:
    # Show libraries' warnings, such as jax's fallback to the CPU, but not
    # orbax's, which logs every thread; this program prints its errors itself.
    logging.set_verbosity(logging.WARNING)
    logging.get_absl_logger().setLevel("CRITICAL")
  try:
    _join()
  except UserError as error:
    fail(str(error))
  status = commands.launch(command(argv[1:]))
  if status == commands.INTERRUPTED:
    # A normal exit would wait for the running round.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
  sys.exit(status)


def _join() -> None:
  """Sets up the cache and the devices, and connects the processes of a run."""
  from splitjax import machine

  machine.keep_compiled(_CACHE.value)
  # Processes that share a machine must say how many CPU devices each takes.
  if _PROCESSES.value is None or _CPU_DEVICES.value is not None:
    machine.use_cores(_CPU_DEVICES.value)
  machine.initialize(_ADDRESS.value, _PROCESSES.value, _PROCESS.value)
  machine.check_platform()


def command(runs: Sequence[str] = ()):
  """Builds a Command from the flags; `runs` are the positional arguments."""
  from splitjax import commands

  same = "mode workdir seeds figures debug".split()
  chosen: dict[str, Any] = {name: flags.FLAGS[name].value for name in same}
  return commands.Command(
    **chosen,
    config=_CONFIG.value and _CONFIG.value.to_dict(),
    file=_file(),
    runs=tuple(runs),
    as_json=flags.FLAGS["format"].value == "json",
    swept=_SWEEP.value,
    overridden=dict(_overridden),
  )


def _file() -> str | None:
  """Returns the config file if it is a user's, else None."""
  if _CONFIG.value is None:
    return None
  given = config_flags.get_config_filename(flags.FLAGS["config"])
  path, _ = shipped.file_and_words(given)
  return path if shipped.is_own(path) else None


def run() -> None:
  """Parses the program's arguments and runs `main`."""
  print_anywhere()
  app.run(main, flags_parser=parse)


def parse(argv: Sequence[str]) -> list[str]:
  """Parses the flags; returns the program's name and positional arguments.

  A mistake is reported in one line instead of a traceback. `commands` later
  checks the fields that --config.FIELD=VALUE sets.
  """
  sys.argv = list(argv)  # printed when a run stops
  argv = flags.FLAGS.read_flags_from_files(argv, force_gnu=False)
  try:
    argv = shipped.with_paths(argv)
  except UserError as error:
    fail(str(error))
  rest = _parsed(_split(argv))
  if _DATA_DIR.value is not None:
    _overridden["data.dir"] = _DATA_DIR.value
  if _overridden and not flags.FLAGS["config"].present:
    fail(f"--config.{next(iter(_overridden))} needs --config=FILE beside it")
  if "scale" in _overridden:
    # The field records the file's choice; setting it changes nothing.
    fail("--config.scale: choose it as --config=FILE:small")
  _check_config()
  return rest


def _split(argv: Sequence[str]) -> list[str]:
  """Stores --config.FIELD=VALUE in `_overridden`; returns the other arguments.

  Also reads --config.FIELD VALUE. --config.FIELD alone sets True, and
  --noconfig.FIELD sets False. If a field is given twice, the last value counts.
  """
  _overridden.clear()
  rest, words = list[str](), list(argv)
  while words and words[0] != "--":
    word = words.pop(0)
    flag = re.match(r"--?(no)?config\.([^=]+)(=(.*))?$", word, re.DOTALL)
    if not flag:
      rest.append(word)
      continue
    no, field, given, text = flag.groups()
    if not given:
      text = "False" if no else "True"
      if not no and words and not re.match(r"--?[a-z]", words[0]):
        text = words.pop(0)
    _overridden[field] = text
  return rest + words


def _parsed(argv: Sequence[str]) -> list[str]:
  logger = logging.get_absl_logger()
  logger.disabled = True  # _check_config reports a config that is None
  try:
    return flags.FLAGS(argv)
  except Exception as error:
    first: BaseException = error
    while first.__context__ is not None:  # absl and ml_collections wrap it
      first = first.__context__
    own = own_place(first) and not isinstance(first, UserError)
    if own and any(word.lstrip("-") == "debug" for word in argv):
      raise first from None
    fail(blame(first) if own else _said(error, argv))
  finally:
    logger.disabled = False


def _check_config() -> None:
  """Ends the program if --config gives no config.

  A mistake in the file is reported before jax is imported.
  """
  if not flags.FLAGS["config"].present:
    return
  where = f"--config={config_flags.get_config_filename(flags.FLAGS['config'])}"
  try:
    known = hasattr(_CONFIG.value, "to_dict")
  except OSError:
    fail(f"{where} cannot be read: check the path")
  if not known:
    fail(
      f"{where}: get_config() returns {_CONFIG.value!r:.100}; it must return"
      " the config, as in `return c`"
    )


def _said(error: Exception, argv: Sequence[str]) -> str:
  """Returns an error's last line, or the remedy if get_config() is missing."""
  module = getattr(getattr(error, "obj", None), "__name__", None)
  # ml_collections executes a config file under this name.
  loaded = module == "config_config"
  if loaded and getattr(error, "name", None) == "get_config":
    (file, *_) = [a for a in argv if a.lstrip("-").startswith("config=")]
    return (
      f"{file} has no function get_config(): write one that returns a config,"
      " such as splitjax.default()"
    )
  last = [line for line in str(error).splitlines() if line.strip()][-1]
  # absl puts the exception's name before the message.
  return last.strip().removeprefix("splitjax.types.UserError: ")
