"""Starts a method's training, or resumes it from its newest checkpoint."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from splitjax.engine import distributed
from splitjax.experiment.console.progress import say
from splitjax.experiment.console.signals import Stop
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.storage import (
  checkpoint,
  fingerprint,
  identity,
  round_log,
  workdirs,
)
from splitjax.experiment.storage.manager import CheckpointManager
from splitjax.experiment.train import finished
from splitjax.experiment.train.recorder import Recorder
from splitjax.experiment.trainers import measured
from splitjax.experiment.trainers.trainer import Trainer
from splitjax.models import target
from splitjax.types import Segment, State, UserError


@contextlib.contextmanager
def open_recorder(
  trainer: Trainer, full: Segment, workdir: Path, stop: Stop
) -> Iterator[tuple[Recorder, State]]:
  """Opens a method's logs and checkpoints, and gets the state to go on from.

  `full` is the fresh network. Yields the recorder and the trainer's state
  before the next round. If the context ends without an error, the last
  checkpoint is complete. Raises UserError if a checkpoint belongs to another
  run or could not be written.
  """
  setup = trainer.setup
  config, key = setup.task.config, setup.key
  place = workdirs.folder(workdir, key) / workdirs.CHECKPOINTS
  manager = CheckpointManager(place, config.checkpoint)
  with contextlib.closing(manager):
    with distributed.all_agree():
      if distributed.is_first_process():
        finished.reopen(workdir, key)  # if it has finished fewer rounds
    recorder = Recorder(setup, workdir, manager, _identity(setup), stop)
    state = _newest(recorder, trainer, full)
    with distributed.all_agree():
      if distributed.is_first_process():
        recorder.rewrite_logs()
        # A method that is to train more rounds is no longer finished.
        about = workdirs.folder(workdir, key) / workdirs.ABOUT
        about.unlink(missing_ok=True)
    given = [state]
    del state  # the next round donates it and must be its only owner
    try:
      yield recorder, given.pop()
      manager.wait()
    finally:
      if recorder.tracker is not None:
        recorder.tracker.finish()


def begun(workdir: Path, key: str) -> dict[str, Any]:
  """Returns the record of a finished method, or else the newest checkpoint's.

  Checkpoints whose record cannot be read are skipped. If there is no record,
  the result is {}.
  """
  if (about := workdirs.read_about(workdir, key)) is not None:
    return about.get("record", {})
  place = workdirs.folder(workdir, key) / workdirs.CHECKPOINTS
  for round in reversed(checkpoint.rounds_in(place)):
    with contextlib.suppress(fingerprint.Damaged):
      return checkpoint.read_record(place / str(round))
  return {}


def _identity(setup: TrainingSetup) -> dict[str, Any]:
  """Returns the facts of a run that are stored in its checkpoints, JSON-ready.

  "config" and "data" are as in config.json; "versions" and "devices" are the
  other facts on which the bits of results depend. "places" are the numbers of
  clients in the state's cohorts, padding included; "formulations" is the result
  of `measured.record`.
  """
  task = setup.task
  return {
    "config": task.config.to_dict(),
    "data": task.facts,
    "versions": fingerprint.versions(),
    "devices": {
      "kind": target.current().kind,
      "number": setup.fleet.devices,
      "chunks": [cohort.chunk for cohort in setup.fleet.cohorts],
    },
    "places": setup.places,
    "formulations": measured.record(),
  }


def _newest(recorder: Recorder, trainer: Trainer, full: Segment) -> State:
  """Reads the state of the newest sound checkpoint, or makes a fresh one.

  The recorder gets the facts of the earlier rounds from the checkpoint.
  """
  mine = recorder.identity

  def wanted(record):
    difference = identity.difference(record, mine)
    if difference is not None:
      raise UserError(
        f"{recorder.manager.folder} belongs to another run ({difference}):"
        " delete it, or choose another workdir"
      )
    # If the log is lost, the mark of an earlier checkpoint may still hold.
    recorder.log.restore(record["log"])
    return trainer.shapes(record["places"])

  kept = recorder.manager.newest(wanted)
  if kept is None:
    recorder.log.restore(round_log.START)
    return trainer.init(full)

  # Another number of devices pads cohorts to other sizes.
  state, record = kept
  if record["places"] != mine["places"]:
    state = trainer.place(state)

  # Say what changed since the checkpoint was written.
  label = recorder.labels[0]
  notes = [*record["history"]["notes"], *_changes(label, record, mine)]
  for text in (f"{label}: resumes after round {record['round']}", *notes):
    say(text)
  recorder.done = record["round"]
  for line in recorder.log:
    recorder.remember(line)
  recorder.seconds = record["history"]["seconds"]
  recorder.notes = list(dict.fromkeys([*recorder.notes, *notes]))
  return state


def _changes(label: str, record: dict, mine: dict) -> list[str]:
  """Says what changed since the checkpoint and may change bits of results."""
  changes = []
  for name, was in record["versions"].items():
    now = mine["versions"].get(name)
    if was != now:
      changes.append(f"{name} {now} instead of {was}")
  exact = mine["config"]["system"]["deterministic"]
  for name, was in record["devices"].items():
    now = mine["devices"][name]
    if was != now and not (exact and name != "kind"):
      changes.append(f"devices ({name}) {now} instead of {was}")
  if record.get("formulations", {}) != mine["formulations"]:
    changes.append("other formulations of convolutions")
  if not changes:
    return []
  return [
    f"{label}: from round {record['round'] + 1} on with {', '.join(changes)};"
    " an uninterrupted run may differ by rounding."
  ]
