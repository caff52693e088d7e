"""What a method leaves in a workdir: its log, and at its end all the rest."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from splitjax import files
from splitjax.evaluation import evaluate, forgetting
from splitjax.experiment import (
  data_summary,
  embeddings,
  reporting,
  scores,
  trained,
)
from splitjax.experiment.federation import Federation
from splitjax.experiment.progress import over
from splitjax.experiment.recorder import Recorder
from splitjax.experiment.storage import workdir as workdirs
from splitjax.experiment.task import Task
from splitjax.types import Outputs, State


def finalize(recorder: Recorder, state: State, workdir: Path) -> None:
  """Judges a trained method and saves all that is to be kept of it.

  Args:
    recorder: what was written down while it trained.
    state: after the last round.
    workdir: the run's.
  """
  task, federation, history = (
    recorder.task,
    recorder.federation,
    recorder.history,
  )
  rows = scores.score_rows(task, federation, recorder.key, recorder.seen)
  for row in rows:
    row["wire"] = {k: v / task.config.rounds for k, v in history.wire.items()}
    row["bytes_per_round"] = sum(row["wire"].values())
    row["seconds"] = history.seconds
    curve = history.learning[row["label"]]
    if "per_class" in curve:
      accuracy = curve["accuracy"][task.test_sets.names[-1]]
      told = forgetting.summarise(accuracy, curve["per_class"])
      row["summary"]["forgetting"] = files.plain(told)
  personal = _personal(task, federation, state)
  own = state._replace(clients=personal or state.clients)
  kept = embeddings.gather(task, federation, recorder.key, own)
  if kept:
    rows[-1]["summary"]["skew"] = embeddings.judge(kept)
  about = {
    "rows": rows,
    "learning": history.learning,
    "notes": data_summary.origin(task) + history.notes,
    "tests": data_summary.notes(task),
    "sets": task.test_sets.names,
    "thresholds": reporting.thresholds(task, rows[-1]),
    "hardware": reporting.hardware(),
    "lines": recorder.lines,
    # Those of the best rounds outlive the end.
    "checkpoints": task.config.checkpoint.best is not None,
  }
  trained.save(
    workdir,
    recorder.key,
    state,
    personal,
    _arrays(task, rows, recorder.seen),
    files.plain(about),
    embeddings=kept,
    mesh=task.mesh,
  )
  over(workdirs.folder(workdir, recorder.key), trained=True)


def _personal(task: Task, federation: Federation, state: State) -> tuple:
  """Every client personalised for keeping; () if the method does not."""
  if not any(row.personal for row in federation.method.rows):
    return ()
  tune = evaluate.make_personalised(
    federation.method,
    federation.plans,
    federation.fleet,
    mesh=task.mesh,
    deterministic=task.config.system.deterministic,
  )
  return tune(state, federation.shards)


def _arrays(
  task: Task, rows: Sequence[dict], seen: Sequence[Outputs]
) -> dict[str, np.ndarray]:
  """What exits.npz holds: who was shown what, and each row's exits.

  Of held-out samples likewise, under held/ and ROW/own/, ROW/proxy/.
  """
  test_sets = task.test_sets
  arrays = {
    "pool": np.array(test_sets.pool),
    "rows": test_sets.rows,
    "label": test_sets.label,
    "main": test_sets.main,
    "sets": test_sets.sets,
    "names": np.array(test_sets.names),
  }
  if task.held is not None:
    for name, leaf in task.held._asdict().items():
      arrays[f"held/{name}"] = leaf
  for row, each in zip(rows, seen, strict=True):
    for part, exits in each._asdict().items():
      place = row["label"] if part == "test" else f"{row['label']}/{part}"
      for name, leaf in exits._asdict().items() if exits else ():
        arrays[f"{place}/{name}"] = leaf
  return arrays
