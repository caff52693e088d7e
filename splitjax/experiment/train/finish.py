"""The end of a training: its numbers, its files and one printed line."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from splitjax import files
from splitjax.evaluation import measurements
from splitjax.evaluation.subject import End
from splitjax.experiment.console import machine
from splitjax.experiment.console.progress import say
from splitjax.experiment.setup import data_summary, training_setup
from splitjax.experiment.setup.tasks import Task
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.storage import history
from splitjax.experiment.train import finished
from splitjax.experiment.train.recorder import Recorder
from splitjax.experiment.trainers.trainer import Trainer
from splitjax.reports import numbers
from splitjax.types import Number, State

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


def save(recorder: Recorder, trainer: Trainer, state: State) -> None:
  """Measures a trained method and saves everything that is kept of it."""
  setup, config = recorder.setup, recorder.task.config
  personal = trainer.personalise(state)
  record = recorder.record_of(int(state.round))
  whole = recorder.close()
  end = training_setup.end_of(setup, recorder.scores, state, personal, *whole)
  found, arrays = measurements.measure(end)
  lines = list(found.numbers)
  for label in recorder.labels:
    for activity, value in recorder.seconds.items():
      lines.append(Number("seconds", value, label, part=activity))
  about = {
    **about_end(setup, end, found.notes),
    "record": record,
    "rounds": config.rounds,
    "checkpoints": config.checkpoint.stay,
    "notes": _notes(recorder, end),
    "hardware": machine.hardware(),
  }
  finished.save(
    recorder.workdir,
    recorder.key,
    state,
    personal,
    files.plain(about),
    table=numbers.frame(lines, config.seed),
    arrays={**arrays, "exits.npz": _exits(setup.task, end)},
  )
  seconds = ", ".join(f"{k} {v:.1f} s" for k, v in recorder.seconds.items())
  say(f"{recorder.labels[0]}: {record['round']} rounds done ({seconds})")


def about_end(
  setup: TrainingSetup, end: End, notes: Sequence[str]
) -> dict[str, Any]:
  """Returns the entries of about.json that an evaluation decides.

  "methods" maps the labels of rows to the method's key in METHODS, "tests" has
  notes on the test sets and of measurements, "thresholds" maps test sets to
  each client's threshold by the config's rule; it is None for a method with one
  exit.
  """
  task, last = setup.task, end.scores[-1]
  name = task.config.methods[setup.key].name
  limits = None
  if last.swept is not None:
    limits = dict(zip(last.sets.names, last.chosen.threshold, strict=True))
  return {
    "methods": {row.label: name for row in end.scores},
    "tests": [*data_summary.notes(task), *notes],
    "thresholds": limits,
  }


def _notes(recorder: Recorder, end: End) -> list[str]:
  """Returns sentences on the training for a reader of the report."""
  task, label = recorder.task, recorder.labels[0]
  chosen, lines = task.config.eval, end.lines
  some = chosen.samples is not None and chosen.every < task.config.rounds
  cut = recorder.setup.method.cuts(recorder.setup.fleet) is not None
  return [
    *data_summary.origin(task),
    *([CUTS.format(label)] if cut else []),
    *recorder.notes,
    *(
      WAITED.format(row)
      for row in recorder.labels
      if history.waited(lines, row)
    ),
    *([PARTS.format(chosen.samples)] if some else []),
  ]


def _exits(task: Task, end: End) -> dict[str, np.ndarray]:
  """Returns exits.npz's content: samples, and the outputs of both exits.

  Held-out samples are under held/. A result row's outputs for test samples are
  under ROW/, those for held-out samples are under ROW/holdout/, those for
  proxies of the held-out samples are under ROW/proxy/.
  """
  names = "pool", "rows", "label", "main", "sets", "names"
  arrays = {name: np.asarray(getattr(task.test_sets, name)) for name in names}
  if task.held is not None:
    for name, leaf in task.held._asdict().items():
      arrays[f"held/{name}"] = leaf
  for row in end.scores:
    for part, exits in row.outputs._asdict().items():
      place = row.label if part == "test" else f"{row.label}/{part}"
      for name, leaf in exits._asdict().items() if exits else ():
        if leaf is not None:
          arrays[f"{place}/{name}"] = leaf
  return arrays
