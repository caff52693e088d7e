"""One run while it trains: what it writes down and keeps."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
    about = workdirs.read_about(workdir, key)
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


class TrainingStart(NamedTuple):
  """Where a method stands.

  Attributes:
    state: before its next round.
    round: rounds done.
    lines: of metrics.jsonl, one for each.
    history: what they left for the report.
  """

  state: State
  round: int
  lines: list[dict[str, Any]]
  history: History


class RunFiles(NamedTuple):
  """What a training writes and whom it listens to.

  Attributes:
    log: metrics.jsonl; process 0 appends one line per round.
    events: TensorBoard's file, likewise; None in other processes.
    manager: of its checkpoints.
    whose: what a checkpoint says of the run it belongs to, JSON.
    stop: who asked to stop, if anybody.
  """

  log: Path
  events: Path | None
  manager: CheckpointManager
  whose: dict[str, Any]
  stop: Stop


class Recorder:
  """One run while it trains: what it writes down and keeps.

  Attributes:
    key: of the method in the config.
    labels: of its result rows.
    title: for the screen and for notes.
    run_files: what it writes and whom it listens to.
    history: what its rounds leave.
    seen: by row, in its last evaluation.
    lines: of metrics.jsonl.
  """

  def __init__(
    self,
    task: Task,
    federation: Federation,
    key: str,
    start: TrainingStart,
    run_files: RunFiles,
    note: str = "",
  ):
    """Begins where a method stands; `note`: what sets it apart in words."""
    self.task, self.federation, self.key, self.run_files = (
      task,
      federation,
      key,
      run_files,
    )
    self.labels = histories.row_labels(task.config, federation.method, key)
    self.title = self.labels[0] + note
    self.history, self.seen = start.history, list[Outputs]()
    self.lines = list(start.lines)
    self._known: dict[str, dict[str, float]] = {}

  def after(
    self,
    number: int,
    told: Metrics,
    seconds: float,
    look: Callable[[], list[Outputs]],
  ) -> tuple[str, bool]:
    """Writes down a round.

    Args:
      number: of the round, from 1 on.
      told: what it says of itself, on the host.
      seconds: that it took.
      look: evaluates the state after it.

    Returns:
      What to say of it, and whether it was evaluated.

    Raises:
      UserError: clients were masked, and on_nan is "stop".
    """
    config = self.task.config
    line = histories.log_line(self.key, number, told, seconds)
    histories.add_note(self.history, self.title, line, config.on_nan)
    evaluated = number % config.eval.every == 0 or number == config.rounds
    if evaluated:
      found = self._judge(look)
      self._known = line["accuracy"] = {k: x.accuracy for k, x in found.items()}
      line["per_class"] = {k: x.per_class for k, x in found.items()}
      histories.add_round(self.history, line)
    line = files.plain(line)
    self.lines.append(line)
    if distributed.is_first_process():
      with self.run_files.log.open("a") as log:
        log.write(json.dumps(line, allow_nan=False) + "\n")
    if self.run_files.events is not None:
      tensorboard.append(self.run_files.events, line)
    return histories.as_text(line, self._known), evaluated

  def _judge(self, look: Callable[[], list[Outputs]]) -> dict[str, Scores]:
    """Row label -> what `judge` finds."""
    start = time.monotonic()
    self.seen = look()
    found = {
      label: score(self.task, self.federation, each)
      for label, each in zip(self.labels, self.seen, strict=True)
    }
    self.history.seconds["evaluate"] += time.monotonic() - start
    return found

  def keep(self, number: int, state: State) -> None:
    """Begins to write a checkpoint of the state after a round."""
    told = {"lines": self.lines, "history": self.history._asdict()}
    ranks = histories.rank_rows(self.lines[-1], self.labels[0])
    record = files.plain({**self.run_files.whose, **told})
    self.run_files.manager.save(number, state, record, ranks)

  def close(self) -> None:
    """Sums up what a reader has to be told."""
    if self.history.masked:
      summary = histories.summarise_masked(self.title, self.history.masked)
      self.history.notes.append(summary)
