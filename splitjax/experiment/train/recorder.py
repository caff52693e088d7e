"""The record of one training: its log, TensorBoard file and checkpoints."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from splitjax import files, machine
from splitjax.evaluation import cost, scores
from splitjax.evaluation.cost import RoundWork
from splitjax.evaluation.exits import Outputs
from splitjax.evaluation.scores import Scores
from splitjax.experiment.console.progress import say
from splitjax.experiment.console.signals import Stop
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.storage import history, round_log
from splitjax.experiment.storage.history import History
from splitjax.experiment.storage.manager import CheckpointManager
from splitjax.experiment.storage.round_log import RoundLog
from splitjax.reports.tensorboard import EventFile
from splitjax.types import Metrics, Row, State, UserError

Evaluate = Callable[[tuple[Row, ...], int | None], list[Outputs]]
"""A function that evaluates result rows, each client on a given number of test
samples (None: on all)."""


class Recorder:
  """Records the rounds of one training.

  Attributes:
    rows: all result rows.
    labels: the labels of the result rows.
    conditions: what the bits of results depend on, for checkpoints, as JSON.
    done: the number of rounds that were done when the recorder was opened.
    log: the lines of the finished rounds.
    masked: true if a finished round left out what was not finite.
    seconds: wall time by activity: "train", "compile" and "evaluate".
    notes: sentences for a reader of the report.
    events: TensorBoard's file; None in other processes than the first, and if
      the config wants none.
    scores: the scores of each result row in the last evaluation.
    plan: each client's work in a whole round. None if the network's FLOPs are
      unknown; no cost is modelled then.
  """

  def __init__(
    self,
    setup: TrainingSetup,
    workdir: Path,
    manager: CheckpointManager,
    conditions: dict[str, Any],
    stop: Stop,
  ):
    """Starts at round 0."""
    self.setup, self.task, self.key = setup, setup.task, setup.key
    self.rows = setup.method.rows
    self.labels = setup.labels
    self.workdir, self.manager = workdir, manager
    self.conditions = conditions
    self.stop, self.done, self.log = stop, 0, RoundLog(workdir, self.key)
    self.seconds = {"train": 0.0, "compile": 0.0, "evaluate": 0.0}
    self.notes = list[str]()
    self.events: EventFile | None = None
    self.scores = list[Scores]()
    self.plan: RoundWork | None = None
    try:
      self.plan = cost.whole_round(setup.subject)
    except UserError as error:
      self.notes.append(f"Cost is not modelled. {error}")
    self.masked, self._last = False, dict[str, Any]()
    self._accuracy: dict[str, dict[str, float]] = {}

  @contextlib.contextmanager
  def timed(self, kind: str) -> Iterator[None]:
    """Adds the wall time of a `with` block to `seconds[kind]`."""
    begun = time.monotonic()
    yield
    self.seconds[kind] += time.monotonic() - begun

  def remember(self, line: dict[str, Any]) -> None:
    """Updates `masked` from the line of a finished round."""
    self._last = history.between_rounds(line, self.task.config, self.rows)
    self.masked |= bool(line["masked"]) or "undone" in line

  def rewrite_logs(self) -> None:
    """Writes the logs again, up to the last finished round."""
    every = self.task.config.methods
    round_log.rewrite_metrics(self.workdir, every, self.key)
    if self.task.config.tensorboard:
      self.events = EventFile(self.workdir, self.key, self.log)

  def record(
    self,
    number: int,
    metrics: Metrics,
    seconds: float,
    evaluate: Evaluate,
  ) -> tuple[str, bool]:
    """Records a round; evaluates the state after it if an evaluation is due.

    `number` counts rounds from 1; `metrics` are on the host; `seconds` is the
    round's measured time. Returns a description of the round, and True if it
    was evaluated. Raises UserError if clients were masked and on_nan is "stop".
    """
    config = self.task.config
    spent = None
    if self.plan is not None:
      spent = cost.of_metrics(self.setup.subject, self.plan, metrics)
    line = history.log_line(self.key, number, metrics, seconds, spent)
    names = self.task.network.names
    note = history.check_masked(self.labels[0], line, config.on_nan, names)
    if note and not self.masked:
      self.notes.append(note)
      say(note)
    self.seconds["train"] += seconds

    # Evaluate.
    due = history.due(config, self.rows, number)
    line = self._evaluated(line, due, evaluate)
    if number == config.rounds:
      line["last"] = True
    self.remember(line)

    # Write the line to all logs.
    if machine.is_first_process():
      self.log.append(line)
    if self.events is not None:
      self.events.append(line)
    return history.as_text(line, self._accuracy), bool(due and due[0])

  def _evaluated(
    self,
    line: dict[str, Any],
    due: tuple[tuple[Row, ...], int | None] | None,
    evaluate: Evaluate,
  ) -> dict[str, Any]:
    """Evaluates the rows that are due; adds their scores to a round's line.

    `due` is (rows, test samples of each client), or None if nothing is due.
    Returns the line, which is JSON-ready.
    """
    if due is not None:
      rows, samples = due
      with self.timed("evaluate"):
        self.judge(rows, evaluate(rows, samples))
        line = {**line, **self._scores()}
      self._accuracy = line["accuracy"]
    return files.plain(line)

  def judge(self, rows: tuple[Row, ...], outputs: Sequence[Outputs]) -> None:
    """Keeps the scores of some rows' outputs."""
    self.scores = [
      scores.score(self.setup.subject, row, answers)
      for row, answers in zip(rows, outputs, strict=True)
    ]

  def _scores(self) -> dict[str, Any]:
    """Returns the scores of the last evaluation: name -> row label -> value."""
    found = {each.label: scores.log_scores(each) for each in self.scores}
    # Nothing is found if every row waits for the last round.
    names = next(iter(found.values()), history.SCORES)
    return {n: {label: x[n] for label, x in found.items()} for n in names}

  def record_of(self, number: int) -> dict[str, Any]:
    """Returns the JSON-ready record of a checkpoint after round `number`."""
    # A checkpoint has all the lines before it.
    self.log.sync()
    if self.events is not None:
      self.events.flush()
    record = {
      **self.conditions,
      "round": number,
      "history": {"seconds": self.seconds, "notes": self.notes},
      "metrics": history.checkpoint_metrics(self._last, self.labels[0]),
    }
    return files.plain(record)

  def save_checkpoint(self, number: int, state: State) -> None:
    """Starts writing a checkpoint of the state after a round."""
    self.manager.save(state, self.record_of(number))

  def close(self) -> History:
    """Reads the history from the log; adds a note on all masked updates."""
    machine.wait_for_all("logged")  # process 0 has written all lines
    config, rows = self.task.config, self.rows
    whole = history.read_history(self.log, self.setup.fleet.num_clients)
    whole.lines[:-1] = [
      history.between_rounds(line, config, rows) for line in whole.lines[:-1]
    ]
    masked = [(x["round"], x["masked"]) for x in whole.lines if x["masked"]]
    if masked:
      names = self.task.network.names
      self.notes.append(history.summarise_masked(self.labels[0], masked, names))
    return whole
