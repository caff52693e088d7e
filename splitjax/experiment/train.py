"""The training of one method, from its first round to its numbers.

`train` is the whole story and reads from top to bottom. What it calls is below,
in its order. Of all rounds only the state and the current line are in memory.
"""

import contextlib
import dataclasses
import importlib.metadata
import platform
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np

from splitjax import files, target
from splitjax.config.config import Config
from splitjax.evaluation import cost, forgetting, measurements, scores
from splitjax.evaluation.cost import RoundWork
from splitjax.evaluation.scores import Scores
from splitjax.evaluation.subject import Arrays, End, Line, Subject
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
from splitjax.experiment.programs import Programs
from splitjax.experiment.storage import Checkpoints, Kept, Log, Record
from splitjax.experiment.task import Task, make_subject
from splitjax.experiment.workdirs import About
from splitjax.fleet.orders import IN_TURN
from splitjax.reports import numbers
from splitjax.reports.tensorboard import EventFile
from splitjax.types import Number, Row, State, UserError

_EXTRAS = ("embeddings", "metrics", "confusion", "target")
"""Fields of eval that do not change the scores of rows."""


def train(task: Task, key: str, workdir: Path, stop: Stop) -> None:
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
  trained = max(storage.steps_of(method_dir), default=0)
  end_if(console.requested(stop), trained)
  start = time.monotonic()
  method = programs.that_fit(make_subject(task, key))
  compiling = time.monotonic() - start
  state, record, log = begin(method, method_dir)
  record.seconds["compile"] += compiling
  trained = record.round
  end_if(console.requested(stop), trained)
  work = _work_of(method.subject)
  judged = list[Scores]()
  with contextlib.ExitStack() as stack:
    checkpoints = Checkpoints(method_dir, config.checkpoint)
    progress = Progress(method.subject.label, rounds, trained)
    events = list[EventFile]()
    if config.tensorboard and machine.is_first_process():
      events.append(EventFile(workdir, key, log))
    closing = [checkpoints.close, progress.close, *(x.close for x in events)]
    for close in closing:
      stack.callback(close)

    for number in range(trained + 1, rounds + 1):
      # Train a round; describe it, evaluate it where due, and log it.
      if number == config.eval.inside:
        _look_inside(method, state, workdir)
      start = time.monotonic()
      state, metrics = method.round(state)
      seconds = time.monotonic() - start
      spent = work and cost.of_round(work, metrics)
      line = history.log_line(key, number, metrics, seconds, spent)
      record = noted(record, line, method.subject)
      judged = evaluate(method, state, record, line)
      log.append(line)
      progress.round(number, line)
      for file in events:
        file.append(line)

      # Keep it: where due, before a stop, and at the end.
      at_end = number == rounds
      request = None if at_end else console.requested(stop)
      if at_end or request or checkpoints.due(number):
        checkpoints.save(Kept(record=record, state=state, log=log.text()))
      end_if(request, number)

  # A run that resumed after its last round has no evaluation yet.
  if trained == rounds:
    judged = judge(method, state, method.subject.method.rows, None)
  conclude(method, method_dir, state, record, log, judged)


def conclude(
  method: Programs,
  method_dir: Path,
  state: State,
  record: Record,
  log: Log,
  judged: list[Scores],
) -> None:
  """Measures a method after its last round and writes its numbers."""
  task = method.task
  rounds = task.config.rounds
  machine.wait_for_all("logged")  # process 0 has written all lines
  end = ended(method, state, log, judged, task.config)
  notes = [*_notes_on(method.subject, end, record)]
  about = About(
    rounds=rounds,
    notes=[*notes, f"Hardware: {console.hardware()}."],
    seconds=record.seconds,
  )
  finish(end, method_dir, about, {"exits.npz": exits(task, end)})
  times = ", ".join(f"{k} {v:.1f} s" for k, v in record.seconds.items())
  say(f"{method.subject.label}: {rounds} rounds done ({times})")


def ended(
  method: Programs,
  state: State,
  log: Log,
  judged: list[Scores],
  config: Config,
) -> End:
  """Makes what is measured of a method after its last round, or later again.

  `judged` are the scores of all rows, `config` is that of the training.
  """
  past = history.read_history(log, config, method.subject.method.rows)
  differs = workdirs.first_difference(
    vars(config.eval), vars(method.task.config.eval), _EXTRAS
  )
  return End(
    subject=method.subject,
    scores=judged,
    state=state,
    personal=method.personalise(state),
    lines=past.lines,
    totals=past.clients,
    current=not differs,
  )


# Begin, or go on.

LIBRARIES = (
  "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "chex", "numpy",
)  # fmt: skip
"""Packages whose version can change the last bits of a run's results."""


def begin(method: Programs, method_dir: Path) -> tuple[State, Record, Log]:
  """Returns the state, the record and the log from which a method goes on.

  They are those of the newest sound checkpoint, or else of a fresh network.
  Results of fewer rounds become invalid.
  """
  subject = method.subject
  log = Log(method_dir)
  snapshot = storage.restore(method_dir, method.shapes)
  if machine.is_first_process():
    workdirs.reopen(method_dir)
  log.restore(snapshot.log if snapshot else "")
  conditions = _conditions_of(subject)
  if snapshot is None:
    fresh = Record(widths=subject.widths, conditions=conditions)
    return method.begin(), fresh, log

  record = snapshot.record
  say(f"{subject.label}: resumes after round {record.round}")
  changes = [
    f"{name} {conditions.get(name, 'unknown')} instead of {value}"
    for name, value in record.conditions.items()
    if conditions.get(name) != value
  ]
  if changes:
    note = (
      f"{subject.label}: from round {record.round + 1} on with"
      f" {', '.join(changes)}; an uninterrupted run may differ by rounding."
    )
    say(note)
    record.notes.append(note)
  record = dataclasses.replace(
    record, widths=subject.widths, conditions=conditions
  )
  return placed(method, snapshot), record, log


def placed(method: Programs, snapshot: Kept) -> State:
  """Returns a saved state as a method's programs take it."""
  # Another number of devices pads cohorts to other sizes.
  if snapshot.record.widths == method.subject.widths:
    return snapshot.state
  return method.place(snapshot.state)


def _conditions_of(subject: Subject) -> dict[str, str]:
  """Returns what the bits of a run's results depend on beside its config."""
  libraries = {name: importlib.metadata.version(name) for name in LIBRARIES}
  return {
    "python": platform.python_version(),
    **libraries,
    "devices (kind)": target.current().kind,
    "devices (number)": str(subject.fleet.devices),
    "devices (chunks)": str([cohort.chunk for cohort in subject.fleet.cohorts]),
  }


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


def _work_of(subject: Subject) -> RoundWork | None:
  """Returns each client's work in a whole round; None if it is unknown."""
  try:
    return cost.whole_round(subject)
  except UserError as error:
    say(f"{subject.label}: cost is not modelled. {error}")
    return None


def noted(record: Record, line: Line, subject: Subject) -> Record:
  """Returns the record after a round; says first what it left out."""
  names = subject.task.network.names
  notes = list(history.left_out(subject.label, [line], names))
  for note in () if record.masked else notes:
    say(note)
  record.seconds["train"] += line["seconds"]
  masked = record.masked or bool(notes)
  return dataclasses.replace(record, round=line["round"], masked=masked)


def evaluate(
  method: Programs, state: State, record: Record, line: Line
) -> list[Scores]:
  """Scores the rows that are due after a round, and adds this to its line."""
  config = method.task.config
  due = history.due(config, method.subject.method.rows, line["round"])
  if due is None:
    return []
  start = time.monotonic()
  judged = judge(method, state, *due)
  record.seconds["evaluate"] += time.monotonic() - start
  by_row = {row.label: scores.log_scores(row) for row in judged}
  # Nothing is found if every row waits for the last round.
  for name in next(iter(by_row.values()), history.SCORES):
    line[name] = files.plain({row: x[name] for row, x in by_row.items()})
  if line["round"] == config.rounds:
    line["last"] = True
  return judged


def judge(
  method: Programs, state: State, rows: tuple[Row, ...], samples: int | None
) -> list[Scores]:
  """Scores rows on so many test samples of each client; None: on all."""
  outputs = method.evaluate(state, rows, samples)
  pairs = zip(rows, outputs, strict=True)
  return [scores.score(method.subject, row, answers) for row, answers in pairs]


# The end.

_CUTS = (
  "{}: every client trains with its own copy of the server's part, which equals"
  " training the whole network. The cut changes only messages, time and energy."
)
"""The note on a method with Method.cuts, whose clients hold whole networks."""

_WAITED = (
  "{} was evaluated only after the last round (eval.personal=last): it has no"
  " best round and no cost to a target."
)
"""The note on a row that was evaluated only after the last round."""

PARTS = (
  "Before the last round, evaluations use at most {} test samples of each"
  " client (eval.samples), and so do all numbers of several rounds."
)
"""The note on evaluations with some of the test samples."""


def finish(
  end: End,
  method_dir: Path,
  about: About,
  arrays: Mapping[str, Arrays] = MappingProxyType({}),
) -> None:
  """Measures a trained method and writes its numbers.

  `about` tells of the training, `arrays` are stored beside what was measured.
  """
  subject = end.subject
  finding, measured = measurements.measure(end)
  at_end = end.scores[-1]
  limits = None
  if at_end.swept is not None:
    limits = dict(zip(at_end.sets.names, at_end.chosen.threshold, strict=True))
  name = subject.config.methods[subject.key].name
  about = about._replace(
    methods={row.label: name for row in end.scores},
    tests=[*summary.notes(subject.task), *finding.notes],
    thresholds=files.plain(limits),
  )
  lines = list(finding.numbers)
  for row in subject.labels:
    for activity, seconds in about.seconds.items():
      lines.append(Number("seconds", seconds, row, part=activity))
  if machine.is_first_process():
    table = numbers.frame(lines, subject.config.seed)
    workdirs.write_results(method_dir, about, table, {**measured, **arrays})


def _notes_on(subject: Subject, end: End, record: Record) -> Iterator[str]:
  """Yields sentences on the training for a reader of the report."""
  task = subject.task
  label = subject.label
  lines = end.lines
  yield from summary.origin(task)
  if subject.method.cuts(subject.fleet) is not None:
    yield _CUTS.format(label)
  yield from record.notes
  if lines and "cost" not in lines[-1]:
    yield "Cost is not modelled."
  yield from history.left_out(label, lines, task.network.names)
  for row in subject.labels:
    if any(row not in line.get("accuracy", {row: None}) for line in lines):
      yield _WAITED.format(label + row.removeprefix(subject.key))
  chosen = task.config.eval
  if chosen.samples is not None and chosen.every < task.config.rounds:
    yield PARTS.format(chosen.samples)


def exits(task: Task, end: End) -> dict[str, np.ndarray]:
  """Returns exits.npz's content: samples, and the outputs of both exits.

  Held-out samples are under held/. A result row's outputs for test samples are
  under ROW/, those for held-out samples are under ROW/holdout/, those for
  proxies of the held-out samples are under ROW/proxy/.
  """
  names = "pool", "rows", "label", "main", "sets", "names"
  arrays = {name: np.asarray(getattr(task.test_sets, name)) for name in names}
  if task.holdout is not None:
    for name, leaf in task.holdout._asdict().items():
      arrays[f"held/{name}"] = leaf
  for row in end.scores:
    for part, outputs in row.outputs._asdict().items():
      prefix = row.label if part == "test" else f"{row.label}/{part}"
      for name, leaf in outputs._asdict().items() if outputs else ():
        if leaf is not None:
          arrays[f"{prefix}/{name}"] = leaf
  return arrays
