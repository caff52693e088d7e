"""The command `splitjax`, also `python -m splitjax` and `python launch.py`.

  splitjax train --config=quickstart --workdir=runs/quickstart
  splitjax train --config=FILE.py:WORDS --workdir=DIR --config.optimizer.lr=0.05
  splitjax describe --config=harmony:figure2,small
  splitjax evaluate --workdir=DIR --config.eval.rhos=0,0.5 --evaluation=NAME
  splitjax report DIR [DIR ...] [--workdir=DIR]   one table over several folders
  splitjax data prepare

--config takes a file, the name of one that comes with splitjax, or a run's
config.json to repeat it; words follow a colon. --config.FIELD=VALUE sets a
field: --config.rounds=60, --config.methods=harmony,fedavg,
--config.data.partition="dirichlet(alpha=0.3)". A mistake is one line, with exit
status 2; fields and values are read before jax is imported.
"""

import copy
import difflib
import os
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from logging import getLogger
from pathlib import Path
from typing import NoReturn

from absl import flags

from splitjax import commands
from splitjax.commands import Command
from splitjax.config import loading, tree
from splitjax.config.config import Config
from splitjax.config.sweep import Sweep, check_seeds, plan, read_axis
from splitjax.fields import Text, unknown
from splitjax.files import print_anywhere
from splitjax.types import UserError

CONFIGURED = ("train", "describe")
"""Modes that need a config; the others read that of the workdir."""
MODES = (*CONFIGURED, "evaluate", "report")
HELP = ("-h", "-help", "--help", "help")

FLAGS = flags.FlagValues()
TEXTS = {
  "config": "A config file, the name of one of splitjax's own, or a run's"
  " config.json. report needs none: numbers and configs are stored.",
  "workdir": "Folder for everything that a run writes.",
  "data_dir": "Folder of all prepared data; the same as --config.data.dir.",
  "seeds": "Train once per seed, as in --seeds=0,1,2, and report over them.",
  "evaluation": "Name of the folder of an evaluation; by default evaluate.",
  "coordinator_address": "HOST:PORT of process 0, for several processes.",
}
NUMBERS = {
  "cpu_devices": "Number of devices that the CPU counts as, so that clients"
  " train on all cores; by default one per core, at most 8.",
  "num_processes": "Number of processes of the run.",
  "process_id": "Number of this process, from 0 on.",
}
CHOICES = {
  "mode": (
    "train: train what is not finished in the workdir, then report. evaluate:"
    " evaluate the saved networks again, with other fields of eval if given."
    " report: write tables and figures again; of several folders (report DIR"
    " DIR) one table over all. describe: print sizes, steps, FLOPs and traffic"
    " without training; with --workdir also draw the clients' data.",
    *MODES,
  ),
  "figures": (
    "Which reports have figures. all: also those of seeds and of cells.",
    *("report", "none", "all"),
  ),
  "format": ("How describe prints.", "text", "json"),
}
"""Flag -> its description, and its values from the default on."""

for _name, _text in TEXTS.items():
  usual = "evaluate" if _name == "evaluation" else None
  flags.DEFINE_string(_name, usual, _text, FLAGS)
for _name, _text in NUMBERS.items():
  flags.DEFINE_integer(_name, None, _text, flag_values=FLAGS)
for _name, (_text, *_values) in CHOICES.items():
  flags.DEFINE_enum(_name, _values[0], _values, _text, FLAGS)
flags.DEFINE_multi_string(
  "sweep",
  [],
  "Run once for each value of a field, as in --sweep=optimizer.lr=0.01,0.05;"
  " several flags: every combination.",
  FLAGS,
)
flags.DEFINE_string(
  "compilation_cache",
  "~/.cache/splitjax",
  "Folder of compiled programs; an empty string disables it.",
  FLAGS,
)
flags.DEFINE_bool("debug", False, "Show the traceback of an error.", FLAGS)


def parse(argv: Sequence[str]) -> tuple[Command, flags.FlagValues]:
  """Reads a command line, with the program's name -> the command, all flags.

  Fields are found and values read before the config file is executed, which
  imports jax for its registries.

  Raises:
    UserError: a flag, a field or a value is wrong.
  """
  words = list(argv)
  if len(words) > 1 and words[1] in MODES:
    doubled = [w for w in words[2:] if w.lstrip("-").startswith("mode=")]
    if doubled:
      raise UserError(f"{doubled[0]}: the command is {words[1]}; leave it out")
    words[1] = f"--mode={words[1]}"
  values, folders, overridden = read_flags(words)
  check_flags(values, folders, overridden)
  look(overridden, values.sweep)
  # The file registers methods and networks of its own: only now are names
  # and options known.
  runs = Sweep([], None)
  file = None
  if values.config:
    path, _ = loading.find(values.config)
    file = str(path) if loading.is_own(path) and path.suffix == ".py" else None
    if values.mode in CONFIGURED:
      runs = plan(loading.load(values.config), values.sweep, overridden)
    elif file is not None:
      loading.execute(path)
  command = Command(
    mode=values.mode,
    workdir=Path(values.workdir).expanduser() if values.workdir else None,
    plan=runs,
    seeds=check_seeds(values.seeds, "--seeds") if values.seeds else None,
    changes=overridden,
    evaluation=values.evaluation,
    file=file,
    runs=tuple(folders),
    figures=values.figures,
    as_json=values.format == "json",
    debug=values.debug,
  )
  return command, values


def read_flags(
  argv: Sequence[str],
) -> tuple[flags.FlagValues, list[str], dict[str, Text]]:
  """Lets absl read the flags -> values, positional arguments, fields."""
  values = copy.deepcopy(FLAGS)
  try:
    words = values.read_flags_from_files(argv, force_gnu=False)
    arguments, overridden = split(words)
    runs = values(arguments)[1:]
    if values.data_dir is not None:
      overridden["data.dir"] = Text(values.data_dir)
    return values, runs, overridden
  except flags.UnrecognizedFlagError as error:
    # Fields are often given as flags of their own, as other libraries have it.
    similar = difflib.get_close_matches(error.flagname, list(FLAGS), 1)
    similar = [f"--{flag}" for flag in similar]
    similar += [f"--config.{field}" for field in tree.near(error.flagname)]
    hint = f"did you mean {' or '.join(similar)}?" if similar else "see --help"
    raise UserError(f"--{error.flagname}: unknown flag; {hint}") from None
  except flags.Error as error:
    *_, text = str(error).strip().splitlines()
    text = text.strip().removeprefix("flag ")
    text = text.replace("ERROR:: Unable", "--flagfile: unable")
    raise UserError(text) from None


def split(argv: Sequence[str]) -> tuple[list[str], dict[str, Text]]:
  """Takes --config.FIELD=VALUE out of the arguments -> the others, the fields.

  --config.FIELD VALUE does the same; --config.FIELD alone is True, and
  --noconfig.FIELD False. If a field is given twice, the last value counts.
  """
  arguments: list[str] = []
  overridden: dict[str, Text] = {}
  words = list(argv)
  while words and words[0] != "--":
    word = words.pop(0)
    flag = re.fullmatch(r"--?(no)?config\.([^=]+)(?:=(.*))?", word, re.DOTALL)
    if flag is None:
      arguments.append(word)
      continue
    negated, path, text = flag.groups()
    if negated and text is not None:
      raise UserError(
        f"{word}: takes no value; give --noconfig.{path} or"
        f" --config.{path}=VALUE"
      )
    if text is None:
      # As absl has it for flags: a switch alone, or a value behind a space.
      text = "False" if negated else "True"
      if not negated and words and not re.match(r"--?[a-z]", words[0]):
        text = words.pop(0)
    overridden[path] = Text(text)
  return arguments + words, overridden


def check_flags(
  values: flags.FlagValues, runs: Sequence[str], overridden: Mapping[str, Text]
) -> None:
  """Raises UserError if flags are missing, or contradict each other."""
  mode = values.mode
  swept = [text.partition("=")[0] for text in values.sweep]
  if runs and mode != "report":
    raise UserError(unknown("splitjax", runs[0], [*MODES, "data"], "command"))
  if values.workdir is not None and not values.workdir.strip():
    raise UserError("--workdir: is empty; name a folder")
  if "scale" in overridden:
    # The field records the file's choice; setting it changes nothing.
    raise UserError("--config.scale: choose it as --config=FILE:small")
  for flag, present, modes in (
    ("--seeds", values.seeds is not None, ("train",)),
    ("--format=json", values.format == "json", ("describe",)),
    ("--evaluation", values["evaluation"].present, ("evaluate",)),
    ("--sweep", bool(swept), CONFIGURED),
    *((f"--config.{f}", True, (*CONFIGURED, "evaluate")) for f in overridden),
  ):
    if present and mode not in modes:
      raise UserError(f"{flag} has no meaning with --mode={mode}: leave it out")
  if values.seeds is not None:
    check_seeds(values.seeds, "--seeds")
    if "seed" in (*overridden, *swept):
      text = "the command line sets the seed another time; leave one out"
      raise UserError(f"--seeds={values.seeds}: {text}")
  if mode in CONFIGURED and not values.config:
    text = "needs --config=FILE, or a name such as harmony:figure2,small"
    raise UserError(f"--config: --mode={mode} {text}")
  if mode != "describe" and not values.workdir and not runs:
    raise UserError(f"--workdir: --mode={mode} needs --workdir=FOLDER")


def look(overridden: Mapping[str, Text], swept: Sequence[str]) -> None:
  """Sets what lies in no registered name in a config of defaults.

  So a misspelt field is an error before the config file is executed.
  """
  settings = [overridden]
  for path, texts in map(read_axis, swept):
    settings += [{path: text} for text in texts]
  for values in settings:
    slots = {path: tree.slot_of(path) for path in values}
    named = {path for path, slot in slots.items() if slot and slot.registry}
    tree.assign(Config(), {p: x for p, x in values.items() if p not in named})


def run() -> NoReturn:
  """Runs the program with its arguments, and exits."""
  print_anywhere()
  _, *words = sys.argv
  if words[:1] == ["data"]:
    from splitjax.data.__main__ import run as data

    data(words[1:])
  if not words or words[0] == "help" or {*HELP[:-1]} & {*words}:
    print(f"{str(__doc__).strip()}\n{FLAGS.get_help()}")
    sys.exit(0)
  status = main(sys.argv)
  if status == commands.INTERRUPTED:
    # A normal exit would wait for the running round.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
  sys.exit(status)


def main(argv: Sequence[str]) -> int:
  """Carries a command line out; returns the exit status.

  With --debug an error is raised instead of printed.
  """
  try:
    command, values = parse(argv)
    _join(values)
  except Exception as error:
    if "--debug" in argv:
      raise
    return commands.fail(error)
  return commands.launch(command)


def _join(values: flags.FlagValues) -> None:
  """Sets up the cache and the devices, and connects the processes of a run."""
  from absl import logging

  from splitjax.experiment import machine

  # Show libraries' warnings, such as jax's fallback to the CPU, but not
  # orbax's, which logs every thread; this program prints its errors itself.
  logging.use_absl_handler()
  logging.set_verbosity(logging.WARNING)
  logging.get_absl_logger().setLevel("CRITICAL")
  # What fails in orbax's threads fails in the run, too, which says it.
  for library in ("asyncio", "concurrent.futures"):
    getLogger(library).setLevel("CRITICAL")
  if not values.debug:
    threading.excepthook = lambda _: None
  machine.keep_compiled(values.compilation_cache)
  # Processes that share a machine must say how many CPU devices each takes.
  if values.num_processes is None or values.cpu_devices is not None:
    machine.use_cores(values.cpu_devices)
  process = values.num_processes, values.process_id
  machine.initialize(values.coordinator_address, *process)
  machine.check_platform()
