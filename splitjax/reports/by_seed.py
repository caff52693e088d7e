"""The accuracy of every seed, and differences of runs seed by seed."""

from collections.abc import Sequence
from typing import Any

from splitjax.evaluation import metrics
from splitjax.reports.formats import Table, markdown
from splitjax.reports.results import ABSENT, ends, heading
from splitjax.reports.tables import axis_names, text

Cells = Sequence[tuple[dict[str, Any], dict[str, Any]]]
"""Of a grid, pairs of field -> value and results."""

Accuracies = dict[int, dict[str, float | None]]
"""Seed -> test set -> accuracy."""

WORDS = (
  "In per cent, on the first and the last test set. Methods of one run and seed"
  " have the same clients, data and first network, so that they can be compared"
  " seed by seed."
)
"""What the table is for."""

PAIRED = (
  "In points of accuracy: a run's minus that of the first run that has the"
  " method, in each seed that both have; the mean over these seeds, ± the"
  " half-width of its 95 % interval (Student's t over the paired differences)."
  " Runs share clients and data within a seed unless a field that decides them"
  " is among what differs."
)


def section(cells: Cells) -> list[str]:
  """Title, table and words; [] where there is one seed.

  A run has one cell, without values. Cells of a single seed are left out.
  """
  # Reports of earlier versions do not have them.
  known = [
    (values, tree)
    for values, tree in cells
    if "seeds" in tree and all("by_seed" in row for row in tree["rows"])
  ]
  seeds = list(dict.fromkeys(s for _, tree in known for s in tree["seeds"]))
  if len(seeds) < 2:
    return []
  sets = list(
    dict.fromkeys(tree["sets"][i] for _, tree in known for i in ends(tree))
  )
  axes = list(dict.fromkeys(axis for values, _ in known for axis in values))
  # The names of a line: of its cell and its method, of a method first where
  # its runs stand beside each other.
  lines = list[tuple[list[str], list[str]]]()
  for values, tree in known:
    for row in tree["rows"]:
      own = _accuracies(tree, row)
      cell = [_share(own, seed, name) for name in sets for seed in seeds]
      names = [*(text(values.get(axis)) for axis in axes), row["label"]]
      lines.append((names, cell))
  heads = [*axis_names(axes), "method"]
  if axes == ["run"]:
    labels = list(dict.fromkeys(label for (_, label), _ in lines))
    lines = [([label, run], cell) for (run, label), cell in lines]
    lines.sort(key=lambda each: labels.index(each[0][0]))
    heads.reverse()
  heads += [f"{heading(name)}, seed {seed}" for name in sets for seed in seeds]
  body = [[*names, *cell] for names, cell in lines]
  table = Table(heads, body, len(axes) + 1)
  return ["## Accuracy of each seed", markdown(table), WORDS]


def _share(own: Accuracies, seed: int, name: str) -> str:
  """The accuracy of a seed on a test set, in per cent."""
  value = own.get(seed, {}).get(name)
  return ABSENT if value is None else f"{100 * value:.2f}"


def differences(cells: Cells) -> Table | None:
  """Runs of a method against the first that has it, paired by their seeds.

  One line per method and later run; None where no method has two runs. The
  cells are workdirs side by side, their value is `run`.
  """
  sets = list(dict.fromkeys(name for _, tree in cells for name in tree["sets"]))
  found: dict[str, list[tuple[str, Accuracies]]] = {}
  for values, tree in cells:
    for row in tree["rows"]:
      each = values["run"], _accuracies(tree, row)
      found.setdefault(row["label"], []).append(each)
  lines, starts = list[list[str]](), set[int]()
  for label, ((first, before), *others) in found.items():
    starts.add(len(lines))
    for run, now in others:
      both = str(len(before.keys() & now.keys()))
      cell = [_difference(before, now, name) for name in sets]
      lines.append([label, f"{run} − {first}", both, *cell])
  heads = ["method", "runs", "seeds", *map(heading, sets)]
  table = Table(heads, lines, 3, starts=frozenset(starts - {0}))
  return table if lines else None


def _accuracies(tree: dict[str, Any], row: dict[str, Any]) -> Accuracies:
  """The accuracies of a row."""
  each = [row["summary"]["accuracy"]]
  if "seeds" in tree:  # reports of earlier versions do not have them all
    each = row.get("by_seed", {}).get("accuracy", [])
  seeds = tree.get("seeds", [tree.get("seed")])
  return {
    seed: dict(zip(tree["sets"], one, strict=True))
    for seed, one in zip(seeds, each, strict=False)
  }


def _difference(before: Accuracies, now: Accuracies, name: str) -> str:
  """The mean of paired differences in points, ± its half-width if there is."""
  pairs = [(before[s].get(name), now[s].get(name)) for s in before if s in now]
  apart = [100 * (b - a) for a, b in pairs if a is not None and b is not None]
  if not apart:
    return ABSENT
  mean, half = metrics.confidence_interval(apart)
  shown = f"{mean:+.2f}".replace("-", "−")
  return shown if half is None else f"{shown} ± {half:.2f}"
