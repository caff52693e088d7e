"""The rounds of a method on the disk: its log and its checkpoints.

orbax writes, reads, keeps and deletes checkpoints. Ours is what it lacks: one
digest over a state's leaves, taken before they are written and compared after
they are read. A checkpoint also has the log, which is written again from it.
"""

import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from jax.sharding import SingleDeviceSharding
from orbax.checkpoint import checkpoint_managers as policies

from splitjax import files, target
from splitjax.config.config import Checkpoint
from splitjax.evaluation.subject import Line
from splitjax.experiment import machine
from splitjax.experiment.console import say
from splitjax.experiment.workdirs import CHECKPOINTS, ROUNDS
from splitjax.files import Damaged
from splitjax.types import State, Tree, UserError

_PAUSE = 60.0
"""Least seconds between checkpoints if `Checkpoint.every` is "auto"."""


# What a training knows beside its state.


@dataclasses.dataclass(kw_only=True)
class Record:
  """What a checkpoint holds beside the state; JSON.

  Attributes:
    log: the lines of the rounds that are done, as texts.
    hardware: `machine.hardware` where they were trained.
    seconds: wall time by activity: "train", "compile" and "evaluate".
    notes: sentences for a reader of the report.
    digest: of the state.
    form: digest of the paths, dtypes and shapes of its leaves.
  """

  log: list[str] = dataclasses.field(default_factory=list)
  hardware: str = ""
  seconds: dict[str, float] = dataclasses.field(
    default_factory=lambda: dict(train=0.0, compile=0.0, evaluate=0.0)
  )
  notes: list[str] = dataclasses.field(default_factory=list)
  digest: str = ""
  form: str = ""

  @property
  def round(self) -> int:
    """The number of rounds that are done."""
    return len(self.log)

  @property
  def lines(self) -> Iterator[Line]:
    """The lines of these rounds."""
    return map(json.loads, self.log)

  def take_last(self) -> Line:
    """Takes out the last line; {} if there is none."""
    return json.loads(self.log.pop()) if self.log else {}

  def write(self, method_dir: Path) -> None:
    """Makes rounds.jsonl what is known here; a killed process left another."""
    path = method_dir / ROUNDS
    content = "".join(self.log).encode()
    if machine.is_first_process() and (files.read(path) or b"") != content:
      files.write(path, content)

  def append(self, line: Line, method_dir: Path) -> None:
    """Adds the line of a round, also to rounds.jsonl."""
    text = json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n"
    self.log.append(text)
    if machine.is_first_process():
      files.append(method_dir / ROUNDS, text.encode())


# Checkpoints.


class Checkpoints:
  """Writes a method's checkpoints while it trains on."""

  def __init__(self, method_dir: Path, chosen: Checkpoint):
    """Opens them; call it after `restore`."""
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

  def save(self, state: State, record: Record) -> None:
    """Starts a checkpoint, unless the round has one.

    The state may be donated once this returns.
    """
    record = dataclasses.replace(record, digest=digest(state), form=form(state))
    items = ocp.args.Composite(
      state=ocp.args.StandardSave(state),
      record=ocp.args.JsonSave(files.sealed(dataclasses.asdict(record))),
    )
    with self._explained():
      if self._manager.latest_step() != record.round:
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


def restore(method_dir: Path, like: State) -> tuple[State, Record] | None:
  """Reads the newest sound checkpoint, as `read`; None if there is none at all.

  Newer ones that are damaged are put aside. Raises UserError if all are, or if
  a file cannot be read now.
  """
  steps = steps_of(method_dir)[::-1]
  for step in steps:
    try:
      return read(method_dir, step, like)
    except Damaged as damage:
      say(f"checkpoint of round {step} is damaged ({damage}): put aside")
    # orbax saves no step that is older than its newest.
    if machine.is_first_process():
      path = method_dir / CHECKPOINTS / str(step)
      damaged = method_dir / "damaged"
      with files.explained("moved", path):
        damaged.mkdir(exist_ok=True)
        path.rename(damaged / f"{step}-{len(files.names(damaged))}")
    machine.wait_for_all("put aside")
  if steps:
    raise UserError(
      f"{method_dir}: no checkpoint is sound; they are now in damaged/, and the"
      " same command starts from the first round"
    )
  return None


def read(method_dir: Path, step: int, like: State) -> tuple[State, Record]:
  """Reads the checkpoint after round `step` onto the host, without padding.

  `like` has shapes and dtypes of the state. Raises Damaged if it is not what
  was written, UserError if there is none or it cannot be read.
  """
  steps = steps_of(method_dir)
  if step not in steps:
    raise UserError(
      f"{method_dir} holds no checkpoint after round {step}; there are {steps}"
    )
  path = method_dir / CHECKPOINTS / str(step)
  _read_all(path)
  remedy = "train on, which takes the checkpoint before"
  body = files.read_sealed(path / "record" / "metadata", remedy)
  if body is None:
    raise Damaged(f"{path} has no record: {remedy}")
  if body.get("form") != form(like):
    raise UserError(
      f"{path} has another state than this version of splitjax: use the"
      " version that wrote it, or train in a new folder"
    )
  record = Record(**body)
  wanted = ocp.args.StandardRestore(jax.tree.map(_on_host, like))
  items = ocp.args.Composite(state=wanted)
  try:
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as reader:
      state = reader.restore(path.resolve(), items).state
  except (FileNotFoundError, NotADirectoryError) as error:
    raise Damaged(f"{path}: files are missing") from error
  except Exception as error:  # orbax's errors share no base class
    # What cannot be read now, for lack of memory or of descriptors, is not
    # damaged; the files themselves could be read.
    transient = isinstance(error, OSError | MemoryError | RuntimeError)
    if transient or files.system_code(error):
      raise files.unusable("read", path, error) from error
    raise Damaged(f"{path}: {type(error).__name__}") from error
  if record.round != step or record.digest != digest(state):
    raise Damaged(f"{path} is not what was written")
  clients = jax.tree.map(
    lambda leaf, real: leaf[: real.shape[0]], state.clients, like.clients
  )
  return state._replace(clients=clients), record


def _read_all(folder: Path) -> None:
  """Reads all files, so that what orbax then raises can only mean damage."""
  for path in map(folder.joinpath, files.names(folder)):
    (_read_all if path.is_dir() else files.read)(path)


def _is_key(leaf: Any) -> bool:
  return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _on_host(leaf: jax.ShapeDtypeStruct) -> Any:
  """Tells orbax to read a leaf into an array of numpy, which has no keys."""
  if not _is_key(leaf):
    return np.empty(0, leaf.dtype)
  device = SingleDeviceSharding(target.current().local[0])
  return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=device)


def form(tree: Tree) -> str:
  """Returns a digest of the paths, dtypes and shapes of a tree's leaves.

  Leading axes are left out: those of clients may have padding.
  """
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  lines = [
    f"{jax.tree_util.keystr(path)} {leaf.dtype} {leaf.shape[1:]}"
    for path, leaf in leaves
  ]
  return files.digest("\n".join(lines).encode())


def digest(tree: Tree) -> str:
  """Returns a digest of a tree's leaves: their forms and their bytes.

  All processes must call it: leaves that are divided among them are gathered.
  """
  total = hashlib.sha256(form(tree).encode())
  for leaf in jax.tree.leaves(tree):
    array = jax.random.key_data(leaf) if _is_key(leaf) else leaf
    if not getattr(array, "is_fully_addressable", True):
      array = multihost_utils.process_allgather(array, tiled=True)
    total.update(np.asarray(array).tobytes())
  return total.hexdigest()
