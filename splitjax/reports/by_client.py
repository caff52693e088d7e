"""The accuracy of single clients: of those with names, and of rare classes."""

from collections.abc import Iterable, Sequence
from typing import Any

from splitjax.evaluation import metrics
from splitjax.reports.formats import Table, markdown
from splitjax.reports.results import ABSENT, ends, heading

ALL = "all"
"""Stands for every class of a client."""

MOST = 60
"""Lines of the table; a run with more is told where all numbers are."""

MOST_OF_CLASSES = 50_000
"""Lines of single classes of a method; of more, those of one client alone."""

Line = dict[str, Any]
"""row, set, client, name, class, training_samples, test_samples, accuracy; of
several seeds also half, of the 95 % interval."""

_KEY = "row", "set", "client", "name", "class"


def chosen(lines: Sequence[Line]) -> list[Line]:
  """Chooses the lines for a report: named clients, and classes of one alone.

  Args:
    lines: of a run, as of `experiment.by_client.measure`.
  """
  trained = {
    (line["class"], line["client"])
    for line in lines
    if line["class"] != ALL and line["training_samples"]
  }
  holders = [held for held, _ in trained]
  alone = {each for each in trained if holders.count(each[0]) == 1}
  return [
    line
    for line in lines
    if (line["class"] == ALL and line["name"])
    or (line["class"], line["client"]) in alone
  ]


def over_seeds(every: Sequence[Sequence[Line]]) -> list[Line]:
  """Means and 95 % intervals of each line over seeds with the same clients.

  [] where the seeds have other clients or classes: client 7 of one seed is then
  not client 7 of another.
  """
  keys = [[tuple(line[k] for k in _KEY) for line in one] for one in every]
  if any(one != keys[0] for one in keys):
    return []
  merged = []
  for same in zip(*every, strict=True):
    shares = [line["accuracy"] for line in same]
    mean, half = None, None
    if None not in shares and same[0]["name"]:
      mean, half = metrics.confidence_interval(shares)
    merged.append({**same[0], "accuracy": mean, "half": half})
  return [line for line in merged if line["name"]]


def section(tree: dict[str, Any]) -> list[str]:
  """Title, table and words; [] where no line was chosen."""
  lines: list[Line] = tree.get("by_client") or []
  sets = [tree["sets"][i] for i in ends(tree)]
  columns = [(row["label"], name) for name in sets for row in tree["rows"]]
  table: dict[tuple[str, ...], dict[tuple[str, str], str]] = {}
  for line in lines:
    number = "new" if line["client"] is None else line["client"]
    who = f"{number} ({line['name']})" if line["name"] else str(number)
    place = who, str(line["class"]), str(line["training_samples"])
    cells = table.setdefault(place, {})
    cells[line["row"], line["set"]] = _cell(line)
  if not table:
    return []
  title = "## Accuracy of single clients"
  words = (
    "In per cent, on the first and the last test set: of each client that the"
    " data name, and of each class that one client alone trains on. The file"
    " clients.csv has all clients and test sets, and on these two the classes."
  )
  if any(line["client"] is None for line in lines):
    words += (
      " A new client did not train: all clients' networks answer its samples."
    )
  if len(table) > MOST:
    return [title, f"{len(table)} lines are too many for a page. {words}"]
  heads = ["client", "class", "training samples"]
  heads += [f"{label}, {heading(name)}" for label, name in columns]
  body = [
    [*place, *(cells.get(column, ABSENT) for column in columns)]
    for place, cells in table.items()
  ]
  return [title, markdown(Table(heads, body, 2)), words]


def _cell(line: Line) -> str:
  parts: Iterable[Any] = (line["accuracy"], line.get("half"))
  return " ± ".join(f"{100 * x:.2f}" for x in parts if x is not None) or ABSENT
