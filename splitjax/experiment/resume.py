"""Where a method stands when a run begins: at its newest sound checkpoint."""

from pathlib import Path
from typing import Any

import jax

from splitjax.engine import distributed, sharding
from splitjax.experiment import build
from splitjax.experiment import federation as federations
from splitjax.experiment.federation import Federation
from splitjax.experiment.history import History, fresh_history, row_labels
from splitjax.experiment.progress import say
from splitjax.experiment.recorder import TrainingStart
from splitjax.experiment.storage import checkpoint, fingerprint, identity
from splitjax.experiment.storage import workdir as workdirs
from splitjax.experiment.storage.manager import CheckpointManager
from splitjax.experiment.task import Task
from splitjax.types import Segment, State, Tree, UserError


def manager(task: Task, key: str, workdir: Path) -> CheckpointManager:
  """The checkpoints of a method of a run."""
  chosen = task.config.checkpoint
  return CheckpointManager(
    workdirs.folder(workdir, key) / workdirs.CHECKPOINTS,
    every=chosen.every,
    keep=chosen.keep,
    best=chosen.best,
    keep_best=chosen.keep_best,
    mesh=task.mesh,
  )


def whose(task: Task, federation: Federation) -> dict[str, Any]:
  """What a checkpoint says of the run that it belongs to, JSON.

  config and data: as config.json has them. versions, devices: what else the
  bits depend on. places: clients of every cohort in the state, with ghosts.
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


def begin(
  task: Task,
  federation: Federation,
  key: str,
  full: Segment,
  kept: CheckpointManager,
) -> TrainingStart:
  """Where a method stands: after its newest sound checkpoint, or before all.

  Args:
    task: what all methods share.
    federation: the method's.
    key: of the method in the config.
    full: the fresh network.
    kept: its checkpoints.

  Raises:
    UserError: a checkpoint is another run's.
  """
  mine = whose(task, federation)
  labels = row_labels(task.config, federation.method, key)

  def wanted(record):
    _check_own(kept, record, mine)
    same = record["places"] == mine["places"]
    return _shapes(task, key, record["places"], same)

  found = kept.newest(wanted)
  if found is None:
    state = federations.fresh_state(task, federation, full)
    return TrainingStart(
      state, 0, [], fresh_history(labels, task.test_sets.names)
    )
  state, record = found.tree, found.record
  if record["places"] != mine["places"]:
    state = federations.place_state(task, federation, state)
  history = History(**record["history"])
  history.notes.extend(_changes(labels[0], found.round, record, mine))
  if distributed.is_first_process():
    say(f"{labels[0]}: goes on after round {found.round}")
    for note in history.notes:
      say(note)
  return TrainingStart(state, found.round, record["lines"], history)


def _check_own(kept: CheckpointManager, record: dict, mine: dict) -> None:
  """Raises UserError where a checkpoint belongs to another run."""
  theirs = {k: record.get(k) for k in ("config", "data")}
  present = identity.difference(theirs, {k: mine[k] for k in theirs})
  if present is not None:
    raise UserError(
      f"{kept.folder} belongs to another run ({present}): delete it, or choose"
      " another workdir"
    )


def _shapes(task: Task, key: str, places: list[int], same: bool) -> Tree:
  """What to read, and where to: divided as it was, else a copy on each."""
  state = build.abstract_state(task.config, task.network, key, places)
  if task.mesh is None:
    where = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return checkpoint.shapes(state, where)
  specs = sharding.state_specs(len(places))
  if not same:
    copied = sharding.COPIED
    specs = State(copied, copied, (copied,) * len(places), copied)  # type: ignore[arg-type]
  found = sharding.sharding(task.mesh, specs)
  return State(
    checkpoint.shapes(state.round, found.round),
    checkpoint.shapes(state.key, found.key),
    tuple(map(checkpoint.shapes, state.clients, found.clients)),
    checkpoint.shapes(state.server, found.server),
  )


def _changes(label: str, round: int, record: dict, mine: dict) -> list[str]:
  """Sentences on what changed since, where bits may depend on it."""
  told = []
  for name, was in record["versions"].items():
    now = mine["versions"].get(name)
    if was != now:
      told.append(f"{name} {now} in place of {was}")
  exact = mine["config"]["system"]["deterministic"]
  for name, was in record["devices"].items():
    now = mine["devices"][name]
    if was != now and not (exact and name != "kind"):
      told.append(f"devices ({name}) {now} in place of {was}")
  if not told:
    return []
  return [
    f"{label}: from round {round + 1} on with {', '.join(told)}; an unbroken"
    " run may differ by rounding."
  ]
