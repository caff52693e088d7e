"""Accuracy by named client, and by class that one client has."""

from collections.abc import Sequence
from typing import Any

from splitjax.evaluation import metrics
from splitjax.reports.formats import Table, markdown
from splitjax.reports.results import ABSENT, ends, heading, with_half

ALL = "all"
"""Value of the key "class" in a line that covers all classes of a client."""

MOST = 60
"""Limit of the lines of a table. Above it, the page names a file instead."""

MOST_OF_CLASSES = 50_000
"""Limit of the number of lines about single classes (rows x 2 sets x clients x
classes). Above it, only classes that a single client trains on have lines."""

Line = dict[str, Any]
"""Keys: row, set, client, name, class, training_samples, test_samples and
accuracy; over several seeds also "half", half-width of the 95 % interval."""

_KEY = "row", "set", "client", "name", "class"


def chosen(lines: Sequence[Line]) -> list[Line]:
  """Chooses the lines that a report shows.

  A line that covers all classes (ALL) is shown if its client has a name. A line
  about one class is shown if only its client trains on this class.

  Args:
    lines: lines of a run, from `experiment.by_client.measure`.
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


def clients_over_seeds(every: Sequence[Sequence[Line]]) -> list[Line]:
  """Averages the lines of named clients over seeds, with 95 % intervals.

  Returns [] if clients have no names, or if the seeds differ in clients or
  classes: client 7 of one seed is then not client 7 of another.
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


def client_section(tree: dict[str, Any]) -> list[str]:
  """Makes title, table and explanation; returns [] if results have no lines."""
  lines: list[Line] = tree.get("by_client") or []
  sets = [tree["sets"][i] for i in ends(tree)]
  columns = [(row["label"], name) for name in sets for row in tree["rows"]]
  table: dict[tuple[str, ...], dict[tuple[str, str], str]] = {}
  for line in lines:
    number, name = str(line["client"]), line["name"]
    who = f"{number} ({name})" if name else number
    place = who, str(line["class"]), str(line["training_samples"])
    cells = table.setdefault(place, {})
    pair = line["accuracy"], line.get("half")
    cells[line["row"], line["set"]] = with_half(pair)
  if not table:
    return []
  title = "## Accuracy of single clients"
  words = (
    "In per cent, on the first and the last test set: each client that the data"
    " name, and each class that only one client trains on. The file clients.csv"
    " has all clients on all test sets, and all classes on these two."
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
