"""A run: every method of a config trained, kept, judged and reported."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from splitjax import (
  again,
  checkpoint,
  clients,
  courses,
  evaluate,
  files,
  folders,
  hosts,
  report,
  results,
  training,
  world,
)
from splitjax.config import Config
from splitjax.courses import Course
from splitjax.network import from_scratch
from splitjax.progress import say
from splitjax.report import Results
from splitjax.types import Exits, Segment, State
from splitjax.world import World

METRICS = "metrics.jsonl"


def run(
  config: Config, workdir: str | Path, *, overwrite: bool = False
) -> Results:
  """Trains every method of a config and writes report, figures and states.

  A method that is finished in the workdir is not trained again; one that was
  interrupted starts afresh.

  Args:
    config: the run.
    workdir: where everything goes.
    overwrite: delete what another config left in the workdir.

  Returns:
    The results, as report.json holds them; of several processes the first
    has them, the others {}.

  Raises:
    UserError: bad config, missing data, a foreign workdir; before anything is
      compiled.
  """
  workdir = Path(workdir)
  here = _world(config, overwrite or not all(_finished(config, workdir)))
  folders.claim(workdir, config, here.facts, overwrite)
  done = _finished(config, workdir)
  with hosts.together():
    if hosts.first():
      _keep_finished(workdir, config)
      clients.pictures(here, workdir)
  full = None
  for key, finished in zip(config.methods, done, strict=True):
    if finished:
      if hosts.first():
        say(f"{key}: finished before, not trained again")
      continue
    full = world.fresh_network(here) if full is None else full
    _train_and_keep(here, key, full, workdir)
  if not hosts.first():
    return {}
  about = [folders.read_about(workdir, key) for key in config.methods]
  return results.publish(workdir, config, here.thresholds, about)


def _finished(config: Config, workdir: Path) -> list[bool]:
  """Which methods are finished, as the first process sees it."""
  about = [folders.read_about(workdir, key) for key in config.methods]
  return hosts.of_first([a is not None for a in about])


def _world(config: Config, training: bool) -> World:
  """The world of a run; `training`: whether anything is left to train.

  With nothing left, a pretrained network's file may be gone. What is to be
  overwritten is not done, whatever lies there.
  """
  start = config if training else from_scratch(config)
  return world.build(start)._replace(config=config)


def run_seeds(
  config: Config,
  workdir: str | Path,
  numbers: Sequence[int],
  *,
  overwrite: bool = False,
) -> Results:
  """Runs a config once per seed, in workdir/seedN, and reports over seeds.

  Args:
    config: the run; its own seed is replaced.
    workdir: where everything goes.
    numbers: the seeds.
    overwrite: as in `run`.
  """
  workdir = Path(workdir)
  each = [all(_finished(config, workdir / f"seed{n}")) for n in numbers]
  first = dataclasses.replace(config, seed=numbers[0])
  here = _world(first, overwrite or not all(each))
  # Of every seed; mean and deviation may be of its own training samples.
  facts = {k: v for k, v in here.facts.items() if k not in ("mean", "std")}
  folders.claim(workdir, config, facts, overwrite, over_seeds=True)
  for number in numbers:
    if hosts.first():
      say(f"seed {number}")
    seeded = dataclasses.replace(config, seed=number)
    run(seeded, workdir / f"seed{number}", overwrite=overwrite)
  return again.report_again(workdir) if hosts.first() else {}


def _train_and_keep(
  here: World, key: str, full: Segment, workdir: Path
) -> None:
  """Trains one method and saves all that is to be kept of it."""
  course = courses.make_course(here, key)
  state = courses.fresh_state(here, course, full)
  state, exits, _, history = training.train(
    here, course, key, state, workdir / METRICS
  )
  rows = results.judge_rows(here, course, key, exits)
  for row in rows:
    row["wire"] = history.wire
    row["bytes_per_round"] = sum(history.wire.values())
    row["seconds"] = history.seconds
  about = {
    "rows": rows,
    "learning": history.learning,
    "notes": clients.origin(here) + history.notes,
    "tests": clients.notes(here),
    "sets": here.trial.names,
    "thresholds": results.thresholds(here, rows[-1]),
    "hardware": results.hardware(),
  }
  checkpoint.save(
    workdir,
    key,
    state._replace(clients=courses.real_clients(here, course, state.clients)),
    _personal(here, course, state),
    _arrays(here, rows, exits),
    report.plain(about),
  )


def _personal(here: World, course: Course, state: State) -> tuple:
  """Every client personalised for keeping; () if the method does not."""
  if not any(row.personal for row in course.method.rows):
    return ()
  tune = evaluate.make_personalised(
    course.method,
    course.plans,
    course.fleet,
    mesh=here.mesh,
    deterministic=here.config.system.deterministic,
  )
  return courses.real_clients(here, course, tune(state, course.shards))


def _arrays(
  here: World, rows: Sequence[dict], exits: Sequence[Exits]
) -> dict[str, np.ndarray]:
  """What exits.npz holds: who was shown what, and each row's exits."""
  trial = here.trial
  arrays = {
    "pool": np.array(trial.pool),
    "rows": trial.rows,
    "label": trial.label,
    "main": trial.main,
    "sets": trial.sets,
    "names": np.array(trial.names),
  }
  for row, each in zip(rows, exits, strict=True):
    for name, leaf in each._asdict().items():
      arrays[f"{row['label']}/{name}"] = leaf
  return arrays


def _keep_finished(workdir: Path, config: Config) -> None:
  """Drops the log lines of methods that were interrupted."""
  log = workdir / METRICS
  if not log.exists():
    return
  done = {k for k in config.methods if folders.read_about(workdir, k)}
  files.write_text(
    log,
    "".join(
      line
      for line in log.read_text().splitlines(keepends=True)
      if any(line.startswith(f'{{"method": "{key}",') for key in done)
    ),
  )
