"""Facts that tables and figures read from results, and how they print them.

`splitjax.reports.report` defines the layout of results.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ABSENT = "–"
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def ratios(results: dict[str, Any]) -> list[float] | None:
  """The ρ of each test set; None where the sets are not mixtures."""
  try:
    return [float(name) for name in results["sets"]]
  except ValueError:
    return None


def heading(name: str) -> str:
  """A test set's name in a table: "0.2" -> "ρ=0.2", others unchanged."""
  try:
    return f"ρ={float(name):g}"
  except ValueError:
    return name


def client(n: int, names: Sequence[str]) -> str:
  """A client in a text: its number, and its name where it has one."""
  return f"{n} ({names[n]})" if names else str(n)


def ends(results: dict[str, Any]) -> list[int]:
  """Indices of the sets with the smallest and largest ρ, or first and last."""
  order: Any = ratios(results) or range(len(results["sets"]))
  return list(dict.fromkeys([order.index(min(order)), order.index(max(order))]))


def exponent(values: Iterable[float | None]) -> int:
  """The power of ten that leaves the smallest value at 1 or above."""
  positive = [value for value in values if value]
  return math.floor(math.log10(min(positive))) if positive else 0


def times_ten(power: int) -> str:
  """8 -> "×10⁸"."""
  return "×10" + str(power).translate(RAISED)


def told(runs: Mapping[str, Sequence[str]]) -> list[str]:
  """Notes of several runs, name -> its notes, once each.

  A note that not all of them have is preceded by the names of those that do.
  """
  names: dict[str, list[str]] = {}
  for name, notes in runs.items():
    for note in dict.fromkeys(notes):
      names.setdefault(note, []).append(name)
  return [
    note if len(having) == len(runs) else f"{', '.join(having)}: {note}"
    for note, having in names.items()
  ]


def rule(results: dict[str, Any]) -> str:
  """The rule whose thresholds the headline numbers use."""
  return (
    results.get("config", {}).get("eval", {}).get("threshold_rule", "oracle")
  )


def gated(results: dict[str, Any]) -> bool:
  """Whether a row has two exits and so a threshold between them."""
  return any(
    row["summary"].get("common") is not None for row in results["rows"]
  )
