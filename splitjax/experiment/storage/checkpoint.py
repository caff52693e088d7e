"""States on disk: whole and verified, or not taken (orbax).

A checkpoint is a State with a record: whose it is, the log lines so far, and
a fingerprint of every leaf. One flipped byte in a file is restored by orbax
without a word; against the fingerprints it shows.
"""

import contextlib
import errno
import gc
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import orbax.checkpoint as ocp
from jax.sharding import Mesh

from splitjax.experiment.storage import fingerprint
from splitjax.experiment.storage.fingerprint import Damaged
from splitjax.types import Tree, UserError


class Kept(NamedTuple):
  """A checkpoint that was read and verified.

  Attributes:
    round: after which it was written.
    tree: what was kept.
    record: what was written with it, JSON.
  """

  round: int
  tree: Tree
  record: dict[str, Any]


def rounds_in(folder: Path) -> list[int]:
  """After which rounds a folder has checkpoints, whole ones."""
  return sorted(int(p.name) for p in folder.glob("*") if p.name.isdecimal())


def read_round(
  folder: Path, round: int, wanted: Callable[[dict[str, Any]], Tree]
) -> Kept:
  """Reads one checkpoint of a method, whatever becomes of the run.

  Args:
    folder: the method's checkpoints.
    round: after which it was written.
    wanted: as of `CheckpointManager.newest`.

  Raises:
    UserError: there is none, or it is damaged.
  """
  present = rounds_in(folder)
  if round not in present:
    raise UserError(
      f"{folder} holds no checkpoint after round {round} (there are: {present})"
    )
  options = ocp.CheckpointManagerOptions(read_only=True)
  with ocp.CheckpointManager(folder.resolve(), options=options) as manager:
    try:
      return read_step(manager, round, wanted, None)
    except Damaged as damage:
      raise UserError(
        f"{folder / str(round)} is damaged ({damage}): load another"
      ) from None


def read_step(
  manager: ocp.CheckpointManager,
  round: int,
  wanted: Callable[[dict[str, Any]], Tree],
  mesh: Mesh | None,
) -> Kept:
  """Reads a checkpoint and verifies it.

  Raises:
    Damaged: it is not what was written.
    UserError: as `wanted`.
  """
  args: Any = ocp.args

  def restore(**item):
    return _taken(lambda: manager.restore(round, args=args.Composite(**item)))

  found = restore(record=args.JsonRestore()).record
  record = fingerprint.opened(found)
  if record["round"] != round:
    raise Damaged(f"it was written after round {record['round']}")
  shapes = wanted(record)
  tree = restore(state=args.StandardRestore(shapes)).state
  fingerprint.verify(tree, record["leaves"], mesh)
  return Kept(round, tree, record)


def write(place: Path, tree: Tree, mesh: Mesh | None) -> dict[str, str]:
  """Writes a tree into a folder of its own, whole or not at all.

  Returns:
    The fingerprints of its leaves, for `read`.

  Raises:
    UserError: it could not be written.
  """
  try:
    with ocp.StandardCheckpointer() as saver:
      saver.save(place.resolve(), tree, force=True)
  except Exception as error:
    raise UserError(
      f"{place} could not be written ({reason(error)}): make room on the disk,"
      " then the same command goes on from the newest checkpoint"
    ) from error
  return fingerprint.of_leaves(tree, mesh)


def read(place: Path, shapes: Tree, leaves: dict[str, str]) -> Tree:
  """Reads what `write` wrote.

  Args:
    place: its folder.
    shapes: ShapeDtypeStructs with the places to read to.
    leaves: the fingerprints that `write` returned.

  Raises:
    Damaged: it is not what was written.
  """
  with ocp.StandardCheckpointer() as saver:
    tree = _taken(lambda: saver.restore(place.resolve(), shapes))
  fingerprint.verify(tree, leaves, None)
  return tree


def _taken(read: Callable[[], Any]) -> Any:
  """Reads; whatever orbax says against it is damage.

  Of the ways in which files can be broken it names few: ValueError, KeyError,
  FileNotFoundError and others. A file that cannot be read now, too many open
  files or memory that is full are no damage.
  """
  with _unheard():
    try:
      return read()
    except FileNotFoundError as error:
      said = reason(error)
    except (OSError, MemoryError, TypeError):
      raise
    except Exception as error:
      if "RESOURCE_EXHAUSTED" in str(error):
        raise
      code = re.search(r"os_error_code='?(\d+)", str(error))
      if code and int(code[1]) != errno.ENOENT:
        raise OSError(int(code[1]), reason(error)) from error
      said = reason(error)
    gc.collect()
  raise Damaged(said)


def reason(error: Exception) -> str:
  """The first line of what an error says, of a long one the end."""
  line = (str(error).strip() or type(error).__name__).splitlines()[0]
  return line if len(line) <= 200 else f"... {line[-196:]}"


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
  """What a failure leaves in orbax, coroutines that nobody awaits, goes.

  Python would tell of each on stderr, whenever it comes across it.
  """
  before, sys.unraisablehook = sys.unraisablehook, lambda _: None
  try:
    yield
  finally:
    sys.unraisablehook = before


def shapes(tree: Tree, sharding: Any) -> Tree:
  """ShapeDtypeStructs of a tree, to be read to one place or sharding."""
  return jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree
  )
