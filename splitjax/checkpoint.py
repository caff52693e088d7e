"""States on disk: whole and verified, or not taken (orbax).

A checkpoint is a State with a record: whose it is, the log lines so far, and
a fingerprint of every leaf. One flipped byte in a file is restored by orbax
without a word; against the fingerprints it shows.
"""

import gc
import shutil
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import orbax.checkpoint as ocp
from jax.sharding import Mesh
from orbax.checkpoint import checkpoint_managers as policies

from splitjax import fingerprint, hosts
from splitjax.fingerprint import Damaged
from splitjax.progress import say
from splitjax.types import Tree, UserError

DAMAGED = "damaged"
"""Folder beside the checkpoints for those that were not taken."""

PAUSE = 60.0
"""Seconds between checkpoints where their rounds are not given."""


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


class Keeper:
  """The checkpoints of one method while it trains.

  Attributes:
    folder: holds one folder per checkpoint, named by its round.
  """

  def __init__(
    self,
    folder: Path,
    *,
    every: int | Literal["auto"],
    keep: int,
    best: str | None,
    keep_best: int,
    mesh: Mesh | None,
  ):
    """Opens the folder, made if need be.

    Args:
      folder: the method's, for checkpoints alone.
      every: rounds between two; "auto": PAUSE seconds.
      keep: how many of the newest stay.
      best: metric by which others stay, too: "loss" (the smaller the better)
        or another (the larger); None: none do.
      keep_best: how many of those.
      mesh: the devices that states lie on; None for one.
    """
    self.folder, self._every, self._mesh = folder, every, mesh
    self._best = best
    self._saved = time.monotonic()
    newest: Any = policies.LatestN(keep)
    policy = newest
    if best is not None:
      good = policies.BestN(
        get_metric_fn=lambda metrics: metrics[best],
        n=keep_best,
        reverse=best == "loss",
        keep_checkpoints_without_metrics=False,
      )
      policy = policies.AnyPreservationPolicy([newest, good])
    self._manager = ocp.CheckpointManager(
      folder.resolve(),
      options=ocp.CheckpointManagerOptions(
        preservation_policy=policy, cleanup_tmp_directories=True
      ),
    )

  def due(self, round: int, last: bool) -> bool:
    """Whether a checkpoint is to be written after this round.

    Args:
      round: that is over.
      last: it is the last one: what is trained is saved elsewhere then, and
        here only as a candidate for the best.
    """
    if last:
      return self._best is not None
    if self._every != "auto":
      return round % self._every == 0
    (late,) = hosts.of_first([time.monotonic() - self._saved > PAUSE])
    return late

  def save(
    self, round: int, tree: Tree, record: dict[str, Any], metrics: dict
  ) -> None:
    """Begins to write a checkpoint; the next round may begin meanwhile.

    Args:
      round: that is over.
      tree: to keep; it may be donated afterwards.
      record: JSON.
      metrics: name -> number, for `best`; those that do not exist left out.

    Raises:
      UserError: this one or the one before could not be written.
    """
    found = fingerprint.of_leaves(tree, self._mesh)
    record = fingerprint.sealed({**record, "round": round, "leaves": found})
    item: Any = ocp.args
    ranked = self._best in metrics
    try:
      self._manager.save(
        round,
        args=item.Composite(
          state=item.StandardSave(tree), record=item.JsonSave(record)
        ),
        metrics=metrics if ranked else None,
      )
    except Exception as error:
      raise _unwritten(self.folder, round, error) from error
    self._saved = time.monotonic()

  def wait(self) -> None:
    """Waits until what was saved is on the disk.

    Raises:
      UserError: it could not be written.
    """
    try:
      self._manager.wait_until_finished()
    except Exception as error:
      raise _unwritten(self.folder, None, error) from error

  def rounds(self) -> set[int]:
    """After which rounds there are checkpoints."""
    return set(self._manager.all_steps())

  def forget_after(self, round: int) -> None:
    """Deletes the checkpoints of later rounds, which will come again."""
    for later in self.rounds():
      if later > round:
        self._manager.delete(later)

  def newest(
    self,
    wanted: Callable[[dict[str, Any]], Tree],
    among: Collection[int] | None = None,
  ) -> Kept | None:
    """The newest sound checkpoint; those that are damaged are put aside.

    Args:
      wanted: (record) -> shapes, dtypes and places (ShapeDtypeStructs) of
        what to read; may raise UserError where the record is another run's.
      among: rounds to choose from; None: all.

    Returns:
      The checkpoint, or None if there is none.

    Raises:
      UserError: as `wanted`.
    """
    there = self.rounds() if among is None else self.rounds() & set(among)
    for round in sorted(there, reverse=True):
      try:
        return _read(self._manager, round, wanted, self._mesh)
      except Damaged as damage:
        self._put_aside(round, damage)
    return None

  def _put_aside(self, round: int, damage: Damaged) -> None:
    """Moves a damaged checkpoint out of the way, and says so."""
    place = self.folder.parent / DAMAGED / str(round)
    if hosts.first():
      say(
        f"the checkpoint after round {round} is damaged ({damage}): not taken,"
        f" moved to {place}"
      )
      place.parent.mkdir(parents=True, exist_ok=True)
      shutil.rmtree(place, ignore_errors=True)
      (self.folder / str(round)).rename(place)
    with hosts.together():
      pass
    self._manager.reload()

  def close(self) -> None:
    """Waits for what is being written, whatever becomes of it."""
    self._manager.close()


def read_round(
  folder: Path, round: int, wanted: Callable[[dict[str, Any]], Tree]
) -> Kept:
  """Reads one checkpoint of a method, whatever becomes of the run.

  Args:
    folder: the method's checkpoints.
    round: after which it was written.
    wanted: as of `Keeper.newest`.

  Raises:
    UserError: there is none, or it is damaged.
  """
  there = [int(p.name) for p in folder.glob("*") if p.name.isdecimal()]
  if round not in there:
    raise UserError(
      f"{folder} holds no checkpoint after round {round} (there are:"
      f" {sorted(there)})"
    )
  options = ocp.CheckpointManagerOptions(read_only=True)
  with ocp.CheckpointManager(folder.resolve(), options=options) as manager:
    try:
      return _read(manager, round, wanted, None)
    except Damaged as damage:
      raise UserError(
        f"{folder / str(round)} is damaged ({damage}): load another"
      ) from None


def _read(
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
    raise _unwritten(place, None, error) from error
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
  FileNotFoundError and others. Memory that is full is no damage.
  """
  try:
    return read()
  except PermissionError:
    raise
  except Exception as error:
    if "RESOURCE_EXHAUSTED" in str(error):
      raise
    reason = _reason(error)
  _forget()
  raise Damaged(reason)


def _reason(error: Exception) -> str:
  """The first line of what an error says, of a long one the end."""
  line = (str(error).strip() or type(error).__name__).splitlines()[0]
  return line if len(line) <= 200 else f"... {line[-196:]}"


def _forget() -> None:
  """Lets go of what a failure left in orbax: coroutines that nobody awaits.

  Python would tell of each on stderr, whenever it comes across it.
  """
  before, sys.unraisablehook = sys.unraisablehook, lambda _: None
  try:
    gc.collect()
  finally:
    sys.unraisablehook = before


def _unwritten(folder: Path, round: int | None, error: Exception) -> UserError:
  """What to tell where a checkpoint could not be written."""
  which = "a checkpoint" if round is None else f"the one after round {round}"
  return UserError(
    f"{folder}: {which} could not be written ({_reason(error)}): the older ones"
    " are sound; make room on the disk, then the same command goes on"
  )


def shapes(tree: Tree, sharding: Any) -> Tree:
  """ShapeDtypeStructs of a tree, to be read to one place or sharding."""
  return jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree
  )
