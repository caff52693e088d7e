"""The training of one method, from its first round to its numbers.

`train` is the whole story and reads from top to bottom. What it calls is below,
in its order.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from splitjax import files
from splitjax.config.config import Config
from splitjax.evaluation import cost, forgetting, measurements, scores
from splitjax.evaluation.scores import Scores
from splitjax.evaluation.subject import End, Line, Subject
from splitjax.experiment import (
  console,
  history,
  machine,
  programs,
  storage,
  summary,
  workdirs,
)
from splitjax.experiment.console import Progress, Stop, Stopped, say
from splitjax.experiment.network import abstract_state
from splitjax.experiment.programs import Programs
from splitjax.experiment.storage import Checkpoints, Record
from splitjax.experiment.task import Task, make_subject
from splitjax.experiment.workdirs import About
from splitjax.fields import naming
from splitjax.fleet.orders import IN_TURN
from splitjax.reports import numbers
from splitjax.reports.tensorboard import EventFile
from splitjax.types import Number, Row, State

_EXTRAS = ("embeddings", "metrics", "confusion", "target")
"""Fields of eval that do not change the scores of rows."""


def train(task: Task, key: str, workdir: Path, stop: Stop | None) -> None:
  """Trains a method, or goes on with it, and writes its numbers.

  A method that was killed, stopped, or finished with fewer rounds goes on from
  its newest sound checkpoint, with the bits of a run that was never
  interrupted.

  Raises:
    Stopped: a stop was requested; a checkpoint of the last round is written.
    UserError: a file cannot be read or written.
  """
  method_dir = workdirs.folder(workdir, key)
  config = task.config
  rounds = config.rounds

  def end_if(request: str | None, number: int) -> None:
    if request:
      raise Stopped(request, f"{key}: {number} of {rounds} rounds done")

  # Begin, or go on.
  end_if(console.requested(stop), max(storage.steps_of(method_dir), default=0))
  method, state, record = begin(task, key, method_dir)
  trained = record.round
  # The last round is evaluated again: its evaluation may have failed, or have
  # been that of an end, after which more rounds follow now.
  line = record.take_last()
  record.write(method_dir)
  work = cost.whole_round(method.subject)
  judged = list[Scores]()
  events = None
  with contextlib.ExitStack() as stack:
    checkpoints = Checkpoints(method_dir, config.checkpoint)
    stack.callback(checkpoints.close)
    progress = Progress(key, method.subject.label, rounds, trained)
    stack.callback(progress.close)
    if config.tensorboard and machine.is_first_process():
      events = EventFile(workdir, key, record.lines)
      stack.callback(events.close)

    for number in range(record.round + 1, rounds + 1):
      # Train a round, unless a checkpoint has it, and describe it.
      if number > trained:
        if number == config.eval.inside:
          _look_inside(method, state, workdir)
        start = time.monotonic()
        state, metrics = method.round(state)
        seconds = time.monotonic() - start
        record.seconds["train"] += seconds
        spent = work and cost.of_round(work, metrics)
        line = history.log_line(key, number, metrics, seconds, spent)

      # Evaluate it where due, and log it.
      try:
        judged = evaluate(method, state, record, line)
      except Exception:  # such as a metric's: the rounds are not lost
        record.append(line, method_dir)
        checkpoints.save(state, record)
        raise
      record.append(line, method_dir)
      progress.round(number, line)
      if events:
        events.append(line)

      # Keep it: where due, before a stop, and at the end.
      at_end = number == rounds
      request = None if at_end else console.requested(stop)
      if at_end or request or checkpoints.due(number):
        checkpoints.save(state, record)
      end_if(request, number)

  # Write its numbers.
  record.write(method_dir)  # somebody may have changed the file
  notes = [*_notes_on(method.subject, record), f"Hardware: {record.hardware}."]
  about = About(rounds=rounds, notes=notes, seconds=record.seconds)
  conclude(method, method_dir, state, record, judged, about, config)
  times = ", ".join(f"{k} {v:.1f} s" for k, v in record.seconds.items())
  say(f"{method.subject.label}: {rounds} rounds done ({times})")


# Begin, or go on.


def begin(
  task: Task, key: str, method_dir: Path
) -> tuple[Programs, State, Record]:
  """Compiles a method -> its programs, state and record, to go on from.

  They are those of the newest sound checkpoint, or else of a fresh network.
  Results of fewer rounds become invalid.
  """
  start = time.monotonic()
  with naming(f"methods.{key}"):
    method = programs.compile_to_fit(make_subject(task, key))
  seconds = time.monotonic() - start
  like = abstract_state(method.subject.method, task.network)
  saved = storage.restore(method_dir, like)
  if machine.is_first_process():
    workdirs.reopen(method_dir)
  here = machine.hardware()
  record = saved[1] if saved else Record(hardware=here)
  record.seconds["compile"] += seconds
  if saved is None:
    return method, method.begin(), record
  label = method.subject.label
  say(f"{label}: resumes after round {record.round}")
  if record.hardware != here:
    note = (
      f"{label}: rounds until {record.round} are of {record.hardware}; an"
      " uninterrupted run may differ by rounding."
    )
    say(note)
    record.notes.append(note)
    record.hardware = here
  return method, method.place(saved[0]), record


# A round.


def _look_inside(method: Programs, state: State, workdir: Path) -> None:
  """Evaluates the network within the next round; `state` is not changed.

  Writes the matrices of `forgetting.within_round` and draws them. They are of
  the method's first result row.
  """
  from splitjax.reports.figures import attempt, maps  # imports matplotlib

  subject = method.subject
  if subject.method.topology not in IN_TURN:
    return
  (shard,) = subject.shards

  def answers(order: np.ndarray) -> np.ndarray:
    served = shard._replace(service_order=jnp.asarray(order))
    after, _ = method.round(jax.tree.map(jnp.copy, state), (served,))
    (outputs,) = method.evaluate(after, subject.method.rows[:1])
    return np.asarray(outputs.test.server)

  order = np.asarray(shard.service_order)
  arrays = forgetting.within_round(subject, order, int(state.round), answers)
  path = workdir / f"inside_{subject.key}"
  files.write(
    path.with_suffix(".npz"),
    lambda file: np.savez_compressed(file, allow_pickle=False, **arrays),
  )
  attempt(path.with_suffix(".png"), forgetting.picture_within, arrays, maps)


def evaluate(
  method: Programs, state: State, record: Record, line: Line
) -> list[Scores]:
  """Scores the rows that are due after a round, and writes this in its line."""
  for name in (*history.SCORES, "metrics"):  # of an evaluation before
    line.pop(name, None)
  config = method.task.config
  rows = method.subject.method.rows
  samples = None
  if line["round"] < config.rounds:
    if line["round"] % config.eval.every:
      return []
    waiting = config.eval.personal == "last"
    rows = tuple(row for row in rows if not (row.tuned and waiting))
    samples = config.eval.samples
  start = time.monotonic()
  judged = judge(method, state, rows, samples)
  record.seconds["evaluate"] += time.monotonic() - start
  by_row = {row.label: scores.log_scores(row) for row in judged}
  # Nothing is found if every row waits for the last round.
  for name in next(iter(by_row.values()), history.SCORES):
    line[name] = files.plain({row: x[name] for row, x in by_row.items()})
  return judged


def judge(
  method: Programs, state: State, rows: tuple[Row, ...], samples: int | None
) -> list[Scores]:
  """Scores rows on so many test samples of each client; None: on all."""
  outputs = method.evaluate(state, rows, samples)
  pairs = zip(rows, outputs, strict=True)
  return [scores.score(method.subject, row, answers) for row, answers in pairs]


# The end.


def conclude(
  method: Programs,
  method_dir: Path,
  state: State,
  record: Record,
  judged: list[Scores],
  about: About,
  config: Config,
) -> None:
  """Measures a method after its last round, or later again, and writes all.

  `judged` are the scores of all rows, `config` is that of the training.
  """
  subject = method.subject
  lines, totals = history.read_history(record.lines, subject.fleet.num_clients)
  differs = workdirs.first_difference(
    vars(config.eval), vars(subject.config.eval), _EXTRAS
  )
  end = End(
    subject=subject,
    scores=judged,
    state=state,
    personal=method.personalise(state),
    lines=lines,
    totals=totals,
    current=not differs,
  )
  finding, measured = measurements.measure(end)
  scored = judged[-1]
  limits = None
  if scored.swept is not None:
    limits = dict(zip(scored.sets.names, scored.chosen.threshold, strict=True))
  name = subject.config.methods[subject.key].name
  about = about._replace(
    methods={row.label: name for row in judged},
    tests=[*summary.notes(subject.task), *finding.notes],
    thresholds=files.plain(limits),
  )
  values = list(finding.numbers)
  for row in subject.labels:
    for activity, seconds in about.seconds.items():
      values.append(Number("seconds", seconds, row, part=activity))
  if machine.is_first_process():
    table = numbers.frame(values, subject.config.seed)
    arrays = measured | {"exits.npz": _exits(subject.task, judged)}
    workdirs.write_results(method_dir, about, table, arrays)


def _notes_on(subject: Subject, record: Record) -> Iterator[str]:
  """Yields sentences on the training for a reader of the report."""
  task = subject.task
  label = subject.label
  lines = [*record.lines]
  chosen = task.config.eval
  yield from summary.origin(task)
  yield from record.notes
  if "cost" not in lines[-1]:
    yield "Cost is not modelled: jax cannot count FLOPs here."
  yield from history.left_out(label, lines, task.client_names)
  if chosen.samples is not None and chosen.every < task.config.rounds:
    yield (
      "Before the last round, evaluations use at most"
      f" {chosen.samples} test samples of each client (eval.samples), and so do"
      " all numbers of several rounds."
    )


def _exits(task: Task, judged: list[Scores]) -> dict[str, np.ndarray]:
  """Returns exits.npz's content: test samples, and the outputs of both exits.

  Held-out samples are under held/. A row's outputs for test samples are under
  ROW/, those for held-out samples under ROW/holdout/, for their proxies under
  ROW/proxy/.
  """
  names = "pool", "rows", "label", "main", "sets", "names"
  arrays = {name: np.asarray(getattr(task.test_sets, name)) for name in names}
  parts: dict[str, Any] = {"held": task.holdout}
  for row in judged:
    parts[row.label] = row.outputs.test
    parts[f"{row.label}/holdout"] = row.outputs.holdout
    parts[f"{row.label}/proxy"] = row.outputs.proxy
  for prefix, part in parts.items():
    for name, leaf in part._asdict().items() if part else ():
      if leaf is not None:
        arrays[f"{prefix}/{name}"] = leaf
  return arrays
