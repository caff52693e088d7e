"""What is forgotten, as figures: by class, by the order of service.

They answer to Hydra's Figures 2, 3, 6, 10 and 13-18. `splitjax.evaluation.forgetting`
defines what is drawn, `reports.late` how several seeds are brought together.
"""

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from splitjax.reports import forgetting
from splitjax.reports.figures import accuracy_gap
from splitjax.reports.figures.style import (
  COLOURS,
  LINES,
  bars,
  finish,
  judged,
  row_styles,
  shades,
)

MOST_NAMED = 14
"""Of classes: more have shades and a scale instead of lines in a legend."""

MOST_COLUMNS = 4

JOINED = 20
"""Up to so many positions are joined by lines; classes have no order."""


def draw(results: dict[str, Any], folder: Path) -> list[Path]:
  """Draws what the results have of it; nothing but on the global test set.

  Args:
    results: of one run or of several seeds.
    folder: where the PNG files go.
  """
  if not forgetting.shown(results):
    return []
  drawn = []
  if any(c.get("per_class") for c in results.get("learning", {}).values()):
    drawn.append(class_accuracy(results, folder / "class_accuracy.png"))
  drawn.append(order_accuracy(results, folder / "accuracy_by_order.png"))
  drawn.append(accuracy_gap.accuracy_gap(results, folder / "accuracy_gap.png"))
  return drawn


def class_accuracy(results: dict[str, Any], path: str | Path) -> Path:
  """Accuracy of every class over the rounds, one panel per row (Figure 10).

  The black line is the mean over clients. Of several seeds means alone:
  intervals of so many lines cover one another.

  Args:
    results: whose learning has per_class.
    path: of the PNG file, returned.
  """
  curves = {k: c for k, c in results["learning"].items() if c.get("per_class")}
  lines = math.ceil(len(curves) / MOST_COLUMNS)
  columns = math.ceil(len(curves) / lines)
  size = (max(5.6, 0.9 + 2.7 * columns), 1.9 + 2.3 * lines)
  figure = Figure(figsize=size, layout="constrained")
  grid = figure.subplots(
    lines, columns, sharex=True, sharey=True, squeeze=False
  )
  every = list(grid.ravel())
  classes = max(len(c["per_class"][0]) for c in curves.values())
  styles = _class_styles(classes)
  for i, (axes, (label, curve)) in enumerate(
    zip(every, curves.items(), strict=False)
  ):
    _classes(axes, curve, results["sets"][-1], list(styles.values()))
    axes.set_title(textwrap.fill(label, 28), fontsize=10)
    axes.set_ylabel("" if i % columns else "accuracy [%]")
    lowest = i + columns >= len(curves)
    axes.set_xlabel("round" if lowest else "")
    axes.tick_params(labelbottom=lowest)
  for axes in every[len(curves) :]:
    axes.remove()
  shown = every[: len(curves)]
  named = {**styles, "mean": MEAN}
  if classes > MOST_NAMED:
    colours = ListedColormap(shades(classes))
    scale = ScalarMappable(Normalize(0, classes - 1), colours)
    figure.colorbar(scale, ax=shown, label="class", shrink=0.9)
    named = {"mean": MEAN}
  title = f"Accuracy of every class over the rounds{judged(results)}"
  if len(results.get("seeds", ())) > 1:
    title += f", mean of {len(results['seeds'])} seeds"
  return finish(figure, shown, named, title, path, columns=6)


MEAN: dict[str, Any] = {
  "color": "black",
  "linewidth": 2.2,
  "linestyle": (0, (4, 1.5)),
}


def _class_styles(classes: int) -> dict[str, dict[str, Any]]:
  """Name -> how a class is drawn."""
  if classes > MOST_NAMED:
    found = shades(classes)
    return {
      str(c): {"color": found[c], "linewidth": 0.8} for c in range(classes)
    }
  hues = COLOURS[1:]  # black is the mean
  return {
    f"class {c}": {
      "color": hues[c % len(hues)],
      "linestyle": LINES[c // len(hues) % len(LINES)],
      "linewidth": 1.3,
    }
    for c in range(classes)
  }


def _classes(
  axes: Axes,
  curve: dict[str, Any],
  name: str,
  styles: Sequence[dict[str, Any]],
) -> None:
  """One row's classes over the rounds; a single round as points."""
  values = 100 * np.array(curve["per_class"], float)
  mean = 100 * np.array(curve["accuracy"][name], float)
  dot: dict[str, Any] = (
    {"marker": "o", "markersize": 4} if len(mean) == 1 else {}
  )
  for each, style in zip(values.T, styles, strict=True):
    axes.plot(curve["round"], each, **style, **dot)
  axes.plot(curve["round"], mean, **MEAN, **dot)
  axes.set_ylim(-3, 103)
  axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))


def order_accuracy(results: dict[str, Any], path: str | Path) -> Path:
  """Late accuracy by place in the order of service (Figures 2, 6, 13-15, 18).

  By class for rows that have no order; a panel for each kind. The thin line is
  the row's late accuracy.

  Args:
    results: whose rows have summary.forgetting.
    path: of the PNG file, returned.
  """
  rows = forgetting.rows(results)
  found = {row["label"]: forgetting.profile(row) for row in rows}
  kinds = list(dict.fromkeys(each.by for each in found.values()))
  longest = max(len(each.values) for each in found.values())
  width = min(max(5.0, 0.45 * longest + 1.5), 10.0)
  size = (1.2 + width, 0.9 + 3.4 * len(kinds))
  figure = Figure(figsize=size, layout="constrained")
  grid = figure.subplots(len(kinds), 1, sharey=True, squeeze=False)
  panels = list(grid.ravel())
  styles = row_styles(results)
  for axes, kind in zip(panels, kinds, strict=True):
    mine = [row for row in rows if found[row["label"]].by == kind]
    for i, row in enumerate(mine):
      style = styles[row["label"]]
      _profile(axes, found[row["label"]], i, len(mine), style)
      own = row["summary"]["forgetting"]["accuracy"]
      if own is not None:
        thin = {"color": style["color"], "linewidth": 0.8, "alpha": 0.7}
        axes.axhline(100 * own, linestyle=style["linestyle"], **thin)
    served = "position in the order of service, by dominant label"
    axes.set_xlabel(served if kind == "position" else "class")
    axes.set_ylabel("accuracy [%]")
    axes.set_ylim(-3, 103)
    ticks = MaxNLocator(20, steps=[1, 2, 5, 10], integer=True)
    axes.xaxis.set_major_locator(ticks)
  named = {row["label"]: styles[row["label"]] for row in rows}
  what = " and ".join(kinds)
  title = f"Accuracy by {what}, medians of the last rounds (thin: global)"
  return finish(figure, panels, named, title + judged(results), path)


def _profile(
  axes: Axes,
  found: forgetting.Profile,
  i: int,
  count: int,
  style: dict[str, Any],
) -> None:
  """One row's accuracies along the axis, positions counted from 1 on."""
  first = 1 if found.by == "position" else 0
  at = np.arange(first, first + len(found.values))
  values, halves = 100 * found.values, 100 * found.halves
  look = dict(style)
  if len(at) > JOINED:
    look["markersize"] = 3.5
  if len(at) > JOINED or found.by == "class":
    look["linestyle"] = "none"
  step = 0.5 / count  # wider than elsewhere: there is nothing between classes
  place = at + step * (i - (count - 1) / 2)
  whiskers: dict[str, Any] = {"capsize": 2, "elinewidth": 0.9}
  axes.errorbar(place, values, bars(values, halves), **whiskers, **look)
  axes.set_xlim(at[0] - 0.7, at[-1] + 0.7)
