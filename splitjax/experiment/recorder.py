"""What one training writes while it runs: log, TensorBoard, checkpoints."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from splitjax import files
from splitjax.config.schema import Config
from splitjax.engine import distributed
from splitjax.engine.base import Metrics
from splitjax.evaluation.cost import Plan
from splitjax.experiment import account, costs, history
from splitjax.experiment.federation import Federation
from splitjax.experiment.progress import say
from splitjax.experiment.scores import Scores, score
from splitjax.experiment.signals import Stop
from splitjax.experiment.storage import workdir as workdirs
from splitjax.experiment.storage.manager import CheckpointManager
from splitjax.experiment.task import Task
from splitjax.reports import tensorboard
from splitjax.types import Outputs, Row, State, UserError

METRICS = "metrics.jsonl"

Evaluate = Callable[[tuple[Row, ...], int | None], list[Outputs]]
"""(result rows, test samples of each client or None: all) -> their outputs."""


def rewrite_log(
  workdir: Path, config: Config, lines: Sequence[dict[str, Any]] = ()
) -> None:
  """Writes metrics.jsonl from what is known to be done.

  Finished methods have their lines in about.json, one that resumes has them in
  its checkpoint (`lines`): the file may have been cut or lost.
  """
  known: list[dict[str, Any]] = []
  for key in config.methods:
    about = workdirs.read_about(workdir, key)
    known += about["lines"] if about else []
  text = "".join(_json_line(line) for line in [*known, *lines])
  files.write_text(workdir / METRICS, text)


def _json_line(line: dict[str, Any]) -> str:
  return json.dumps(line, allow_nan=False) + "\n"


class Recorder:
  """Records the rounds of one training.

  Attributes:
    labels: of the result rows.
    title: for the screen and for notes.
    identity: of the run, JSON; every checkpoint holds it.
    done: rounds that were done when it was opened.
    lines: of metrics.jsonl.
    seconds: of train, compile and evaluate.
    notes: sentences for a reader of the report.
    events: TensorBoard's file; None without, and in processes but the first.
    outputs: of each result row, in the last evaluation.
    plan: the work of a whole round of each client; None where its FLOPs are not
      known, and so no cost is modelled.
  """

  def __init__(
    self,
    task: Task,
    federation: Federation,
    workdir: Path,
    manager: CheckpointManager,
    identity: dict[str, Any],
    stop: Stop,
    note: str = "",
  ):
    """Begins before the first round; `note` sets it apart from other seeds."""
    self.task, self.federation, self.key = task, federation, federation.key
    self.labels = history.row_labels(task.config, federation.method, self.key)
    self.title = self.labels[0] + note
    self.workdir, self.manager, self.identity = workdir, manager, identity
    self.stop, self.done, self.lines = stop, 0, list[dict[str, Any]]()
    self.seconds = {"train": 0.0, "compile": 0.0, "evaluate": 0.0}
    self.notes = list[str]()
    self.events: Path | None = None
    self.outputs = list[Outputs]()
    self.plan: Plan | None = None
    try:
      self.plan = costs.whole_round(task, federation)
    except UserError as error:
      self.notes.append(f"Cost is not modelled. {error}")
    self._accuracy: dict[str, dict[str, float]] = {}

  def rewrite_logs(self) -> None:
    """Writes both logs again, up to the rounds that are done."""
    rewrite_log(self.workdir, self.task.config, self.lines)
    if self.task.config.tensorboard:
      self.events = tensorboard.rewrite(self.workdir, self.key, self.lines)

  def record(
    self,
    number: int,
    metrics: Metrics,
    seconds: float,
    joules: float | None,
    evaluate: Evaluate,
  ) -> tuple[str, bool]:
    """Records a round, and evaluates the state after it where that is due.

    `number` is the round's, from 1 on; `metrics` are on the host; `seconds` and
    `joules` are measured, the latter if there is a Meter. Returns the round in
    words, and whether it was evaluated. Raises UserError where clients
    were masked and on_nan is "stop".
    """
    config = self.task.config
    line = history.log_line(self.key, number, metrics, seconds)
    if self.plan is not None:
      line["cost"] = costs.of_metrics(
        self.task, self.federation, self.plan, metrics
      )
    line |= account.of_metrics(config, metrics)
    if joules is not None:
      line["measured_joules"] = joules
    first = not any(each["masked"] for each in self.lines)
    note = history.check_masked(self.title, line, config.on_nan)
    if note and first:
      self.notes.append(note)
      say(note)
    self.seconds["train"] += seconds

    # Evaluate.
    due = history.rows_due(config, self.federation.method, number)
    if history.evaluates(config, number):
      samples = history.samples_due(config, number)
      scores = self._score(evaluate, due, samples)
      line["accuracy"] = {k: x.accuracy for k, x in scores.items()}
      line["weighted"] = {k: x.weighted for k, x in scores.items()}
      line["per_class"] = {k: x.per_class for k, x in scores.items()}
      self._accuracy = line["accuracy"]

    # Write the line to both logs.
    line = files.plain(line)
    self.lines.append(line)
    if distributed.is_first_process():
      with (self.workdir / METRICS).open("a") as log:
        log.write(_json_line(line))
    if self.events is not None:
      tensorboard.append(self.events, line)
    return history.as_text(line, self._accuracy), bool(due)

  def _score(
    self, evaluate: Evaluate, due: tuple[Row, ...], samples: int | None
  ) -> dict[str, Scores]:
    """Row label -> scores, of the rows that are due; see `Evaluate`."""
    begun = time.monotonic()
    self.outputs = evaluate(due, samples)
    rows = self.federation.method.traits.rows
    labels = [x for x, row in zip(self.labels, rows, strict=True) if row in due]
    scores = {
      label: score(self.task, self.federation, each)
      for label, each in zip(labels, self.outputs, strict=True)
    }
    self.seconds["evaluate"] += time.monotonic() - begun
    return scores

  def save_checkpoint(self, number: int, state: State) -> None:
    """Begins to write a checkpoint of the state after a round."""
    record = {
      **self.identity,
      "lines": self.lines,
      "history": {"seconds": self.seconds, "notes": self.notes},
    }
    ranks = history.checkpoint_metrics(self.lines[-1], self.labels[0])
    self.manager.save(number, state, files.plain(record), ranks)

  def close(self) -> None:
    """Adds the note that sums up masked updates."""
    masked = [(x["round"], x["masked"]) for x in self.lines if x["masked"]]
    if masked:
      self.notes.append(history.summarise_masked(self.title, masked))
