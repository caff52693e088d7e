"""What a method leaves in a workdir: its log, and at its end all the rest."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from splitjax import (
  clients,
  evaluate,
  files,
  finished,
  folders,
  report,
  results,
)
from splitjax.config import Config
from splitjax.courses import Course
from splitjax.diary import History
from splitjax.types import Exits, State
from splitjax.world import World

METRICS = "metrics.jsonl"


def keep(
  here: World,
  course: Course,
  key: str,
  state: State,
  exits: Sequence[Exits],
  history: History,
  workdir: Path,
) -> None:
  """Judges a trained method and saves all that is to be kept of it.

  Args:
    here: what all methods share.
    course: the method's.
    key: of the method in the config.
    state: after the last round.
    exits: of its evaluation, by row.
    history: what its rounds left.
    workdir: the run's.
  """
  rows = results.judge_rows(here, course, key, exits)
  for row in rows:
    row["wire"] = {k: v / here.config.rounds for k, v in history.wire.items()}
    row["bytes_per_round"] = sum(row["wire"].values())
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
  finished.save(
    workdir,
    key,
    state,
    _personal(here, course, state),
    _arrays(here, rows, exits),
    report.plain(about),
    mesh=here.mesh,
    keep_checkpoints=here.config.checkpoint.best is not None,
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
  return tune(state, course.shards)


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


def rewrite_log(workdir: Path, config: Config, lines: list[dict]) -> None:
  """metrics.jsonl with what is known to be done, and nothing else.

  Args:
    workdir: the run's.
    config: its config.
    lines: of the method that goes on, as its checkpoint has them; those of
      finished methods stay as they are.
  """
  log = workdir / METRICS
  done = [k for k in config.methods if folders.read_about(workdir, k)]
  old = log.read_text().splitlines() if log.exists() else []
  kept = [
    line
    for line in old
    if any(line.startswith(f'{{"method": "{key}",') for key in done)
  ]
  kept += [json.dumps(line, allow_nan=False) for line in lines]
  files.write_text(log, "".join(line + "\n" for line in kept))
