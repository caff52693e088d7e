"""A parsed command line, and a check that its flags suit the mode."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from splitjax.engine import distributed
from splitjax.types import UserError


@dataclasses.dataclass(frozen=True)
class Command:
  """The parsed command line; launch.py describes its flags.

  Attributes:
    config: the config as a nested dict; None: the config stored in the workdir.
      --mode=report always uses the stored config.
    workdir: output folder of a run. If it is given, --mode=describe writes
      figures there.
    swept: one text FIELD=VALUE,VALUE per swept field, see `sweep.plan`.
    overridden: field -> the value that the command line sets.
    file: path of the config file if it is a user's, else None.
    runs: finished workdirs that --mode=report compares.
    debug: if true, errors show their whole traceback.
  """

  mode: str
  config: Mapping[str, Any] | None = None
  workdir: str | None = None
  seeds: Sequence[str] | None = None
  as_json: bool = False
  swept: Sequence[str] = ()
  overridden: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  file: str | None = None
  runs: Sequence[str] = ()
  debug: bool = False


def check_flags(command: Command, modes: Collection[str]) -> None:
  """Raises UserError if flags contradict each other or do not suit the mode.

  `modes` are the names of all modes.
  """
  if command.mode != "train" and distributed.is_distributed():
    raise UserError(
      f"--mode={command.mode} runs in one process: start it without the flags"
      " of several"
    )
  if command.runs and command.mode != "report":
    word = command.runs[0]
    remedy = f": the flag is --mode={word}" if word in modes else ""
    raise UserError(f"unknown argument {word!r}{remedy}")
  swept = [text.partition("=")[0] for text in command.swept]
  for flag, given, used in (
    ("--seeds", command.seeds is not None, ("train",)),
    ("--format=json", command.as_json, ("describe",)),
    ("--sweep=seed", "seed" in swept, ("train", "describe")),
    ("--sweep", bool(command.swept), ("train", "describe", "evaluate")),
    *(
      (f"--config.{field}", True, ("train", "describe", "evaluate"))
      for field in command.overridden
    ),
  ):
    if given and command.mode not in used:
      raise UserError(
        f"{flag} has no meaning with --mode={command.mode}: leave it out"
      )
  if command.seeds is not None and "seed" in (*command.overridden, *swept):
    raise UserError(
      f"--seeds={','.join(command.seeds)}: the command line sets the seed"
      " another time; leave one of them out"
    )
