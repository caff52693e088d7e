"""Facts that tables and figures read from results, and their formats.

`splitjax.reports.report` defines the layout of results.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ABSENT = "–"
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def ratios(results: dict[str, Any]) -> list[float] | None:
  """Returns the ρ of each test set; None if the sets are not mixtures."""
  try:
    return [float(name) for name in results["sets"]]
  except ValueError:
    return None


def heading(name: str) -> str:
  """Formats a test set's name: "0.2" as "ρ=0.2", others unchanged."""
  try:
    return f"ρ={float(name):g}"
  except ValueError:
    return name


def client(n: int, names: Sequence[str]) -> str:
  """Formats a client as its number, and its name if it has one."""
  return f"{n} ({names[n]})" if names else str(n)


def ends(results: dict[str, Any]) -> list[int]:
  """Finds the sets with smallest and largest ρ, or the first and last set."""
  order: Any = ratios(results) or range(len(results["sets"]))
  return list(dict.fromkeys([order.index(min(order)), order.index(max(order))]))


def exponent(values: Iterable[float | None]) -> int:
  """Returns the exponent of the largest power of ten below all values."""
  positive = [value for value in values if value]
  return math.floor(math.log10(min(positive))) if positive else 0


def times_ten(power: int) -> str:
  """Formats 8 as "×10⁸"."""
  return "×10" + str(power).translate(RAISED)


def told(runs: Mapping[str, Sequence[str]]) -> list[str]:
  """Merges the notes of several runs (name -> notes), once each.

  A note that not all runs have is preceded by the names of those that do.
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
  """Returns the rule whose thresholds the headline numbers use."""
  return (
    results.get("config", {}).get("eval", {}).get("threshold_rule", "oracle")
  )


def gated(results: dict[str, Any]) -> bool:
  """Checks if a row has two exits and so a threshold between them."""
  return any(
    row["summary"].get("common") is not None for row in results["rows"]
  )
