"""Starts a method's training, or resumes it from its newest checkpoint."""

import contextlib
import importlib.metadata
import itertools
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from splitjax import machine, target
from splitjax.experiment.console.progress import say
from splitjax.experiment.console.signals import Stop
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.storage import workdirs
from splitjax.experiment.storage.manager import CheckpointManager
from splitjax.experiment.train import finished
from splitjax.experiment.train.recorder import Recorder
from splitjax.experiment.trainers.trainer import Trainer
from splitjax.types import Net, State

LIBRARIES = (
  "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "chex", "numpy",
)  # fmt: skip
"""Packages whose version can change the last bits of a run's results."""


@contextlib.contextmanager
def open_recorder(
  trainer: Trainer, full: Net, workdir: Path, stop: Stop
) -> Iterator[tuple[Recorder, State]]:
  """Opens a method's logs and checkpoints, and gets the state to go on from.

  `full` is the fresh network. Yields the recorder and the trainer's state
  before the next round. If the context ends without an error, the last
  checkpoint is complete. Raises UserError if no checkpoint is sound, or if one
  could not be written.
  """
  setup = trainer.setup
  config, key = setup.task.config, setup.key
  place = workdirs.folder(workdir, key) / workdirs.CHECKPOINTS
  manager = CheckpointManager(place, config.checkpoint)
  with contextlib.closing(manager):
    if machine.is_first_process():
      finished.reopen(workdir, key)  # if it has finished fewer rounds
    machine.wait_for_all("reopened")
    recorder = Recorder(setup, workdir, manager, _conditions(setup), stop)
    state = _newest(recorder, trainer, full)
    if machine.is_first_process():
      recorder.rewrite_logs()
      # A method that is to train more rounds is no longer finished.
      about = workdirs.folder(workdir, key) / workdirs.ABOUT
      about.unlink(missing_ok=True)
    given = [state]
    del state  # the next round donates it and must be its only owner
    try:
      yield recorder, given.pop()
    finally:
      if recorder.events is not None:
        recorder.events.close()
        recorder.events = None
    manager.wait()


def versions() -> dict[str, str]:
  """Returns the versions of software that can change a result's last bits."""
  libraries = {name: importlib.metadata.version(name) for name in LIBRARIES}
  return {"python": platform.python_version(), **libraries}


def _conditions(setup: TrainingSetup) -> dict[str, Any]:
  """Returns what the bits of a run's results depend on beside its config.

  Checkpoints store it, JSON-ready. "places" are the numbers of clients in the
  state's cohorts, padding included.
  """
  return {
    "versions": versions(),
    "devices": {
      "kind": target.current().kind,
      "number": setup.fleet.devices,
      "chunks": [cohort.chunk for cohort in setup.fleet.cohorts],
    },
    "places": setup.places,
  }


def _newest(recorder: Recorder, trainer: Trainer, full: Net) -> State:
  """Reads the state of the newest sound checkpoint, or makes a fresh one.

  The recorder gets the facts of the earlier rounds from the checkpoint.
  """
  mine = recorder.conditions
  kept = recorder.manager.newest(trainer.shapes)
  if machine.is_first_process():
    recorder.log.cut(kept[1]["round"] if kept else 0)
  if kept is None:
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
  for line in itertools.islice(recorder.log, recorder.done):
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
  for name, was in record["devices"].items():
    now = mine["devices"][name]
    if was != now:
      changes.append(f"devices ({name}) {now} instead of {was}")
  if not changes:
    return []
  return [
    f"{label}: from round {record['round'] + 1} on with {', '.join(changes)};"
    " an uninterrupted run may differ by rounding."
  ]
