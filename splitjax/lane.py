"""One run while it trains: what it writes down and keeps."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from splitjax import (
  calibrate,
  diary,
  forgetting,
  gate,
  hosts,
  metrics,
  tensorboard,
  trouble,
)
from splitjax.courses import Course
from splitjax.diary import History
from splitjax.reports import report
from splitjax.rounds import Metrics
from splitjax.signals import Stop
from splitjax.storage.keeper import Keeper
from splitjax.types import Seen, State
from splitjax.world import World


class Start(NamedTuple):
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


class Desk(NamedTuple):
  """What a training writes and whom it listens to.

  Attributes:
    log: metrics.jsonl; process 0 appends one line per round.
    events: TensorBoard's file, likewise; None in other processes.
    keeper: of its checkpoints.
    whose: what a checkpoint says of the run it belongs to, JSON.
    stop: who asked to stop, if anybody.
  """

  log: Path
  events: Path | None
  keeper: Keeper
  whose: dict[str, Any]
  stop: Stop


class Judged(NamedTuple):
  """How good the networks of a row are, at the config's thresholds.

  Attributes:
    accuracy: test set -> mean over clients.
    per_class: [C], of every class over all clients' samples of the LAST set:
      the only one where there is one, the largest rho of the papers' mixtures,
      "w/ drift" of out_of_client. NaN for a class without a sample.
  """

  accuracy: dict[str, float]
  per_class: list[float]


class Lane:
  """One run while it trains: what it writes down and keeps.

  Attributes:
    key: of the method in the config.
    labels: of its result rows.
    title: for the screen and for notes.
    desk: what it writes and whom it listens to.
    history: what its rounds leave.
    seen: by row, in its last evaluation.
    lines: of metrics.jsonl.
  """

  def __init__(
    self,
    world: World,
    course: Course,
    key: str,
    start: Start,
    desk: Desk,
    note: str = "",
  ):
    """Begins where a method stands; `note`: what sets it apart in words."""
    self.world, self.course, self.key, self.desk = world, course, key, desk
    self.labels = diary.row_labels(world.config, course.method, key)
    self.title = self.labels[0] + note
    self.history, self.seen = start.history, list[Seen]()
    self.lines = list(start.lines)
    self._known: dict[str, dict[str, float]] = {}

  def after(
    self,
    number: int,
    told: Metrics,
    seconds: float,
    look: Callable[[], list[Seen]],
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
    config = self.world.config
    line = diary.log_line(self.key, number, told, seconds)
    diary.note(self.history, self.title, line, config.on_nan)
    evaluated = number % config.eval.every == 0 or number == config.rounds
    if evaluated:
      found = self._judge(look)
      self._known = line["accuracy"] = {k: x.accuracy for k, x in found.items()}
      line["per_class"] = {k: x.per_class for k, x in found.items()}
      diary.learn(self.history, line)
    line = report.plain(line)
    self.lines.append(line)
    if hosts.first():
      with self.desk.log.open("a") as log:
        log.write(json.dumps(line, allow_nan=False) + "\n")
    if self.desk.events is not None:
      tensorboard.append(self.desk.events, line)
    return diary.said(line, self._known), evaluated

  def _judge(self, look: Callable[[], list[Seen]]) -> dict[str, Judged]:
    """Row label -> what `judge` finds."""
    start = time.monotonic()
    self.seen = look()
    found = {
      label: judge(self.world, self.course, each)
      for label, each in zip(self.labels, self.seen, strict=True)
    }
    self.history.seconds["evaluate"] += time.monotonic() - start
    return found

  def keep(self, number: int, state: State) -> None:
    """Begins to write a checkpoint of the state after a round."""
    told = {"lines": self.lines, "history": self.history._asdict()}
    ranks = diary.ranks(self.lines[-1], self.labels[0])
    record = report.plain({**self.desk.whose, **told})
    self.desk.keeper.save(number, state, record, ranks)

  def close(self) -> None:
    """Sums up what a reader has to be told."""
    if self.history.masked:
      summary = trouble.summary(self.title, self.history.masked)
      self.history.notes.append(summary)


def thresholds(world: World, course: Course, seen: Seen) -> dict[str, Any]:
  """Rule -> thresholds that no test label had a part in, nats.

  Args:
    world: what all methods share.
    course: the method's.
    seen: what the networks of one row said.

  Returns:
    "fixed": a number, where the config has one; "calibrated": [N] float64,
    where there are samples to choose it on. Neither of a method with one exit.
  """
  chosen, found = world.config.eval, dict[str, Any]()
  if len(course.method.answers) < 2:
    return found
  if seen.own is not None:
    held, proxy = world.held, seen.proxy
    assert held is not None and proxy is not None
    found["calibrated"] = calibrate.choose(
      seen.own,
      held.label,
      held.real,
      proxy,
      world.thresholds,
      chosen.expected_rho,
    )
  if chosen.threshold is not None:
    found["fixed"] = chosen.threshold
  return found


def judge(world: World, course: Course, seen: Seen) -> Judged:
  """Accuracies at the config's thresholds."""
  trial, answers = world.trial, course.method.answers
  given = thresholds(world, course, seen)
  rule = world.config.eval.threshold_rule
  told = (seen.test, trial.label, trial.sets)
  if rule in given:
    choice = gate.score(*told, given[rule], answers)
  else:  # the oracle's; with one exit any will do
    swept = gate.sweep(*told, world.thresholds, answers)
    choice = gate.oracle(swept, world.thresholds)
  accuracy = metrics.over_clients(choice.accuracy)
  said = gate.predictions(seen.test, choice.threshold[-1], answers)
  classes = trial.main.shape[1]
  each = forgetting.class_accuracy(said, trial.label, trial.sets[-1], classes)
  by_set = dict(zip(trial.names, map(float, accuracy), strict=True))
  return Judged(by_set, each.tolist())
