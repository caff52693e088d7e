"""Where a method stands when a run begins: at its newest sound checkpoint."""

from pathlib import Path
from typing import Any

import jax

from splitjax import courses, hosts, rounds
from splitjax import mesh as meshes
from splitjax.courses import Course
from splitjax.diary import History, fresh_history, row_labels
from splitjax.lane import Start
from splitjax.progress import say
from splitjax.storage import checkpoint, fingerprint, folders, identity
from splitjax.storage.keeper import Keeper
from splitjax.types import Segment, State, Tree, UserError
from splitjax.world import World


def keeper(world: World, key: str, workdir: Path) -> Keeper:
  """The checkpoints of a method of a run."""
  chosen = world.config.checkpoint
  return Keeper(
    folders.folder(workdir, key) / folders.CHECKPOINTS,
    every=chosen.every,
    keep=chosen.keep,
    best=chosen.best,
    keep_best=chosen.keep_best,
    mesh=world.mesh,
  )


def whose(world: World, course: Course) -> dict[str, Any]:
  """What a checkpoint says of the run that it belongs to, JSON.

  config and data: as config.json has them. versions, devices: what else the
  bits depend on. places: clients of every cohort in the state, with ghosts.
  """
  device = jax.devices()[0]
  return {
    "config": world.config.to_dict(),
    "data": world.facts,
    "versions": fingerprint.versions(),
    "devices": {
      "kind": device.device_kind,
      "number": course.fleet.devices,
      "chunks": [cohort.chunk for cohort in course.fleet.cohorts],
    },
    "places": [len(cohort.places) for cohort in course.fleet.cohorts],
  }


def begin(
  world: World,
  course: Course,
  key: str,
  full: Segment,
  kept: Keeper,
) -> Start:
  """Where a method stands: after its newest sound checkpoint, or before all.

  Args:
    world: what all methods share.
    course: the method's.
    key: of the method in the config.
    full: the fresh network.
    kept: its checkpoints.

  Raises:
    UserError: a checkpoint is another run's.
  """
  mine = whose(world, course)
  labels = row_labels(world.config, course.method, key)

  def wanted(record):
    _check_own(kept, record, mine)
    same = record["places"] == mine["places"]
    return _shapes(world, key, record["places"], same)

  found = kept.newest(wanted)
  if found is None:
    state = courses.fresh_state(world, course, full)
    return Start(state, 0, [], fresh_history(labels, world.trial.names))
  state, record = found.tree, found.record
  if record["places"] != mine["places"]:
    state = courses.settle(world, course, state)
  history = History(**record["history"])
  history.notes.extend(_changes(labels[0], found.round, record, mine))
  if hosts.first():
    say(f"{labels[0]}: goes on after round {found.round}")
    for note in history.notes:
      say(note)
  return Start(state, found.round, record["lines"], history)


def _check_own(kept: Keeper, record: dict, mine: dict) -> None:
  """Raises UserError where a checkpoint belongs to another run."""
  theirs = {k: record.get(k) for k in ("config", "data")}
  there = identity.difference(theirs, {k: mine[k] for k in theirs})
  if there is not None:
    raise UserError(
      f"{kept.folder} belongs to another run ({there}): delete it, or choose"
      " another workdir"
    )


def _shapes(world: World, key: str, places: list[int], same: bool) -> Tree:
  """What to read, and where to: divided as it was, else a copy on each."""
  state = courses.abstract_state(world.config, world.network, key, places)
  if world.mesh is None:
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return checkpoint.shapes(state, here)
  specs = rounds.state_specs(len(places))
  if not same:
    copied = meshes.COPIED
    specs = State(copied, copied, (copied,) * len(places), copied)  # type: ignore[arg-type]
  found = meshes.sharding(world.mesh, specs)
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
