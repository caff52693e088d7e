"""Results as columns of text, and the table for a terminal made of them.

`report` says how results are laid out; here they are plain JSON already.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

ABSENT = "–"
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Column(NamedTuple):
  """One column of a table, ready to print.

  Attributes:
    group: what is measured, and its unit.
    name: of which test set or part; "" if the group says it all.
    cells: one per result row.
    best: the rows that hold the best value, where that is worth marking.
  """

  group: str
  name: str
  cells: list[str]
  best: frozenset[int] = frozenset()


def terminal(results: dict[str, Any]) -> str:
  """The main table as aligned text, the best accuracies starred.

  Several seeds have fewer digits and columns, so that nine rows at five rhos
  fit into 100 characters.
  """
  columns = main_columns(results, brief=True)
  labels = [row["label"] for row in results["rows"]]
  width = max(map(len, labels))
  blocks = [[label.ljust(width) for label in ["", "", *labels]]]
  for group in dict.fromkeys(column.group for column in columns):
    blocks.append(_block([each for each in columns if each.group == group]))
  lines = ["  ".join(parts).rstrip() for parts in zip(*blocks, strict=True)]
  rule = "-" * max(map(len, lines))
  return "\n".join([*lines[:2], rule, *lines[2:]]) + "\n"


def ratios(results: dict[str, Any]) -> list[float] | None:
  """The rhos of the test sets; None where the sets are no mixtures."""
  try:
    return [float(name) for name in results["sets"]]
  except ValueError:
    return None


def heading(name: str) -> str:
  """How a test set is called: "0.2" -> "ρ=0.2", any other name as it is."""
  try:
    return f"ρ={float(name):g}"
  except ValueError:
    return name


def ends(results: dict[str, Any]) -> list[int]:
  """The sets of the smallest and the largest rho; otherwise first and last."""
  order: Any = ratios(results) or range(len(results["sets"]))
  return list(dict.fromkeys([order.index(min(order)), order.index(max(order))]))


def exponent(values: Iterable[float | None]) -> int:
  """The power of ten that leaves the smallest value at 1 or above."""
  positive = [value for value in values if value]
  return math.floor(math.log10(min(positive))) if positive else 0


def times_ten(power: int) -> str:
  """8 -> "×10⁸"."""
  return "×10" + str(power).translate(RAISED)


def main_columns(results: dict[str, Any], brief: bool) -> list[Column]:
  """Accuracy on every test set; the costs on the first and the last.

  Args:
    results: as `report` lays them out.
    brief: for a terminal: without some seconds, and over several seeds with
      fewer digits and with the costs of the last set alone.
  """
  names, rows = results["sets"], results["rows"]
  tight = brief and "seeds" in results
  shown = ends(results)[-1:] if tight else sorted(ends(results))
  costs = [row["summary"]["latency"][r] for row in rows for r in shown]
  power = exponent(costs)
  unit = f"latency {times_ten(power)}"

  def columns(group, key, places, scale, digits):
    return [
      _column(
        rows, group, heading(names[r]), ("summary", key, r), scale, digits
      )
      for r in places
    ]

  everywhere = range(len(names))
  accuracy = columns("accuracy [%]", "accuracy", everywhere, 100, 2 - tight)
  found = [marked(column) for column in accuracy]
  found += columns("offload %", "offload", shown, 100, 1 - tight)
  found += columns(unit, "latency", shown, 10.0**-power, 2)
  if tight:
    return found
  found.append(_column(rows, "MB/round", "", ("bytes_per_round",), 1e-6, 2))
  for part in ["train"] if brief else ["train", "compile", "evaluate"]:
    found.append(_column(rows, f"{part} [s]", "", ("seconds", part), 1, 1))
  return found


def rule(results: dict[str, Any]) -> str:
  """Whose thresholds the headline numbers are at."""
  judged = results.get("config", {}).get("eval", {})
  return judged.get("threshold_rule", "oracle")


def gated(results: dict[str, Any]) -> bool:
  """Whether any row has two exits, and so a threshold between them."""
  found = (row["summary"].get("common") for row in results["rows"])
  return any(each is not None for each in found)


def part_columns(results: dict[str, Any], r: int) -> list[Column]:
  """What the accuracies on the r-th set are made of (SplitGP, Table IV)."""
  rows = results["rows"]
  shown = [
    ("accuracy", rule(results), "accuracy"),
    ("accuracy", "one threshold", "common"),
    ("accuracy", "device only", "device_only"),
    ("accuracy", "server only", "server_only"),
    ("accuracy", "ID", "id"),
    ("accuracy", "OOD", "ood"),
    ("offloaded", "of ID", "offload_id"),
    ("offloaded", "of OOD", "offload_ood"),
  ]
  return [
    _column(rows, f"{group} [%]", name, ("summary", key, r), 100, 2)
    for group, name, key in shown
  ]


def skew_columns(rows: list[dict[str, Any]]) -> list[Column]:
  """Of rows that have embeddings, how far the clients disagree (`skew`)."""
  silhouette = ("summary", "skew", "silhouette")
  ratio = ("summary", "skew", "distance_ratio")
  name = "same class across clients / different classes"
  return [
    marked(_column(rows, "silhouette", "by class", silhouette, 1, 3)),
    marked(_column(rows, "distance,", name, ratio, 1, 3), min),
  ]


def _column(
  rows: list[dict[str, Any]],
  group: str,
  name: str,
  path: tuple[str | int, ...],
  scale: float,
  digits: int,
) -> Column:
  """The value that lies at a path of every row, with its half-width if any."""
  return Column(group, name, [cell(row, path, scale, digits) for row in rows])


def cell(
  row: dict[str, Any], path: tuple[str | int, ...], scale: float, digits: int
) -> str:
  """One number of a row as text, with its half-width if it has one.

  Args:
    row: a result row.
    path: where the number lies in it, and its half-width in its interval.
    scale: what it is multiplied by.
    digits: behind the point.
  """
  value, half = _at(row, path), _at(row.get("interval"), path)
  text = ABSENT if value is None else f"{value * scale:.{digits}f}"
  return text if half is None else f"{text}±{half * scale:.{digits}f}"


def _at(tree: Any, path: tuple[str | int, ...]) -> Any:
  """The leaf at a path, None where it breaks off."""
  for step in path:
    if tree is None:
      return None
    tree = tree[step]
  return tree


def marked(column: Column, best: Callable = max) -> Column:
  """Marks the best value, as printed: whoever looks equal is equal.

  Args:
    column: its cells as text.
    best: which of several is the best, max or min.
  """
  values = {
    i: float(cell.split("±")[0])
    for i, cell in enumerate(column.cells)
    if cell != ABSENT
  }
  if len(column.cells) < 2 or not values:
    return column
  top = best(values.values())
  leads = frozenset(i for i, value in values.items() if value == top)
  return column._replace(best=leads)


def _block(columns: list[Column]) -> list[str]:
  """Columns of one group as lines of equal width, two of them heading."""
  sides = []
  for column in columns:
    # the star's place is kept in every cell, so that the digits stay aligned
    star = [" *"[i in column.best] for i in range(len(column.cells))]
    starred = [
      cell + mark if column.best else cell
      for cell, mark in zip(column.cells, star, strict=True)
    ]
    name = column.name + " " if column.best else column.name
    width = max(map(len, [name, *starred]))
    sides.append([cell.rjust(width) for cell in [name, *starred]])
  lines = [" ".join(parts) for parts in zip(*sides, strict=True)]
  lines = [columns[0].group, *lines]
  width = max(map(len, lines))
  return [line.rjust(width) for line in lines]
