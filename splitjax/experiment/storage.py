"""The rounds of a method on the disk: its log and its checkpoints.

orbax writes, reads, keeps and deletes checkpoints. Ours is what it lacks: one
digest over a state's leaves, taken before they are written and compared after
they are read, and a log that is cut, or rebuilt, to what the checkpoint knows.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from orbax.checkpoint import checkpoint_managers as policies

from splitjax import files
from splitjax.config.config import Checkpoint
from splitjax.evaluation.subject import Line
from splitjax.experiment import machine
from splitjax.experiment.console import say
from splitjax.experiment.workdirs import CHECKPOINTS, ROUNDS
from splitjax.files import Damaged
from splitjax.types import State, Tree, UserError

_DAMAGED = "damaged"
"""The folder of checkpoints that are not what was written."""

_PAUSE = 60.0
"""Least seconds between checkpoints if `Checkpoint.every` is "auto"."""

_Wanted = Callable[[Sequence[int]], Tree]
"""Maps the numbers of clients in the saved cohorts, padding included, to the
shapes, dtypes and shardings of what was saved (ShapeDtypeStructs)."""


# The log.


class Log:
  """The lines of a method's rounds, on the disk alone.

  With several processes only the first one writes.
  """

  def __init__(self, method_dir: Path):
    """Changes nothing on the disk; `method_dir` is the method's folder."""
    self._path = method_dir / ROUNDS
    self._digest = hashlib.sha256()

  def restore(self, text: str) -> None:
    """Makes the log what it was when a checkpoint was written.

    Lines of later rounds, which a killed process may have added, are dropped;
    a log that lost or changed lines is written again.
    """
    expected = text.encode()
    self._digest = hashlib.sha256(expected)
    if not machine.is_first_process():
      return
    content = files.read(self._path) or b""
    if not content.startswith(expected):
      say(f"{self._path} is not what was written: rebuilt from a checkpoint")
    if content != expected:
      files.write(self._path, expected)

  def append(self, line: Line) -> None:
    """Adds the line of a round."""
    if not machine.is_first_process():
      return
    text = json.dumps(line, allow_nan=False, separators=(",", ":"))
    content = text.encode() + b"\n"
    files.append(self._path, content)
    self._digest.update(content)

  def text(self) -> str:
    """Reads all lines, once they are on the disk; "" in other processes.

    Raises UserError if they are not those that were appended.
    """
    if not machine.is_first_process():
      return ""
    content = files.read(self._path) or b""
    if hashlib.sha256(content).digest() != self._digest.digest():
      raise UserError(
        f"{self._path} was changed while the training ran: start the same"
        " command again"
      )
    if content:
      with (
        files.explained("written", self._path),
        self._path.open("rb") as file,
      ):
        os.fsync(file.fileno())  # survives a power failure
    return content.decode()

  def __iter__(self) -> Iterator[Line]:
    content = files.read(self._path) or b""
    return map(json.loads, content.splitlines())


# Checkpoints.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
  """What a checkpoint knows beside the state; JSON.

  Attributes:
    round: the rounds that are done.
    widths: numbers of clients in the state's cohorts, padding included.
    conditions: what the bits of results depend on beside the config.
    seconds: wall time by activity: "train", "compile" and "evaluate".
    notes: sentences for a reader of the report.
    masked: whether a round left out what was not finite.
    digests: of what was written beside: "state", its "form", "log".
  """

  round: int = 0
  widths: list[int] = dataclasses.field(default_factory=list)
  conditions: dict[str, str] = dataclasses.field(default_factory=dict)
  seconds: dict[str, float] = dataclasses.field(
    default_factory=lambda: dict(train=0.0, compile=0.0, evaluate=0.0)
  )
  notes: list[str] = dataclasses.field(default_factory=list)
  masked: bool = False
  digests: dict[str, str] = dataclasses.field(default_factory=dict)


class Kept(NamedTuple):
  """A checkpoint as it was written."""

  record: Record
  state: State  #: after the record's round, padding included
  log: str  #: the lines of all rounds

  def digests(self) -> dict[str, str]:
    """Returns the digests of what is kept, see `Record`."""
    return {
      "state": digest(self.state),
      "form": form(self.state),
      "log": files.digest(self.log.encode()),
    }


class Checkpoints:
  """Writes a method's checkpoints while it trains on."""

  def __init__(self, method_dir: Path, chosen: Checkpoint):
    """Opens them after `restore`; `method_dir` is the method's folder."""
    self._folder = method_dir / CHECKPOINTS
    self._chosen = chosen
    options = ocp.CheckpointManagerOptions(
      preservation_policy=policies.LatestN(chosen.keep),
      cleanup_tmp_directories=True,  # of a killed process
    )
    with self._explained():
      self._manager = ocp.CheckpointManager(
        self._folder.resolve(), options=options
      )
    self._saved = time.monotonic()

  def due(self, number: int) -> bool:
    """Checks if a checkpoint is to be written after this round."""
    if self._chosen.every != "auto":
      return number % self._chosen.every == 0
    # orbax would compare times of day, which a clock may change.
    late = time.monotonic() - self._saved > _PAUSE
    return bool(machine.of_first(late))

  def save(self, snapshot: Kept) -> None:
    """Starts a checkpoint; the state may be donated once this returns.

    Digests are added to the record.
    """
    record = dataclasses.replace(snapshot.record, digests=snapshot.digests())
    items = ocp.args.Composite(
      state=ocp.args.StandardSave(snapshot.state),
      record=ocp.args.JsonSave(files.sealed(dataclasses.asdict(record))),
      log=ocp.args.JsonSave({"lines": snapshot.log}),
    )
    with self._explained():
      self._manager.save(record.round, args=items, force=True)
    self._saved = time.monotonic()

  def close(self) -> None:
    """Waits until all is written."""
    with self._explained():
      self._manager.close()

  @contextlib.contextmanager
  def _explained(self) -> Iterator[None]:
    try:
      yield
    except Exception as error:  # orbax raises whatever its threads raised
      raise files.unusable("written", self._folder, error) from error


def steps_of(method_dir: Path) -> list[int]:
  """Lists the rounds of the checkpoints in a method's folder, ascending."""
  names = files.names(method_dir / CHECKPOINTS)
  return sorted(int(name) for name in names if name.isdecimal())


def path_of(method_dir: Path, number: int) -> Path:
  """Returns the folder of the checkpoint after a round.

  Raises UserError if there is none.
  """
  steps = steps_of(method_dir)
  if number not in steps:
    raise UserError(
      f"{method_dir} holds no checkpoint after round {number} (there are:"
      f" {steps})"
    )
  return method_dir / CHECKPOINTS / str(number)


def restore(method_dir: Path, wanted: _Wanted) -> Kept | None:
  """Reads the newest sound checkpoint in a method's folder.

  Newer ones that are not sound are put aside, with a line. Returns None if
  there is no checkpoint. Raises UserError if a file cannot be read now, or if
  no checkpoint is sound.
  """
  steps = steps_of(method_dir)[::-1]
  for step in steps:
    path = path_of(method_dir, step)
    try:
      return read(path, wanted)
    except Damaged as damage:
      say(f"checkpoint of round {step} is damaged ({damage}): put aside")
    if machine.is_first_process():
      damaged = method_dir / _DAMAGED
      with files.explained("moved", path):
        damaged.mkdir(exist_ok=True)
        path.rename(damaged / f"{step}-{len(files.names(damaged))}")
    machine.wait_for_all("put aside")
  if steps:
    raise UserError(
      f"{method_dir}: no checkpoint is sound; they are now in {_DAMAGED}/, and"
      " the same command starts from the first round"
    )
  return None


def read(path: Path, wanted: _Wanted) -> Kept:
  """Reads a checkpoint; raises Damaged if it is not what was written."""
  _read_all(path)
  with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as reader:

    def item(**args: Any) -> Any:
      try:
        return reader.restore(path.resolve(), ocp.args.Composite(**args))
      except (FileNotFoundError, NotADirectoryError) as error:
        raise Damaged(f"{path}: files are missing") from error
      except Exception as error:  # orbax's errors share no base class
        # What cannot be read now, for lack of memory or of descriptors, is not
        # damaged; the files themselves could be read.
        transient = isinstance(error, OSError | MemoryError | RuntimeError)
        if transient or files.system_code(error):
          raise files.unusable("read", path, error) from error
        raise Damaged(f"{path}: {type(error).__name__}") from error

    seal = item(record=ocp.args.JsonRestore()).record
    body = {k: v for k, v in seal.items() if k != files.SEAL}
    if seal != files.sealed(body):
      raise Damaged(f"{path}: its record is not what was written")
    record = Record(**body)
    if record.round != int(path.name):
      raise Damaged(f"{path} was written after round {record.round}")
    like = wanted(record.widths)
    if form(like) != record.digests["form"]:
      raise UserError(
        f"{path} has another state than this version of splitjax: use the"
        " version that wrote it, or train in a new folder"
      )
    state = item(state=ocp.args.StandardRestore(like)).state
    log = item(log=ocp.args.JsonRestore()).log["lines"]
  snapshot = Kept(record=record, state=state, log=log)
  if snapshot.digests() != record.digests:
    raise Damaged(f"{path} is not what was written")
  return snapshot


def _read_all(folder: Path) -> None:
  """Reads all files, so that what orbax then raises can only mean damage."""
  for name in files.names(folder):
    path = folder / name
    if path.is_dir():
      _read_all(path)
    else:
      files.read(path)


def form(tree: Tree) -> str:
  """Returns a digest of the paths, dtypes and shapes of a tree's leaves."""
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  lines = [
    f"{jax.tree_util.keystr(path)} {leaf.dtype} {leaf.shape}"
    for path, leaf in leaves
  ]
  return files.digest("\n".join(lines).encode())


def digest(tree: Tree) -> str:
  """Returns a digest of a tree's leaves: their forms and their bytes.

  Leaves that are divided among several processes are gathered, so all processes
  must call this function.
  """
  total = hashlib.sha256(form(tree).encode())
  for leaf in jax.tree.leaves(tree):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      leaf = jax.random.key_data(leaf)
    total.update(multihost_utils.process_allgather(leaf, tiled=True).tobytes())
  return total.hexdigest()
