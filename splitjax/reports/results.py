"""Facts that tables and figures read from results, and their formats.

`splitjax.reports.report` defines the layout of results.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from splitjax.evaluation import metrics
from splitjax.registry import flat

ABSENT = "–"
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def ratios(results: dict[str, Any]) -> list[float] | None:
  """Returns the ρ of each test set; None if the sets are not mixtures."""
  try:
    return [float(name) for name in results["sets"]]
  except ValueError:
    return None


def severities(results: dict[str, Any]) -> list[int] | None:
  """Returns the severity of each test set; None without severities."""
  parts = [name.partition("severity ") for name in results["sets"]]
  if any(before or not number.isdigit() for before, _, number in parts):
    return None
  return [int(number) for *_, number in parts]


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
  """Returns the indices of the sets with the smallest and the largest ρ.

  If the sets are not mixtures, these are the first and the last set. A single
  set gives one index.
  """
  order: Any = ratios(results) or range(len(results["sets"]))
  return list(dict.fromkeys([order.index(min(order)), order.index(max(order))]))


def exponent(values: Iterable[float | None]) -> int:
  """Returns floor(log10) of the smallest value above 0; 0 without any."""
  positive = [value for value in values if value]
  return math.floor(math.log10(min(positive))) if positive else 0


def times_ten(power: int) -> str:
  """Formats 8 as "×10⁸"."""
  return "×10" + str(power).translate(RAISED)


def with_half(
  pair: tuple[float | None, float | None] | None,
  scale: float = 100.0,
  digits: int = 2,
  sign: Literal["", "+"] = "",
) -> str:
  """Formats a value and its half-width, if any, as in "1.20 ± 0.30"."""
  value, half = pair or (None, None)
  if value is None:
    return ABSENT
  shown = f"{scale * value:{sign}.{digits}f}"
  if sign:
    shown = shown.replace("-", "−")
  return shown if half is None else f"{shown} ± {scale * half:.{digits}f}"


def told(runs: Mapping[str, Sequence[str]]) -> list[str]:
  """Merges the notes of several runs (name -> notes); each note occurs once.

  A note that only some runs have is preceded by their names.
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
  """Returns the rule that chose the thresholds of the reported numbers."""
  return (
    results.get("config", {}).get("eval", {}).get("threshold_rule", "oracle")
  )


def gated(results: dict[str, Any]) -> list[dict[str, Any]]:
  """Returns the rows with two exits, which a threshold chooses between."""
  return [row for row in results["rows"] if row["summary"]["fixed"]]


Accuracies = dict[Any, dict[str, float | None]]
"""Seed -> test set -> accuracy."""


def accuracies(results: dict[str, Any], row: dict[str, Any]) -> Accuracies:
  """Returns the accuracies of a row by seed; {} if they are not stored."""
  seeds, each = [results.get("seed")], [row["summary"]["accuracy"]]
  if "seeds" in results:
    seeds, each = results["seeds"], row.get("by_seed", {}).get("accuracy", [])
  return {
    seed: dict(zip(results["sets"], one, strict=True))
    for seed, one in zip(seeds, each, strict=False)
  }


def paired(
  before: Accuracies, now: Accuracies, name: str
) -> tuple[float, float | None] | None:
  """Averages `now` minus `before` on a test set over their common seeds.

  Returns the mean and the half-width of its 95 % interval (Student's t over the
  differences; None for one seed), or None if no seed has both accuracies.
  """
  pairs = [(before[s].get(name), now[s].get(name)) for s in before if s in now]
  apart = [b - a for a, b in pairs if a is not None and b is not None]
  return metrics.confidence_interval(apart) if apart else None


class Gain(NamedTuple):
  """The mean over seeds of a row's accuracy minus the best other row's."""

  row: str
  set: str
  over: str  # the other row
  value: float
  half: float | None


def gains(results: dict[str, Any]) -> Iterator[Gain]:
  """Yields the headline row's gain over the best other row on two test sets.

  The two sets have the smallest and the largest ρ, or are the first and the
  last if no set is a mixture; with a single set there is no gain. The headline
  row belongs to the method that the config names as `headline`, or else to the
  first method. The best other row is the row of another method that has the
  highest mean over seeds.
  """
  methods = results["config"].get("methods") or {}
  key = results["config"].get("headline") or next(iter(methods), None)
  label = (methods.get(key) or {}).get("label") or key
  rows = {row["label"]: row for row in results["rows"]}
  label = label or next(iter(rows))
  ours, _ = rows.pop(label, None), rows.pop(f"{label}+FT", None)
  if ours is None or len(results["sets"]) < 2:
    return
  for i in ends(results):
    top = {
      name: row["summary"]["accuracy"][i]
      for name, row in rows.items()
      if row["summary"]["accuracy"][i] is not None
    }
    if not top:
      continue
    over, name = max(top, key=top.__getitem__), results["sets"][i]
    theirs, own = accuracies(results, rows[over]), accuracies(results, ours)
    if (found := paired(theirs, own, name)) is not None:
      yield Gain(ours["label"], name, over, *found)


def swept(results: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
  """Finds the only option in which the methods of a run differ.

  Returns:
    The option, and the label of each method -> its value. None if the methods
    differ in no option, in several, or in their names.
  """
  methods = results["config"].get("methods") or {}
  specs = {
    spec.get("label") or key: {k: v for k, v in spec.items() if k != "label"}
    for key, spec in methods.items()
  }
  names = {k for spec in specs.values() for k in spec}
  differ = [
    k for k in names if len({str(x.get(k)) for x in specs.values()}) > 1
  ]
  if len(differ) != 1 or differ == ["name"]:
    return None
  return differ[0], {label: x.get(differ[0]) for label, x in specs.items()}


def folded(trees: Sequence[dict[str, Any]]) -> str:
  """Writes the section of settings: a general line, then a line per method.

  Args:
    trees: results of a run, or of every cell of a grid. A setting is listed if
      it has the same value in all cells. A method's setting is listed if it has
      the same value in all cells with this method.
  """
  fields = [
    {
      k: v
      for k, v in tree["config"].items()
      if k != "methods" and (k, v) != ("changed", [])
    }
    for tree in trees
  ]
  seeds = [
    tree["seed"] if "seed" in tree else ", ".join(map(str, tree["seeds"]))
    for tree in trees
  ]
  every = [{**x, "seed": s} for x, s in zip(fields, seeds, strict=True)]
  lines = [_fields(every)]
  methods = [tree["config"].get("methods", {}) for tree in trees]
  for key in dict.fromkeys(key for each in methods for key in each):
    lines.append(f"`{key}`: {_fields(x[key] for x in methods if key in x)}")
  body = "\n".join(f"- {line}" for line in lines)
  title = "Settings" if len(trees) == 1 else "Settings of all cells"
  return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def _fields(every: Iterable[dict[str, Any]]) -> str:
  """Lists, in one line, names and values that all nested dicts share."""
  first, *others = map(flat, every)
  return " · ".join(
    f"{name} `{value}`"
    for name, value in first.items()
    if all(name in each and each[name] == value for each in others)
  )
