"""The checkpoints of a method while it trains: written, kept, taken again."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import orbax.checkpoint as ocp
from jax.sharding import Mesh
from orbax.checkpoint import checkpoint_managers as policies

from splitjax.engine import distributed
from splitjax.experiment.progress import say
from splitjax.experiment.storage import checkpoint, fingerprint
from splitjax.experiment.storage.fingerprint import Damaged
from splitjax.types import Tree, UserError

DAMAGED = "damaged"
"""Folder beside the checkpoints for those that were not taken."""

PAUSE = 60.0
"""Seconds between checkpoints where their rounds are not given."""


class CheckpointManager:
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
    self._best, self._flying = best, 0
    self._saved = time.monotonic()
    newest: Any = policies.LatestN(keep)
    policy, ranked = newest, {}
    if best is not None:

      def rank(metrics):
        return metrics[best]

      good = policies.BestN(
        get_metric_fn=rank,
        n=keep_best,
        reverse=best == "loss",
        keep_checkpoints_without_metrics=False,
      )
      policy = policies.AnyPreservationPolicy([newest, good])
      # Only with these does orbax write the metrics down for the next process.
      mode = "min" if best == "loss" else "max"
      ranked = {"best_fn": rank, "best_mode": mode}
    self._manager = ocp.CheckpointManager(
      folder.resolve(),
      options=ocp.CheckpointManagerOptions(
        preservation_policy=policy, cleanup_tmp_directories=True, **ranked
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
    (late,) = distributed.of_first([time.monotonic() - self._saved > PAUSE])
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
    self.wait()
    found = fingerprint.of_leaves(tree, self._mesh)
    record = fingerprint.sealed({**record, "round": round, "leaves": found})
    item: Any = ocp.args
    ranked = self._best in metrics
    self._flying = round
    try:
      self._manager.save(
        round,
        args=item.Composite(
          state=item.StandardSave(tree), record=item.JsonSave(record)
        ),
        metrics=metrics if ranked else None,
      )
    except Exception as error:
      raise self._unwritten(error) from error
    self._saved = time.monotonic()

  def wait(self) -> None:
    """Waits until what was saved is on the disk.

    Raises:
      UserError: it could not be written.
    """
    try:
      self._manager.wait_until_finished()
    except Exception as error:
      raise self._unwritten(error) from error

  def _unwritten(self, error: Exception) -> UserError:
    """What to tell where a checkpoint could not be written."""
    present = checkpoint.rounds_in(self.folder)
    kept = (
      f"kept are those after rounds {', '.join(map(str, present))}"
      if present
      else "there is none before it"
    )
    return UserError(
      f"{self.folder}: the checkpoint after round {self._flying} could not be"
      f" written ({checkpoint.reason(error)}); {kept}. Make room on the disk,"
      " then the same command goes on"
    )

  def newest(
    self, wanted: Callable[[dict[str, Any]], Tree]
  ) -> checkpoint.Kept | None:
    """The newest sound checkpoint; those that are damaged are put aside.

    Args:
      wanted: (record) -> shapes, dtypes and places (ShapeDtypeStructs) of
        what to read; may raise UserError where the record is another run's.

    Returns:
      The checkpoint, or None if there is none.

    Raises:
      UserError: as `wanted`; or there are some and none is sound.
      OSError: one could not be read, which says nothing of what is in it.
    """
    present = sorted(self._manager.all_steps(), reverse=True)
    for round in present:
      try:
        return checkpoint.read_step(self._manager, round, wanted, self._mesh)
      except Damaged as damage:
        self._put_aside(round, damage)
    if present:
      raise UserError(
        f"{self.folder.parent}: no checkpoint is sound (those after rounds"
        f" {', '.join(map(str, present))} lie in {DAMAGED}/): the same command"
        " again starts this method afresh"
      )
    return None

  def _put_aside(self, round: int, damage: Damaged) -> None:
    """Moves a damaged checkpoint out of the way, and says so.

    Raises:
      UserError: this is one of several processes. What one of them sees may
        be another one's end, and together they could not tell.
    """
    if distributed.is_distributed():
      raise UserError(
        f"{self.folder / str(round)} cannot be read by all processes"
        f" ({damage}): start them again; if that does not help, one process"
        " alone puts a damaged one aside and goes on from the one before"
      )
    place = self.folder.parent / DAMAGED / str(round)
    while place.exists():  # of an earlier time
      place = place.with_name(f"{place.name}-again")
    say(
      f"the checkpoint after round {round} is damaged ({damage}): not taken,"
      f" moved to {place}"
    )
    place.parent.mkdir(parents=True, exist_ok=True)
    (self.folder / str(round)).rename(place)
    self._manager.reload()

  def close(self) -> None:
    """Waits for what is being written, whatever becomes of it."""
    self._manager.close()
