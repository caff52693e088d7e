"""What a method leaves in a workdir: its log, and at its end all the rest."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from splitjax import (
  clients,
  embeddings,
  evaluate,
  forgetting,
  results,
  tensorboard,
)
from splitjax.config import Config
from splitjax.courses import Course
from splitjax.lane import Lane
from splitjax.progress import over
from splitjax.reports import report
from splitjax.storage import files, finished, folders
from splitjax.types import Seen, State
from splitjax.world import World

METRICS = "metrics.jsonl"


def keep(lane: Lane, state: State, workdir: Path) -> None:
  """Judges a trained method and saves all that is to be kept of it.

  Args:
    lane: what was written down while it trained.
    state: after the last round.
    workdir: the run's.
  """
  here, course, history = lane.world, lane.course, lane.history
  rows = results.judge_rows(here, course, lane.key, lane.seen)
  for row in rows:
    row["wire"] = {k: v / here.config.rounds for k, v in history.wire.items()}
    row["bytes_per_round"] = sum(row["wire"].values())
    row["seconds"] = history.seconds
    curve = history.learning[row["label"]]
    if "per_class" in curve:
      accuracy = curve["accuracy"][here.trial.names[-1]]
      told = forgetting.summarise(accuracy, curve["per_class"])
      row["summary"]["forgetting"] = report.plain(told)
  personal = _personal(here, course, state)
  own = state._replace(clients=personal or state.clients)
  kept = embeddings.gather(here, course, lane.key, own)
  if kept:
    rows[-1]["summary"]["skew"] = embeddings.judge(kept)
  about = {
    "rows": rows,
    "learning": history.learning,
    "notes": clients.origin(here) + history.notes,
    "tests": clients.notes(here),
    "sets": here.trial.names,
    "thresholds": results.thresholds(here, rows[-1]),
    "hardware": results.hardware(),
    "lines": lane.lines,
    # Those of the best rounds outlive the end.
    "checkpoints": here.config.checkpoint.best is not None,
  }
  finished.save(
    workdir,
    lane.key,
    state,
    personal,
    _arrays(here, rows, lane.seen),
    report.plain(about),
    embeddings=kept,
    mesh=here.mesh,
  )
  over(folders.folder(workdir, lane.key), trained=True)


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
  here: World, rows: Sequence[dict], seen: Sequence[Seen]
) -> dict[str, np.ndarray]:
  """What exits.npz holds: who was shown what, and each row's exits.

  Of held-out samples likewise, under held/ and ROW/own/, ROW/proxy/.
  """
  trial = here.trial
  arrays = {
    "pool": np.array(trial.pool),
    "rows": trial.rows,
    "label": trial.label,
    "main": trial.main,
    "sets": trial.sets,
    "names": np.array(trial.names),
  }
  if here.held is not None:
    for name, leaf in here.held._asdict().items():
      arrays[f"held/{name}"] = leaf
  for row, each in zip(rows, seen, strict=True):
    for part, exits in each._asdict().items():
      place = row["label"] if part == "test" else f"{row['label']}/{part}"
      for name, leaf in exits._asdict().items() if exits else ():
        arrays[f"{place}/{name}"] = leaf
  return arrays


def rewrite_log(
  workdir: Path, config: Config, lines: Sequence[dict[str, Any]] = ()
) -> None:
  """metrics.jsonl with what is known to be done, and nothing else.

  Whatever became of the file: finished methods have their lines in about.json,
  the one that goes on has them in its checkpoint.

  Args:
    workdir: the run's.
    config: its config.
    lines: of the method that goes on.
  """
  every: list[dict[str, Any]] = []
  for key in config.methods:
    about = folders.read_about(workdir, key)
    every += about["lines"] if about else []
  every += lines
  text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in every)
  files.write_text(workdir / METRICS, text)


def begin_logs(
  workdir: Path, config: Config, key: str, lines: Sequence[dict[str, Any]]
) -> Path | None:
  """Both logs of a method that begins or goes on; TensorBoard's, if wanted.

  Args:
    workdir: the run's.
    config: its config.
    key: of the method.
    lines: of the rounds that are done.
  """
  rewrite_log(workdir, config, lines)
  if not config.tensorboard:
    return None
  return tensorboard.rewrite(workdir, key, lines)
