"""Accuracy by client and class: the table `clients.csv`."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from splitjax import files
from splitjax.evaluation import early_exit
from splitjax.evaluation.exits import Outputs
from splitjax.experiment.setup import data_summary
from splitjax.experiment.setup.tasks import Task
from splitjax.experiment.storage.workdirs import CLIENTS
from splitjax.reports.by_client import ALL, MOST_OF_CLASSES
from splitjax.reports.results import ends

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
  names = task.network.names or [""] * len(counts)
  detailed = ends({"sets": sets.names})
  listed = np.ones(task.data.classes, bool)
  if len(rows) * len(detailed) * counts.size > MOST_OF_CLASSES:
    listed = (counts > 0).sum(axis=0) == 1
  for row, each in zip(rows, outputs, strict=True):
    answers = row["summary"]["answers"]
    limits = row["summary"]["per_client"]["threshold"]
    for r, name in enumerate(sets.names):
      limit = np.nan if limits is None else np.array(limits[r], float)
      right = early_exit.predictions(each.test, limit, answers) == sets.label
      start = {"row": row["label"], "set": name}
      classes = listed if r in detailed else np.zeros_like(listed)
      held = _counted(counts, sets.label, sets.sets[r], right)
      for n, table in enumerate(held):
        who = {"client": n, "name": names[n]}
        lines += _lines({**start, **who}, table, classes)
  return lines


def _counted(
  counts: np.ndarray, label: np.ndarray, tested: np.ndarray, right: np.ndarray
) -> np.ndarray:
  """Counts each client's training samples, test samples and right answers.

  Takes `counts` [N, C], training samples; the other arguments are [N, K].
  Returns [N, 3, C] int: the three counts by client and class.
  """
  clients, classes = counts.shape
  place = (np.arange(clients)[:, None] * classes + label)[tested]
  every = np.bincount(place, minlength=counts.size)
  hits = np.bincount(place, right[tested], counts.size)
  return np.stack(
    [counts, every.reshape(counts.shape), hits.reshape(counts.shape)], axis=1
  )


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


def read_clients(folder: Path) -> list[Line]:
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
