"""The checkpoints of a method while it trains: written, kept, taken again."""

import shutil
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Literal

import orbax.checkpoint as ocp
from jax.sharding import Mesh
from orbax.checkpoint import checkpoint_managers as policies

from splitjax import checkpoint, fingerprint, hosts
from splitjax.fingerprint import Damaged
from splitjax.progress import say
from splitjax.types import Tree

DAMAGED = "damaged"
"""Folder beside the checkpoints for those that were not taken."""

PAUSE = 60.0
"""Seconds between checkpoints where their rounds are not given."""


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
      raise checkpoint.unwritten(self.folder, round, error) from error
    self._saved = time.monotonic()

  def wait(self) -> None:
    """Waits until what was saved is on the disk.

    Raises:
      UserError: it could not be written.
    """
    try:
      self._manager.wait_until_finished()
    except Exception as error:
      raise checkpoint.unwritten(self.folder, None, error) from error

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
  ) -> checkpoint.Kept | None:
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
        return checkpoint.read_step(self._manager, round, wanted, self._mesh)
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
