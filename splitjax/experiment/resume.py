"""Where a method begins: at its newest sound checkpoint, or before round 1."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from splitjax.engine import distributed, sharding
from splitjax.experiment import build, on_host, programs, training_setup
from splitjax.experiment.progress import say
from splitjax.experiment.recorder import Recorder
from splitjax.experiment.signals import Stop
from splitjax.experiment.storage import (
  checkpoint,
  fingerprint,
  identity,
  round_log,
)
from splitjax.experiment.storage import workdir as workdirs
from splitjax.experiment.storage.manager import CheckpointManager
from splitjax.experiment.task import Task
from splitjax.experiment.training_setup import Federation
from splitjax.types import Segment, State, Tree, UserError


@contextlib.contextmanager
def open_recorder(
  task: Task,
  federation: Federation,
  full: Segment,
  workdir: Path,
  stop: Stop,
  note: str = "",
  group: Sequence[str] = (),
  devices: int | None = None,
) -> Iterator[tuple[Recorder, State]]:
  """Opens a method's logs and checkpoints where its training stopped.

  `full` is the fresh network; `note` sets the method apart from others of the
  same label. `group` names the runs of a program of several, and `devices` are
  its. Yields the recorder and the state before the next round. Where no error
  is raised, the last checkpoint is complete afterwards. Raises UserError where
  a checkpoint is another run's, or could not be written.
  """
  config, key = task.config, federation.key
  place = workdirs.folder(workdir, key) / workdirs.CHECKPOINTS
  manager = CheckpointManager(place, config.checkpoint)
  with contextlib.closing(manager):
    mine = _identity(task, federation)
    mine["group"] = list(group)
    if devices is not None:
      mine["devices"]["number"] = devices
    recorder = Recorder(
      task, federation, workdir, manager, mine, stop, note=note
    )
    state = _newest(recorder, full)
    with distributed.all_agree():
      if distributed.is_first_process():
        recorder.rewrite_logs()
    given = [state]
    del state  # the next round's donation must find no other owner
    yield recorder, given.pop()
    manager.wait()


def group_of(workdir: Path, key: str) -> tuple[str, ...]:
  """The `group` of a method's newest sound checkpoint; () without one."""
  place = workdirs.folder(workdir, key) / workdirs.CHECKPOINTS
  for round in reversed(checkpoint.rounds_in(place)):
    with contextlib.suppress(fingerprint.Damaged):
      record = checkpoint.read_record(place / str(round))
      return tuple(record.get("group", ()))
  return ()


def _identity(task: Task, federation: Federation) -> dict[str, Any]:
  """What a checkpoint records of its run beside its group, JSON.

  config and data: as config.json has them. versions, devices: what else the
  bits depend on. places: clients of every cohort in the state, with padding.
  """
  device = jax.devices()[0]
  return {
    "config": task.config.to_dict(),
    "data": task.facts,
    "versions": fingerprint.versions(),
    "devices": {
      "kind": device.device_kind,
      "number": federation.fleet.devices,
      "chunks": [cohort.chunk for cohort in federation.fleet.cohorts],
    },
    "places": [len(cohort.places) for cohort in federation.fleet.cohorts],
  }


def _newest(recorder: Recorder, full: Segment) -> State:
  """The state of the newest sound checkpoint, or a fresh one.

  The recorder takes over what the checkpoint says of the rounds before.
  """
  task, federation = recorder.task, recorder.federation
  mine = recorder.identity

  def wanted(record):
    difference = identity.difference(record, mine)
    if difference is not None:
      raise UserError(
        f"{recorder.manager.folder} belongs to another run ({difference}):"
        " delete it, or choose another workdir"
      )
    # Where the checkpoints before have it still, they are sound.
    recorder.log.restore(record["log"])
    return _shapes(recorder, record["places"])

  kept = recorder.manager.newest(wanted)
  at_host = task.config.system.clients_on == "host"
  if kept is None:
    recorder.log.restore(round_log.START)
    fresh = on_host.fresh_state if at_host else programs.fresh_state
    return fresh(task, federation, full)

  # Another number of devices pads cohorts to other sizes.
  state, record = kept
  if record["places"] != mine["places"]:
    place = on_host.place_state if at_host else training_setup.place_state
    state = place(task, federation, state)

  # Say what changed since the checkpoint was written.
  label = recorder.labels[0]
  notes = [*record["history"]["notes"], *_changes(label, record, mine)]
  for text in (f"{label}: resumes after round {record['round']}", *notes):
    say(text)
  recorder.done = record["round"]
  recorder.masked = any(line["masked"] for line in recorder.log)
  recorder.seconds = record["history"]["seconds"]
  recorder.notes = list(dict.fromkeys([*recorder.notes, *notes]))
  return state


def _shapes(recorder: Recorder, places: list[int]) -> Tree:
  """What to read, and where to.

  `places` are the clients of every cohort in the checkpoint, with padding. If
  this run has others, every device reads all clients.
  """
  task = recorder.task
  state = build.abstract_state(task.config, task.network, recorder.key, places)
  if task.config.system.clients_on == "host":
    where = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    rest = checkpoint.shapes(state._replace(clients=()), where)
    clients = jax.tree.map(lambda x: np.empty(x.shape, x.dtype), state.clients)
    return rest._replace(clients=clients)
  if task.mesh is None:
    where = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return checkpoint.shapes(state, where)
  specs = sharding.state_specs(len(places))
  if places != recorder.identity["places"]:
    copied = sharding.COPIED
    every: Any = (copied,) * len(places)
    specs = specs._replace(clients=every)
  target = sharding.sharding(task.mesh, specs)
  return jax.tree.map(lambda x, part: checkpoint.shapes(part, x), target, state)


def _changes(label: str, record: dict, mine: dict) -> list[str]:
  """A sentence on what changed since, where bits may depend on it."""
  changes = []
  for name, was in record["versions"].items():
    now = mine["versions"].get(name)
    if was != now:
      changes.append(f"{name} {now} in place of {was}")
  exact = mine["config"]["system"]["deterministic"]
  for name, was in record["devices"].items():
    now = mine["devices"][name]
    if was != now and not (exact and name != "kind"):
      changes.append(f"devices ({name}) {now} in place of {was}")
  if record.get("group", mine["group"]) != mine["group"]:
    beside = "other runs" if mine["group"] else "no run"
    changes.append(f"{beside} side by side with it")
  if not changes:
    return []
  return [
    f"{label}: from round {record['round'] + 1} on with {', '.join(changes)};"
    " an uninterrupted run may differ by rounding."
  ]
