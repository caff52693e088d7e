"""Accuracy by client and class: the table `clients.csv`."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from splitjax import files
from splitjax.evaluation import early_exit
from splitjax.experiment.setup import data_summary
from splitjax.experiment.setup.tasks import Task
from splitjax.experiment.storage.workdirs import CLIENTS
from splitjax.reports.by_client import ALL, MOST_OF_CLASSES
from splitjax.reports.results import ends
from splitjax.types import Outputs

Line = dict[str, Any]
"""A line of clients.csv: row, set, client, name, class, training_samples,
test_samples, accuracy."""

TEXTS = "row", "set", "name"


def measure(
  task: Task, rows: Sequence[dict[str, Any]], outputs: Sequence[Outputs]
) -> list[Line]:
  """Measures every client's accuracy by class at the thresholds in `rows`.

  On every test set a client has one line for ALL classes together. On the first
  and the last set it also has a line for each class of which it holds training
  or test samples. If rows x sets x clients x classes is above MOST_OF_CLASSES,
  only the classes that exactly one client trains on have such lines.

  A client that does not train (`TestSets.new`) has lines without a number. The
  networks of several training clients may answer its samples. Its accuracy is
  the share of right answers among all answers, whichever network gave them.

  Args:
    task: the task of the run.
    rows: result rows of `scores.score_rows`.
    outputs: the outputs of each row.

  Returns:
    The lines. name is "" where the data do not name their clients; accuracy is
    in [0, 1], None without test samples.
  """
  sets, lines = task.test_sets, list[Line]()
  counts = data_summary.class_counts(task)
  new = _new(task)
  detailed = ends({"sets": sets.names})
  cells = (len(counts) + len(new.known)) * task.data.classes
  listed = np.ones(task.data.classes, bool)
  if len(rows) * len(detailed) * cells > MOST_OF_CLASSES:
    listed = (counts > 0).sum(axis=0) == 1
  trained = _trained(task, counts)
  for row, each in zip(rows, outputs, strict=True):
    answers = row["summary"]["answers"]
    limits = row["summary"]["per_client"]["threshold"]
    for r, name in enumerate(sets.names):
      limit = np.nan if limits is None else np.array(limits[r], float)
      right = early_exit.predictions(each.test, limit, answers) == sets.label
      start = {"row": row["label"], "set": name}
      classes = listed if r in detailed else np.zeros_like(listed)
      groups = [(trained, sets.sets[r]), (new, sets.new)]
      for group, tested in groups[: 1 + bool(new.known)]:
        held = _counted(group, sets.label, tested, right)
        for one, table in zip(group.known, held, strict=True):
          lines += _lines({**start, **one}, table, classes)
  return lines


class Group(NamedTuple):
  """A group of clients in the table `clients.csv`.

  Attributes:
    known: for each client a dict of "client" (its number, or None if it does
      not train) and "name".
    counts: [G, C] int, training samples by class.
    owner: [N, K] int, the position in `known` of each test sample's owner.
  """

  known: list[Line]
  counts: np.ndarray
  owner: np.ndarray


def _trained(task: Task, counts: np.ndarray) -> Group:
  """Returns the run's clients, each with the samples that it is tested on."""
  names = task.network.names or [""] * len(counts)
  known = [{"client": n, "name": name} for n, name in enumerate(names)]
  owner = np.arange(len(counts))[:, None]
  return Group(known, counts, np.broadcast_to(owner, task.test_sets.rows.shape))


def _new(task: Task) -> Group:
  """Returns the clients that do not train, with their samples."""
  data, sets = task.data, task.test_sets
  owner = np.zeros_like(sets.rows)
  if data.test_client is None or task.config.eval.shift.name != "own_test":
    return Group([], np.zeros((0, data.classes), int), owner)
  every, place = np.unique(
    data.test_client[sets.rows[sets.new]], return_inverse=True
  )
  owner[sets.new] = place
  known = [{"client": None, "name": name} for name in data.names(every)]
  return Group(known, np.zeros((len(every), data.classes), int), owner)


def _counted(
  group: Group, label: np.ndarray, tested: np.ndarray, right: np.ndarray
) -> np.ndarray:
  """Counts each client's training samples, test samples and right answers.

  Returns [G, 3, C] int: the three counts by client and class.
  """
  shape = group.counts.shape
  place, size = (group.owner * shape[1] + label)[tested], group.counts.size
  every = np.bincount(place, minlength=size).reshape(shape)
  hits = np.bincount(place, right[tested], size).reshape(shape)
  return np.stack([group.counts, every, hits], axis=1)


def _lines(
  start: Line, table: np.ndarray, classes: np.ndarray
) -> Iterator[Line]:
  """Yields a client's line of ALL classes, then its lines of single classes.

  `table` [3, C] has the client's counts, see `_counted`. A class has a line if
  `classes` [C] bool is true for it and the client has samples of it.
  """
  shown = np.flatnonzero(classes & table[:2].any(axis=0)).tolist()
  columns = [table.sum(axis=1), *table[:, shown].T]
  for name, column in zip([ALL, *shown], columns, strict=True):
    own, count, hits = map(int, column)
    share = hits / count if count else None
    counted = {"training_samples": own, "test_samples": count}
    yield {**start, "class": name, **counted, "accuracy": share}


def over_rounds(
  logs: Iterable[Iterable[Line]], names: Sequence[str]
) -> Iterator[Line]:
  """Yields every client's accuracy in each evaluated round.

  Each of `logs` yields the lines of a method's log; `names` are the clients'
  names, if any. An evaluation between rounds may use only some of the samples
  (eval.samples).
  """
  for log in logs:
    for line in log:
      for row, sets in line.get("by_client", {}).items():
        for name, shares in sets.items():
          for n, share in enumerate(shares):
            known = {"name": names[n] if names else "", "accuracy": share}
            start = {"row": row, "set": name, "round": line["round"]}
            yield {**start, "client": n, **known}


def write(folder: Path, lines: Iterable[Line], name: str = CLIENTS) -> None:
  """Writes lines to a CSV file; deletes the file if there are no lines."""
  lines = iter(lines)
  if (first := next(lines, None)) is None:
    (folder / name).unlink(missing_ok=True)
    return
  folder.mkdir(parents=True, exist_ok=True)
  text = io.StringIO()
  writer = csv.DictWriter(text, list(first), lineterminator="\n")
  writer.writeheader()
  writer.writerow(first)
  writer.writerows(lines)
  files.write_text(folder / name, text.getvalue())


def read(folder: Path) -> list[Line]:
  """Reads the lines that `write` wrote to a folder; [] if there is no file."""
  if not (folder / CLIENTS).exists():
    return []
  with (folder / CLIENTS).open(encoding="utf-8", newline="") as file:
    return [
      {k: _value(k, text) for k, text in line.items()}
      for line in csv.DictReader(file)
    ]


def _value(field: str, text: str) -> Any:
  if field in TEXTS or text == ALL:
    return text
  return json.loads(text) if text else None
