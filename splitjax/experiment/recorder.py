"""What one training writes while it runs: log, TensorBoard, checkpoints."""

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from splitjax import files
from splitjax.config.schema import Config
from splitjax.engine import distributed
from splitjax.engine.base import Metrics
from splitjax.experiment import history as histories
from splitjax.experiment.federation import Federation
from splitjax.experiment.history import History
from splitjax.experiment.scores import Scores, score
from splitjax.experiment.signals import Stop
from splitjax.experiment.storage import workdir as workdirs
from splitjax.experiment.storage.manager import CheckpointManager
from splitjax.experiment.task import Task
from splitjax.reports import tensorboard
from splitjax.types import Outputs, State

METRICS = "metrics.jsonl"


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


@dataclasses.dataclass
class Recorder:
  """Records the rounds of one training.

  Attributes:
    task: what all methods of the run share.
    federation: the method's.
    done: rounds that were done when it was opened.
    lines: of metrics.jsonl.
    history: what its rounds leave for the report.
    log: metrics.jsonl; process 0 appends one line per round.
    events: TensorBoard's file, likewise; None in other processes.
    manager: of its checkpoints.
    identity: of the run, JSON; every checkpoint holds it.
    stop: whether a stop was requested.
    note: sets its title apart from that of other seeds.
    outputs: of each result row, in the last evaluation.
  """

  task: Task
  federation: Federation
  done: int
  lines: list[dict[str, Any]]
  history: History
  log: Path
  events: Path | None
  manager: CheckpointManager
  identity: dict[str, Any]
  stop: Stop
  note: str = ""
  outputs: list[Outputs] = dataclasses.field(default_factory=list)

  def __post_init__(self):
    self.key = self.federation.key
    method = self.federation.method
    self.labels = histories.row_labels(self.task.config, method, self.key)
    self.title = self.labels[0] + self.note
    self._accuracy: dict[str, dict[str, float]] = {}

  def record(
    self,
    number: int,
    metrics: Metrics,
    seconds: float,
    evaluate: Callable[[], list[Outputs]],
  ) -> tuple[str, bool]:
    """Records a round, and evaluates the state after it where that is due.

    Returns:
      The round in words, and whether it was evaluated.

    Raises:
      UserError: clients were masked, and on_nan is "stop".
    """
    config = self.task.config
    line = histories.log_line(self.key, number, metrics, seconds)
    histories.add_line(self.history, self.title, line, config.on_nan)

    # Evaluate.
    evaluated = number % config.eval.every == 0 or number == config.rounds
    if evaluated:
      scores = self._score(evaluate)
      line["accuracy"] = {k: x.accuracy for k, x in scores.items()}
      line["per_class"] = {k: x.per_class for k, x in scores.items()}
      self._accuracy = line["accuracy"]
      histories.add_evaluation(self.history, line)

    # Write the line to both logs.
    line = files.plain(line)
    self.lines.append(line)
    if distributed.is_first_process():
      with self.log.open("a") as log:
        log.write(_json_line(line))
    if self.events is not None:
      tensorboard.append(self.events, line)
    return histories.as_text(line, self._accuracy), evaluated

  def _score(self, evaluate: Callable[[], list[Outputs]]) -> dict[str, Scores]:
    """Row label -> scores."""
    begun = time.monotonic()
    self.outputs = evaluate()
    scores = {
      label: score(self.task, self.federation, each)
      for label, each in zip(self.labels, self.outputs, strict=True)
    }
    self.history.seconds["evaluate"] += time.monotonic() - begun
    return scores

  def save_checkpoint(self, number: int, state: State) -> None:
    """Begins to write a checkpoint of the state after a round."""
    record = {
      **self.identity,
      "lines": self.lines,
      "history": self.history._asdict(),
    }
    ranks = histories.checkpoint_metrics(self.lines[-1], self.labels[0])
    self.manager.save(number, state, files.plain(record), ranks)

  def close(self) -> None:
    """Adds the note that sums up masked updates."""
    if self.history.masked:
      summary = histories.summarise_masked(self.title, self.history.masked)
      self.history.notes.append(summary)
