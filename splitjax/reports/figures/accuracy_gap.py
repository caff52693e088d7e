"""Accuracy against the performance gap (Hydra Figures 3, 5, 12, 16, 17, 19)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from splitjax.reports import forgetting
from splitjax.reports.figures.style import (
  MARKERS,
  bars,
  finish,
  leaf,
  panels,
  row_styles,
  title_suffix,
)


def accuracy_gap(results: dict[str, Any], path: str | Path) -> Path:
  """Late accuracy against the performance gap, a point per row (Figure 3)."""
  return against_gap([("", results)], path)


def against_gap(
  cells: Sequence[tuple[str, dict[str, Any]]], path: str | Path
) -> Path:
  """As `accuracy_gap` for every cell of a grid, each with its own marker.

  Cells are pairs of a name and results, in a meaningful order: a line joins the
  points of a row.
  """
  names = "performance gap of the classes [points]", "accuracy [%]"
  figure, (axes,) = panels(1, 1, (5.2, 3.3), names)
  points = [
    (i, row)
    for i, (_, results) in enumerate(cells)
    for row in forgetting.rows(results)
  ]
  styles = row_styles(row for _, row in points)
  several = len(cells) > 1
  for label, style in styles.items():
    mine = [(i, row) for i, row in points if row["label"] == label]
    gap, beside = _percent([row for _, row in mine], "gap")
    accuracy, above = _percent([row for _, row in mine], "accuracy")
    look = {**style, "elinewidth": 0.8, "capsize": 2.5}
    look |= {"marker": "none", "linewidth": 0.9} if several else {}
    axes.errorbar(
      gap, accuracy, bars(accuracy, above), bars(gap, beside), zorder=3, **look
    )
    for (i, _), x, y in zip(mine, gap, accuracy, strict=True):
      if several:
        axes.plot(x, y, zorder=4, **{**style, **_cell_marker(i)})
  axes.margins(0.1)
  axes.set_xlim(left=0)
  axes.set_ylim(*np.clip(axes.get_ylim(), -2, 102))
  if several:  # colour tells the row, the marker the cell
    styles = {k: {**style, "marker": "none"} for k, style in styles.items()}
    grey = {"color": "0.35", "linestyle": "none", "markersize": 5.5}
    for i, (name, _) in enumerate(cells):
      styles[name] = {**grey, **_cell_marker(i)}
  else:
    styles = {k: {**style, "linestyle": "none"} for k, style in styles.items()}
  title = "Accuracy against the performance gap, medians of the last rounds"
  title += title_suffix(cells[0][1])
  return finish(figure, [axes], styles, title, path)


def _cell_marker(i: int) -> dict[str, Any]:
  """The marker of a grid's i-th cell, first filled, then hollow."""
  fill = "full" if i < len(MARKERS) else "none"
  return {"marker": MARKERS[i % len(MARKERS)], "fillstyle": fill}


def _percent(
  rows: Sequence[dict[str, Any]], key: str
) -> tuple[np.ndarray, np.ndarray]:
  """A forgetting metric of rows in percent, and its half-widths."""
  pairs = [leaf(row, "summary", "forgetting", key) for row in rows]
  values, halves = (100 * np.array(pairs)).T
  return values, halves
