"""The checkpoints of a method in training: written, pruned, read to resume."""

import contextlib
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp

from splitjax import machine
from splitjax.config.config import Checkpoint
from splitjax.experiment.console.progress import say
from splitjax.experiment.storage import checkpoint
from splitjax.experiment.storage.checkpoint import Damaged
from splitjax.types import Tree, UserError

NEWEST = 2
"""How many of the newest checkpoints are kept in training by default."""

PAUSE = 60.0
"""Least seconds between checkpoints if `Checkpoint.every` is "auto"."""


class CheckpointManager:
  """The checkpoints of one method in training, in folders `folder`/ROUND."""

  def __init__(self, folder: Path, chosen: Checkpoint):
    """Opens a folder, which is made when the first checkpoint is written."""
    self.folder, self._chosen = folder, chosen
    self._saved = time.monotonic()
    self._saver = ocp.StandardCheckpointer()
    self._thread = ThreadPoolExecutor(1)
    self._pending: Future | None = None

  def due(self, round: int, last: bool) -> bool:
    """Checks if a checkpoint is due after this round.

    After the last round the trained method is saved elsewhere, so a checkpoint
    is due only if checkpoints stay after the run (`Checkpoint.stay`).
    """
    if last:
      return self._chosen.stay
    if round in (self._chosen.rounds or ()):
      return True
    if self._chosen.every != "auto":
      return round % self._chosen.every == 0
    late = time.monotonic() - self._saved > PAUSE
    return bool(machine.of_first(late))

  def save(self, state: Tree, record: dict[str, Any]) -> None:
    """Starts writing a checkpoint; the next round may begin meanwhile.

    The state may be donated once this returns. The record has the "round", and
    the "metrics" that `Checkpoint.best` can name. Raises UserError if this
    checkpoint or the previous one could not be written.
    """
    self.wait()
    partial = self.folder / f"{record['round']}{checkpoint.PARTIAL}"
    record = {**record, "digest": checkpoint.digest(state)}
    try:
      if machine.is_first_process():
        # A killed process may have left some.
        for left in self.folder.glob(f"*{checkpoint.PARTIAL}"):
          shutil.rmtree(left)
        partial.mkdir(parents=True)
      self._saver.save((partial / checkpoint.STATE).resolve(), state)
    except Exception as error:
      raise checkpoint.unwritten(partial, error) from error
    self._pending = self._thread.submit(self._complete, partial, record)
    self._saved = time.monotonic()

  def wait(self) -> None:
    """Waits until the last checkpoint is complete, or raises UserError."""
    if self._pending is None:
      return
    pending, self._pending = self._pending, None
    try:
      pending.result()
    except Exception as error:
      raise checkpoint.unwritten(self.folder, error) from error

  def newest(
    self, wanted: Callable[[Sequence[int]], Tree]
  ) -> tuple[Tree, dict[str, Any]] | None:
    """Reads the newest sound checkpoint, and prints a line for damaged ones.

    Returns its state and record, or None if there is no checkpoint. Raises
    UserError if every checkpoint is damaged. `wanted` is as in `read_step`.
    """
    rounds = checkpoint.rounds_in(self.folder)[::-1]
    for round in rounds:
      try:
        return checkpoint.read_step(self.folder / str(round), wanted)
      except Damaged as damage:
        say(f"checkpoint of round {round} is damaged ({damage}): not used")
    if rounds:
      raise UserError(
        f"{self.folder}: no checkpoint is sound; delete {self.folder.parent} to"
        " train this method from its first round"
      )
    return None

  def close(self) -> None:
    """Waits until pending writes end, and raises none of their errors."""
    self._thread.shutdown()
    with contextlib.suppress(Exception):
      self._saver.close()

  def _complete(self, partial: Path, record: dict[str, Any]) -> None:
    """Completes a checkpoint in a thread; deletes superseded checkpoints."""
    self._saver.wait_until_finished()
    if not machine.is_first_process():
      return
    checkpoint.complete(partial, record)
    every = checkpoint.rounds_in(self.folder)
    # Later ones were damaged: training went on from the one before.
    rounds = [round for round in every if round <= record["round"]]
    stay = set(rounds[-(self._chosen.keep or NEWEST) :])
    stay |= self._best_of(rounds) | {*(self._chosen.rounds or ())}
    for round in set(every) - stay:
      shutil.rmtree(self.folder / str(round))

  def _best_of(self, rounds: list[int]) -> set[int]:
    """Returns the rounds of the best checkpoints; ties go to later rounds."""
    best = self._chosen.best
    if best is None:
      return set()
    sign = -1 if best == "loss" else 1  # a smaller loss is better
    ranked = []
    for round in rounds:
      with contextlib.suppress(OSError, Damaged, KeyError, TypeError):
        record = checkpoint.read_record(self.folder / str(round))
        ranked.append((sign * record["metrics"][best], round))
    return {round for _, round in sorted(ranked)[-self._chosen.keep_best :]}
