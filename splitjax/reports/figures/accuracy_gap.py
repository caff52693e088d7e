"""Accuracy against the performance gap (Hydra Figures 3, 5, 12, 16, 17, 19)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from splitjax.reports import forgetting
from splitjax.reports.figures.style import (
  bars,
  finish,
  judged,
  leaf,
  row_styles,
)


def accuracy_gap(results: dict[str, Any], path: str | Path) -> Path:
  """Late accuracy against the performance gap, a point per row (Figure 3).

  Args:
    results: whose rows have summary.forgetting.
    path: of the PNG file, returned.
  """
  return against_gap([("", results)], path)


def against_gap(
  cells: Sequence[tuple[str, dict[str, Any]]], path: str | Path
) -> Path:
  """As `accuracy_gap`, of every cell of a grid; a row's points are joined.

  The names of cells that lie together are written one above the other.

  Args:
    cells: what a cell is called, and its results; in an order that means
      something.
    path: of the PNG file, returned.
  """
  figure = Figure(figsize=(6.4, 4.9), layout="constrained")
  axes = figure.add_subplot()
  known = [(name, row) for name, told in cells for row in forgetting.rows(told)]
  labels = list(dict.fromkeys(row["label"] for _, row in known))
  styles = row_styles({"rows": [{"label": label} for label in labels]})
  named = list[tuple[float, float, str, str]]()
  for label in labels:
    mine = [(name, row) for name, row in known if row["label"] == label]
    named += _points(axes, mine, styles[label])
  axes.set_xlabel("performance gap [points], best class to the others")
  axes.set_ylabel("accuracy [%]")
  axes.margins(0.1)
  axes.set_xlim(left=0)
  axes.set_ylim(*np.clip(axes.get_ylim(), -2, 102))
  _name(axes, named)
  title = "Accuracy against the performance gap, medians of the last rounds"
  title += judged(cells[0][1])
  return finish(figure, [axes], styles, title, path)


def _points(
  axes: Axes,
  mine: Sequence[tuple[str, dict[str, Any]]],
  style: dict[str, Any],
) -> list[tuple[float, float, str, str]]:
  """One row's points with their intervals; where, what, in which colour."""
  pairs = [
    [leaf(row, "summary", "forgetting", key) for _, row in mine]
    for key in ("gap", "accuracy")
  ]
  (gap, beside), (accuracy, above) = (100 * np.array(p).T for p in pairs)
  look = {**style, "linewidth": 0.9, "elinewidth": 0.8, "capsize": 2.5}
  axes.errorbar(
    gap, accuracy, bars(accuracy, above), bars(gap, beside), zorder=3, **look
  )
  return [
    (x, y, name, style["color"])
    for x, y, (name, _) in zip(gap, accuracy, mine, strict=True)
    if name and np.isfinite([x, y]).all()
  ]


LINE, WORD = 10, 90
"""Points that a name is high, and about as long as one gets."""


def _name(axes: Axes, named: list[tuple[float, float, str, str]]) -> None:
  """Writes names beside their points, one above another where they are near."""
  taken = list[tuple[float, float]]()
  for x, y, name, colour in sorted(named, key=lambda each: each[1]):
    across, up = axes.transData.transform((x, y)) * 72 / axes.figure.dpi
    place = up + 4
    while any(
      abs(place - v) < LINE and abs(across - u) < WORD for u, v in taken
    ):
      place += LINE / 2
    taken.append((across, place))
    axes.annotate(
      name,
      (x, y),
      (5, place - up),
      textcoords="offset points",
      color=colour,
      fontsize=8,
    )
