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
import json
import logging
import os
import re
import shlex
import sys
import sysconfig
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from absl import flags
from absl import logging as absl_logging

from splitjax.config import loading
from splitjax.config.config import Config, assign, near, paths, within
from splitjax.config.sweep import Sweep, plan, read_axes
from splitjax.experiment.console import CTRL_C, Stopped, listening, say
from splitjax.fields import PLACE, Text, unknown
from splitjax.files import expanded, printable, reason
from splitjax.types import UserError

_INTERRUPTED = 130
_BROKEN_PIPE = 141
"""Exit statuses after Ctrl-C, and if nobody reads the output any more."""


class Command(NamedTuple):
  """A parsed command line."""

  flags: Any  #: the values of FLAGS
  plan: Sweep = Sweep([], None)  #: the checked runs of train and describe
  workdir: Path | None = None
  folders: Sequence[str | Path] = ()  #: of finished runs that report compares
  changes: Mapping[str, Any] = {}  #: field -> value, of evaluate
  file: str = ""  #: the config file, if it is a user's


# The four modes. The packages for training and figures are imported inside
# them, so that an error in a config is reported at once.


def train(command: Command) -> str:
  """Trains all unfinished runs and writes their reports."""
  from splitjax import target
  from splitjax.experiment import runs, workdirs

  workdir = command.workdir or Path()
  cells, seeds = command.plan
  machine = target.current()
  say(f"devices: {len(machine.devices)} × {machine.kind}")
  with listening() as stop:
    options: Any = {"stop": stop, "figures": command.flags.figures}
    if cells[0].values:
      results = runs.run_grid(cells, workdir, seeds, **options)
    elif workdirs.kind_of(workdir) == "grid":
      text = "holds a grid: sweep the same fields, or choose another"
      raise UserError(f"--workdir={workdir} {text}")
    elif seeds is None:
      results = runs.run(cells[0].config, workdir, **options)
    else:
      results = runs.run_seeds(cells[0].config, workdir, seeds, **options)
  return _summary(command, workdir, results)


def report(command: Command) -> str:
  """Rewrites the reports of a workdir from saved results, or compares runs."""
  from splitjax.experiment import reporting, workdirs

  into = command.workdir
  figures = command.flags.figures
  if into and not command.folders:
    again = reporting.report_again(into, figures=figures)
    return _summary(command, into, again)
  joined = reporting.collect(*map(expanded, command.folders))
  if into is None:
    return f"{joined}\n--workdir=FOLDER writes it as a report with figures"
  if workdirs.kind_of(into):
    text = "holds a run: choose another folder for the report"
    raise UserError(f"--workdir={into} {text}")
  return f"{joined}\nreport   {reporting.write(joined, into, figures)}"


def evaluate(command: Command) -> str:
  """Evaluates the networks of a workdir again."""
  from splitjax.experiment import evaluate_again

  workdir = command.workdir or Path()
  name = command.flags.evaluation
  figures = command.flags.figures
  results = evaluate_again(workdir, command.changes, name=name, figures=figures)
  return _summary(command, workdir, results, name)


def describe(command: Command) -> str:
  """Describes a config; for a grid, lists all cells and describes the first."""
  from splitjax.experiment import describe, workdirs

  cells, seeds = command.plan
  folder = command.workdir and command.workdir / workdirs.DESCRIBED
  facts = describe.describe_run(cells[0].config, folder)
  facts["runs"] = len(cells) * len(seeds or (0,))
  if cells[0].name:
    names = [cell.name for cell in cells]
    facts = {"cells": names, "seeds": seeds, "first": facts}
  as_json = command.flags.format == "json"
  return json.dumps(facts) if as_json else describe.describe_text(facts)


def _summary(
  command: Command, workdir: Path, results: Any, into: str = ""
) -> str:
  """Formats results for the terminal, with a call that loads a network.

  Only the first process has some.
  """
  if not results.runs:
    return ""
  run = results.runs[0]
  key = next(iter(run.settings["methods"]))
  config = command.file and f', config="{command.file}"'
  remarks = "".join(f"{remark}\n" for remark in results.remarks)
  return (
    f"{results}\n{remarks}"
    f"workdir  {workdir}\n"
    f"report   {workdir / into / 'report.md'}\n"
    f'load     splitjax.load("{run.folder}", "{key}"{config})'
  )


MODES = {
  "train": train,
  "evaluate": evaluate,
  "report": report,
  "describe": describe,
}
"""Mode -> the function that runs it and returns the text to print."""
_CONFIGURED = ("train", "describe")
"""Modes that need a config; the others read that of the workdir."""


# From the command line to a command.

FLAGS = flags.FlagValues()

for _name, _text in {
  "config": "A config file, the name of one of splitjax's own, or a run's"
  " config.json. report needs none: numbers and configs are stored.",
  "workdir": "Folder for everything that a run writes.",
  "data_dir": "Folder of all prepared data, as --config.data.dir.",
  "seeds": "Train once per seed: 0,1,2 is short for --sweep=seed=0,1,2.",
  "coordinator_address": "HOST:PORT of process 0, of several processes.",
}.items():
  flags.DEFINE_string(_name, None, _text, FLAGS)
for _name, _default, _text in (
  ("evaluation", "evaluate", "Name of an evaluation's folder."),
  ("compilation_cache", "~/.cache/splitjax", "Compiled programs; empty: none."),
):
  flags.DEFINE_string(_name, _default, _text, FLAGS)
for _name, _text in {
  "cpu_devices": "Number of devices that the CPU counts as, so that clients"
  " train on all cores; by default one per core, at most 8.",
  "num_processes": "Number of processes of the run.",
  "process_id": "Number of this process, from 0 on.",
}.items():
  flags.DEFINE_integer(_name, None, _text, flag_values=FLAGS)
for _choices, _text in {
  "mode train evaluate report describe": "train what is not finished in the"
  " workdir, then report; evaluate saved networks again; write tables and"
  " figures again; describe sizes, steps, FLOPs and traffic without training,"
  " and with --workdir draw the clients' data.",
  "figures report none all": "Which reports have figures. all: also those of"
  " seeds and of cells.",
  "format text json": "How describe prints.",
}.items():
  _name, *_values = _choices.split()
  flags.DEFINE_enum(_name, _values[0], _values, _text, FLAGS)
_text = (
  "Run once for each value of a field, as in --sweep=optimizer.lr=0.01,0.05;"
  " several flags: every combination."
)
flags.DEFINE_multi_string("sweep", [], _text, FLAGS)
flags.DEFINE_bool("debug", False, "Show the traceback of an error.", FLAGS)


def parse(argv: Sequence[str]) -> Command:
  """Reads a command line, with the program's name.

  Fields are found and values read before the config file is executed, which
  imports jax for its registries.

  Raises:
    UserError: a flag, a field or a value is wrong.
  """
  words = list(argv)
  if len(words) > 1 and words[1] in MODES:
    words[1] = f"--mode={words[1]}"
  arguments, changes = _split_fields(words)
  values = copy.deepcopy(FLAGS)
  folders = _read_flags(values, arguments)
  workdir = None if values.workdir is None else expanded(values.workdir)
  if values.data_dir is not None:
    changes["data.dir"] = Text(values.data_dir)
  if values.seeds is not None:
    values.sweep.append(f"seed={values.seeds}")
  _check_flags(values, folders, changes)
  if len(folders) == 1 and workdir is None:  # report DIR
    workdir = expanded(folders[0])
    folders = ()
  _look(changes, values.sweep)
  # The file registers methods and networks of its own: only now are names
  # and options known.
  command = Command(values, workdir=workdir, folders=folders, changes=changes)
  if not values.config:
    return command
  path, _ = loading.find(values.config)
  if loading.is_users(path) and path.suffix == ".py":
    command = command._replace(file=str(path))
  if values.mode in _CONFIGURED:
    runs = plan(loading.load(values.config), values.sweep, changes)
    return command._replace(plan=runs)
  if command.file:
    loading.execute(path)
  return command


def _split_fields(argv: Sequence[str]) -> tuple[list[str], dict[str, Text]]:
  """Takes --config.FIELD=VALUE out of the arguments -> the others, the fields.

  --config.FIELD VALUE does the same; --config.FIELD alone is True, and
  --noconfig.FIELD False. If a field is given twice, the last value counts.
  """
  arguments: list[str] = []
  fields: dict[str, Text] = {}
  words = list(argv)
  while words and words[0] != "--":
    word = words.pop(0)
    form = r"--?config\.([^=]+)(?:=(.*))?|--?noconfig\.([^=]+)"
    flag = re.fullmatch(form, word, re.DOTALL)
    if flag is None:
      arguments.append(word)
      continue
    field, text, negated = flag.groups()
    if text is None:
      # As absl has it for flags: a switch alone, or a value behind a space.
      alone = negated or not words or re.match(r"--?[a-z]", words[0])
      text = str(not negated) if alone else words.pop(0)
    fields[field or negated] = Text(text)
  return arguments + words, fields


def _read_flags(
  values: flags.FlagValues, arguments: Sequence[str]
) -> Sequence[str]:
  """Lets absl read the flags; returns the positional arguments."""
  try:
    return values(arguments)[1:]
  except flags.UnrecognizedFlagError as error:
    # Fields are often given as flags of their own, as other libraries have it.
    similar = difflib.get_close_matches(error.flagname, list(FLAGS), 1)
    similar = [f"--{flag}" for flag in similar]
    similar += [f"--config.{field}" for field in near(error.flagname)]
    hint = f"did you mean {' or '.join(similar)}?" if similar else "see --help"
    raise UserError(f"--{error.flagname}: unknown flag; {hint}") from None
  except flags.Error as error:
    text = str(error).strip().splitlines()[-1]
    raise UserError(text.strip().removeprefix("flag ")) from None


def _check_flags(
  values: flags.FlagValues, folders: Sequence[str], changes: Mapping[str, Text]
) -> None:
  """Raises UserError if flags are missing, or contradict each other."""
  mode = values.mode
  if folders and mode != "report":
    commands = [*MODES, "data"]
    raise UserError(unknown("splitjax", folders[0], commands, "command"))
  if "scale" in changes:
    # The field records the file's choice; setting it changes nothing.
    raise UserError("--config.scale: choose it as --config=FILE:small")
  sweeps = "--sweep" if values.seeds is None else "--seeds"
  for flag, present, modes in (
    ("--evaluation", values.evaluation != "evaluate", ("evaluate",)),
    (sweeps, bool(values.sweep), _CONFIGURED),
    *((f"--config.{f}", True, (*_CONFIGURED, "evaluate")) for f in changes),
  ):
    if present and mode not in modes:
      raise UserError(f"{flag} has no meaning with --mode={mode}: leave it out")
  if mode in _CONFIGURED and not values.config:
    text = "needs --config=FILE, or a name such as harmony:figure2,small"
    raise UserError(f"--config: --mode={mode} {text}")
  if mode != "describe" and not values.workdir and not folders:
    raise UserError(f"--workdir: --mode={mode} needs --workdir=FOLDER")


def _look(changes: Mapping[str, Text], swept: Sequence[str]) -> None:
  """Sets what lies in no registered name in a config of defaults.

  So a misspelt field is an error before the config file is executed.
  """
  fields = [*changes.items()]
  for path, texts in read_axes(swept).items():
    fields += [(path, text) for text in texts]
  names = [path for path, slot in paths().items() if slot.registry]
  for path, text in fields:
    if not within(path, names):
      assign(Config(), {path: text})


# Running a command, and its end.


def run() -> NoReturn:
  """Runs the program with its arguments, and exits."""
  _, *words = sys.argv
  if words[:1] == ["data"]:
    from splitjax.data.__main__ import main as data

    sys.exit(data(words[1:]))
  try:
    if not words or {"help", "-h", "-help", "--help"} & {*words}:
      print(f"{str(__doc__).strip()}\n{FLAGS.get_help()}")
      status = 0
    else:
      status = main(sys.argv)
    sys.stdout.flush()
  except BrokenPipeError:  # such as of `| head`; Python's exit flushes again
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    status = _BROKEN_PIPE
  if status == _INTERRUPTED:
    # A normal exit would wait for the running round.
    sys.stderr.flush()
    os._exit(status)
  sys.exit(status)


def main(argv: Sequence[str]) -> int:
  """Carries a command line out; returns the exit status."""
  try:
    command = parse(argv)
    _set_up(command.flags)
  except Exception as error:
    return fail(error, debug="--debug" in argv)
  return launch(command)


def _set_up(values: flags.FlagValues) -> None:
  """Sets up logs, cache and devices, and connects the processes of a run."""
  from splitjax.experiment import machine

  # Show libraries' warnings, such as jax's fallback to the CPU, but not
  # orbax's, which logs every thread; this program prints its errors itself.
  absl_logging.use_absl_handler()
  absl_logging.set_verbosity(absl_logging.WARNING)
  # What fails in orbax's threads fails in the run, too, which says it.
  for library in ("absl", "asyncio", "concurrent.futures"):
    logging.getLogger(library).setLevel("CRITICAL")
  if not values.debug:
    threading.excepthook = lambda _: None
  machine.keep_compiled(values.compilation_cache)
  # Processes that share a machine must say how many CPU devices each takes.
  if values.num_processes is None or values.cpu_devices is not None:
    machine.use_cores(values.cpu_devices)
  process = values.num_processes, values.process_id
  machine.connect(values.coordinator_address, *process)


def launch(command: Command) -> int:
  """Runs a command and prints its result; returns the exit status.

  A training that SIGTERM ends early has ended well: 0.
  """
  from splitjax.experiment import machine

  mode = command.flags.mode
  try:
    if mode != "train" and machine.is_distributed():
      text = "runs in one process: start it without the flags of several"
      raise UserError(f"--mode={mode} {text}")
    say(MODES[mode](command))
  except Stopped as stopped:
    line = shlex.join(["python", *sys.argv])
    remedy = f"the same command continues from there: {line}"
    say(f"stopped by {stopped.requester} ({stopped}); {remedy}")
    return _INTERRUPTED if stopped.requester == CTRL_C else 0
  except KeyboardInterrupt:
    remedy = "the same command continues from the newest checkpoint"
    text = f"interrupted: {remedy}" if mode == "train" else "interrupted"
    print(text, file=sys.stderr)
    return _INTERRUPTED
  except BrokenPipeError:
    raise
  except Exception as error:
    return fail(error, debug=command.flags.debug)
  return 0


def fail(error: Exception, *, debug: bool) -> int:
  """Prints an error as one line, or raises it; returns the exit status.

  An error that is nobody's mistake has its type and its place in the code.
  """
  if debug:
    raise error
  if isinstance(error, UserError | OSError):
    text = printable(error)
  elif "RESOURCE_EXHAUSTED" in str(error):
    cause = str(error).partition("\n")[0]
    remedy = "--config.system.clients_per_chunk or --config.eval.batch_size"
    text = f"the device's memory is full ({cause}): lower {remedy}"
  else:
    # The last line of the user's own code, else of any.
    homes = [sysconfig.get_path(x) for x in ("stdlib", "purelib", "platlib")]
    libraries = (str(Path(__file__).parent), *homes, "<frozen")
    frames = traceback.extract_tb(error.__traceback__)
    users = [x for x in frames if not x.filename.startswith(libraries)]
    frame = (users or frames)[-1]
    line = f"{Path(frame.filename).name}, line {frame.lineno}"
    notes = [x for x in getattr(error, "__notes__", ()) if x.startswith(PLACE)]
    field = "".join(f"{note.removeprefix(PLACE)}: " for note in notes[:1])
    text = f"{field}{reason(error)} ({line}); --debug shows the traceback"
  print(f"error: {text}", file=sys.stderr)
  return 2
