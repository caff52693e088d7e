"""The end of a training: its scores, its files and one printed line."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from splitjax import files
from splitjax.evaluation import forgetting
from splitjax.evaluation.exits import Outputs
from splitjax.experiment import by_client
from splitjax.experiment.console import machine
from splitjax.experiment.console.progress import say
from splitjax.experiment.measure import costs, measurements, scores
from splitjax.experiment.setup import data_summary
from splitjax.experiment.setup.tasks import Task
from splitjax.experiment.storage import history
from splitjax.experiment.train import finished
from splitjax.experiment.train.recorder import Recorder
from splitjax.experiment.trainers.trainer import Trainer
from splitjax.types import Net, State

CUTS = (
  "{}: every client trains with its own copy of the server's part, which equals"
  " training the whole network. The cut changes no accuracy, only"
  " messages, time and energy."
)
"""The note on a method with Method.cuts, whose clients hold whole networks."""


WAITED = (
  "{} was evaluated only after the last round (eval.personal=last): it has no"
  " best round and no cost to a target; its medians over rounds use that one"
  " round."
)
"""The note on a row that was evaluated only after the last round."""

PARTS = (
  "Before the last round, evaluations use at most {} test samples of each"
  " client (eval.samples), and with them all numbers of several rounds:"
  " learning curves, best rounds, costs to a target, medians over rounds. The"
  " tables of the last round use all samples."
)
"""The note on evaluations with some of the test samples."""


def summarise(
  recorder: Recorder, state: State, personal: tuple[Net, ...]
) -> dict[str, Any]:
  """Closes a method's log, scores its last evaluation and measures the method.

  `personal` are the personalised networks by cohort. Returns the content of
  about.json, such as result rows, learning curves and notes. The returned dict
  also has the lines of clients.csv, as "by_client", and the content of other
  files, as "arrays".
  """
  setup, task = recorder.setup, recorder.setup.task
  whole = recorder.close()
  lines = whole.lines

  # Learning curves, and notes on them.
  rows = scores.score_rows(setup, recorder.outputs)
  sets, sent = task.test_sets.names, history.wire(lines)
  learning = {
    label: history.curves(lines, label, sets) for label in recorder.labels
  }
  for label, each in learning.items():
    each["cost"] = costs.curve(lines, label)
  waited = [x for x in recorder.labels if history.waited(lines, x)]
  recorder.notes += [WAITED.format(label) for label in waited]
  chosen = task.config.eval
  if chosen.samples is not None and chosen.every < task.config.rounds:
    recorder.notes.append(PARTS.format(chosen.samples))

  # Result rows: traffic, times, forgetting, measurements.
  end = scores.End(setup, whole, rows, recorder.outputs, state, personal)
  arrays = measurements.on_end(end)
  for row in rows:
    row["rounds"] = len(lines)
    row["wire"] = {k: v / len(lines) for k, v in sent.items()}
    row["bytes_per_round"] = sum(row["wire"].values())
    row["seconds"] = recorder.seconds
    curve = learning[row["label"]]
    none: list[None] = [None] * len(sets)
    row["summary"] |= {"best": none, "best_weighted": none}
    if row["label"] not in waited:
      row["summary"]["best"] = history.best(curve["accuracy"])
      row["summary"]["best_weighted"] = history.best(curve["weighted"])
    accuracy = curve["accuracy"][sets[-1]]
    lost = forgetting.summarise_forgetting(accuracy, curve["per_class"])
    row["summary"]["forgetting"] = files.plain(lost)
  chosen = rows[-1]["summary"]["per_client"]["threshold"]
  cut = setup.method.cuts(setup.fleet) is not None
  return {
    "rows": rows,
    "learning": learning,
    "notes": [
      *data_summary.origin(task),
      *([CUTS.format(recorder.labels[0])] if cut else []),
      *recorder.notes,
    ],
    "tests": data_summary.notes(task),
    "sets": sets,
    "grid": task.thresholds,
    # Test set -> each client's threshold by the config's rule; or None.
    "thresholds": chosen and dict(zip(sets, chosen, strict=True)),
    "hardware": machine.hardware(),
    "by_client": by_client.measure(task, rows, recorder.outputs),
    "arrays": arrays,
  }


def save(recorder: Recorder, trainer: Trainer, state: State) -> None:
  """Scores a trained method and saves everything that is kept of it."""
  task = recorder.task
  personal = trainer.personalise(state)
  record = recorder.record_of(int(state.round))
  about = summarise(recorder, state, personal)
  about["record"] = record
  about["rounds"] = task.config.rounds
  about["checkpoints"] = task.config.checkpoint.stay
  lines, arrays = about.pop("by_client"), about.pop("arrays")
  arrays["exits.npz"] = _exits(task, about["rows"], recorder.outputs)
  finished.save(
    recorder.workdir,
    recorder.key,
    state,
    personal,
    files.plain(about),
    lines=lines,
    arrays=arrays,
  )
  seconds = ", ".join(f"{k} {v:.1f} s" for k, v in recorder.seconds.items())
  rounds = record["round"]
  say(f"{recorder.labels[0]}: {rounds} rounds done ({seconds})")


def _exits(
  task: Task, rows: Sequence[dict], outputs: Sequence[Outputs]
) -> dict[str, np.ndarray]:
  """Returns exits.npz's content: samples, and the outputs of both exits.

  Held-out samples are under held/. A result row's outputs for test samples are
  under ROW/, those for held-out samples are under ROW/own/, and those for
  proxies of the held-out samples are under ROW/proxy/.
  """
  names = "pool", "rows", "label", "main", "sets", "names"
  arrays = {name: np.asarray(getattr(task.test_sets, name)) for name in names}
  if task.held is not None:
    for name, leaf in task.held._asdict().items():
      arrays[f"held/{name}"] = leaf
  for row, each in zip(rows, outputs, strict=True):
    for part, exits in each._asdict().items():
      place = row["label"] if part == "test" else f"{row['label']}/{part}"
      for name, leaf in exits._asdict().items() if exits else ():
        if leaf is not None:
          arrays[f"{place}/{name}"] = leaf
  return arrays
