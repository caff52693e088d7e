"""A grid as figures: accuracy over the field in which runs differ; the gap."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from splitjax.reports import forgetting
from splitjax.reports.figures import accuracy_gap
from splitjax.reports.figures.style import (
  bars,
  dodged,
  finish,
  judged,
  leaf,
  row_styles,
)
from splitjax.reports.results import ends, heading


def draw(whole: dict[str, Any], folder: str | Path) -> list[Path]:
  """Draws accuracy over the grid's axis, and against the performance gap.

  Args:
    whole: title, fields and cells of a grid, as `grid.run` returns them.
    folder: where accuracy_over_AXIS.png goes, AXIS the field's last word, and
      accuracy_gap.png.

  Returns:
    The files, as far as there are numbers for them.
  """
  return over_axis(whole, folder) + over_gap(whole, folder)


def over_gap(whole: dict[str, Any], folder: str | Path) -> list[Path]:
  """Accuracy against the gap between classes, on the global test set alone.

  Args and Returns as in `draw`; every point bears its cell's values.
  """
  cells = [
    (", ".join(map(str, cell["values"].values())), cell["results"])
    for cell in whole["cells"]
    if forgetting.shown(cell["results"])
  ]
  if not cells:
    return []
  return [accuracy_gap.against_gap(cells, Path(folder) / "accuracy_gap.png")]


def over_axis(whole: dict[str, Any], folder: str | Path) -> list[Path]:
  """Accuracy over the grid's axis, one line per row, if it has one.

  On the first and the last test set, with intervals where there are seeds.
  Args as in `draw`.

  Returns:
    The file; none where several fields vary, or one that is no number, or
    where a single value of it has results.
  """
  cells = whole["cells"]
  values = [value for cell in cells for value in cell["values"].values()]
  numbers = all(type(value) in (int, float) for value in values)
  if len(whole["fields"]) != 1 or len(cells) < 2 or not numbers:
    return []
  first, field = cells[0]["results"], whole["fields"][0]
  names = [first["sets"][r] for r in ends(first)]
  size = (1.4 + 3.7 * len(names), 4.4)
  figure = Figure(figsize=size, layout="constrained")
  panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
  rows = [row for cell in cells for row in cell["results"]["rows"]]
  labels = list(dict.fromkeys(row["label"] for row in rows))
  styles = row_styles({"rows": [{"label": label} for label in labels]})
  order = np.argsort(values)
  for axes, name in zip(panels, names, strict=True):
    for i, label in enumerate(labels):
      found = np.array([_at(cell["results"], label, name) for cell in cells])
      accuracy, halves = 100 * found[order].T
      at = np.sort(values)
      if np.isfinite(halves).any():
        at = _places(at, i, len(labels))
      whiskers = bars(accuracy, halves)
      axes.errorbar(at, accuracy, whiskers, capsize=3, **styles[label])
    if _wide(values):
      axes.set_xscale("log")
      axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(np.unique(values))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.set_title(heading(name), fontsize=10)
    axes.set_xlabel(field)
  panels[0].set_ylabel("accuracy [%]")
  word = field.split(".")[-1]
  path = Path(folder) / f"accuracy_over_{word}.png"
  title = f"Accuracy over {word}{judged(first)}"
  return [finish(figure, panels, styles, title, path)]


def _at(results: dict[str, Any], label: str, name: str) -> tuple[float, float]:
  """Accuracy and half-width of a row on a test set; NaN where it has none."""
  for row in results["rows"]:
    if row["label"] == label and name in results["sets"]:
      r = results["sets"].index(name)
      value, half = leaf(row, "summary", "accuracy")
      return value[r], half[r]
  return np.nan, np.nan


def _wide(values: list[float]) -> bool:
  """Whether an axis is logarithmic: it spreads over a decade or more."""
  return min(values) > 0 and max(values) >= 10 * min(values)


def _places(values: np.ndarray, i: int, count: int) -> np.ndarray:
  """Where the i-th of `count` rows is drawn: beside the others."""
  if _wide(list(values)):
    return 10 ** dodged(list(np.log10(values)), i, count)
  return dodged(list(values), i, count)
