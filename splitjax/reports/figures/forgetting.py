"""Figures of forgetting by class, by order of service, and within a round.

Another figure plots accuracy against the performance gap. If a figure
corresponds to one in Hydra's paper, its docstring gives that figure's number.
`splitjax.evaluation.forgetting` defines the metrics, `reports.forgetting`
combines seeds.
"""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from splitjax.reports import forgetting
from splitjax.reports.figures import panels, style
from splitjax.reports.figures.intervals import band, bars, frame, title

MOST_COLUMNS = 4
MOST_POSITIONS = 10
"""Number of last positions in a panel of `position_curves` (Figure 14)."""
LATE = "summary", "forgetting", "accuracy"
GAP = "summary", "forgetting", "gap"
ALL_CLASSES = {"color": "black", "linewidth": 1.8, "zorder": 3}


@style.of_results
def accuracy_gap(results: dict[str, Any]) -> Figure:
  """Draws late accuracy against the performance gap of one run's rows."""
  return against_gap([("", results)])


@style.of_results
def class_accuracy(results: dict[str, Any]) -> Figure:
  """Draws accuracy of every class over the rounds, a panel per row (Figure 10).

  A panel is a heat map: the upper lines are the classes, and the lowest line is
  the accuracy on all classes. Numbers are means over seeds.
  """
  curves = results["learning"]
  names = "round", "class"
  # Rows may have been evaluated after different rounds.
  figure, every = style.make_panels(
    len(curves), MOST_COLUMNS, (2.7, 2.5), names, sharex=False
  )
  image: Any = None
  for axes, (label, curve) in zip(every, curves.items(), strict=True):
    shares = 100 * np.array(curve["per_class"], float)
    mean = 100 * np.array(curve["accuracy"][results["sets"][-1]], float)
    image = _over_rounds(axes, curve["round"], shares, mean)
    axes.set_title(textwrap.fill(label, 28), fontsize=10)
  figure.colorbar(image, ax=every, label="accuracy [%]", shrink=0.9)
  what = "Accuracy of every class over the rounds"
  return style.titled(figure, title(what, "", results))


def _over_rounds(
  axes: Axes, rounds: Sequence[int], shares: np.ndarray, mean: np.ndarray
) -> Any:
  """Draws accuracies [rounds, C] as a heat map with a line per class.

  Below the classes, `mean` has a line of its own.
  """
  classes = shares.shape[1]
  gap = max(1, classes // 20)
  table = np.full((classes + 2 * gap, len(rounds)), np.nan)
  table[:classes], table[classes + gap :] = shares.T, mean
  image = panels.heat_map(axes, table, "white", "auto")
  step = max(1, -(-classes // 10))
  ticks = list(range(0, classes, step))
  axes.set_yticks(
    [*ticks, classes + 1.5 * gap - 0.5], [*map(str, ticks), "mean"]
  )
  # Columns are the evaluated rounds, however many rounds lie between.
  step = -(-len(rounds) // 6)
  at = range(len(rounds))[::-1][::step][::-1]
  axes.set_xticks(list(at), [str(rounds[i]) for i in at])
  axes.tick_params(labelsize=9)
  return image


@style.of_results
def order_accuracy(results: dict[str, Any]) -> Figure:
  """Draws late accuracy by position in the order of service.

  Rows without an order are drawn by class, in a separate panel. A thin line is
  a row's late accuracy on all classes.
  """
  rows = results["rows"]
  profiles = {row["label"]: forgetting.profile(row) for row in rows}
  kinds = list(dict.fromkeys(each.by for each in profiles.values()))
  longest = max(len(each.values) for each in profiles.values())
  width = float(np.clip(0.45 * longest + 1.5, 5.0, 10.0))
  names = "", "accuracy [%]"
  figure, every = style.make_panels(
    len(kinds), 1, (width, 3.0), names, sharex=False
  )
  styles = style.row_styles(rows)
  for axes, kind in zip(every, kinds, strict=True):
    mine = [row for row in rows if profiles[row["label"]].by == kind]
    for i, row in enumerate(mine):
      look = styles[row["label"]]
      _profile(axes, profiles[row["label"]], i, len(mine), look)
      own = row["summary"]["forgetting"]["accuracy"]
      if own is not None:
        thin = {k: look[k] for k in ("color", "linestyle")}
        axes.axhline(100 * own, linewidth=0.8, alpha=0.7, **thin)
    served = "position in the order of service, by dominant label"
    axes.set_xlabel(served if kind == "position" else "class")
    axes.set_ylim(-3, 103)
    ticks = MaxNLocator(20, steps=[1, 2, 5, 10], integer=True)
    axes.xaxis.set_major_locator(ticks)
  what = f"Accuracy by {' and '.join(kinds)}, medians of the last rounds"
  text = title(f"{what} (thin: all classes)", "bars", results)
  return style.finish(figure, every, styles, text)


@style.of_results
def position_curves(results: dict[str, Any]) -> Figure:
  """Draws accuracy by position in the order of service over the rounds.

  Each row with a fixed order has a panel. In it, each of the last ten positions
  has a line with its interval over seeds, and a black line shows all classes
  (Figures 2, 6, 13-15, 18).
  """
  every = forgetting.by_position(results)
  style.need(every, "position_curves", "rows with a fixed order of service")
  names = "round", "accuracy [%]"
  figure, axes = style.make_panels(
    len(every), 3, (3.2, 2.8), names, sharex=False
  )
  count = max(values.shape[1] for values, _ in every.values())
  first = max(0, count - MOST_POSITIONS)
  styles: dict[str, dict[str, Any]] = {
    f"position {k + 1}": {"color": colour, "linewidth": 1.3, "marker": "."}
    for k, colour in zip(
      range(first, count), style.shades(count - first), strict=True
    )
  }
  for own, (label, lines) in zip(axes, every.items(), strict=True):
    curve = results["learning"][label]
    for k in range(first, lines[0].shape[1]):
      values, halves = (x[:, k] for x in lines)
      look = styles[f"position {k + 1}"]
      band(own, curve["round"], values, halves, look)
    whole = style.leaf(curve, "accuracy", results["sets"][-1])
    band(own, curve["round"], *whole, ALL_CLASSES)
    own.set_title(textwrap.fill(label, 36), fontsize=10)
    own.set_ylim(-3, 103)
    style.round_ticks(own, curve["round"])
  what = "Accuracy by position in the order of service over the rounds"
  styles["all classes"] = ALL_CLASSES
  return style.finish(figure, axes, styles, title(what, "bands", results))


def _profile(
  axes: Axes,
  profile: forgetting.Profile,
  i: int,
  count: int,
  look: dict[str, Any],
) -> None:
  """Draws the `i`-th of `count` rows, shifted so that rows do not overlap."""
  # Positions are counted from 1, classes from 0.
  first = 1 if profile.by == "position" else 0
  at = np.arange(first, first + len(profile.values))
  values, halves = 100 * profile.values, 100 * profile.halves
  look = {**look, "capsize": 2, "elinewidth": 0.9}
  if profile.by == "class":  # classes have no order
    look["linestyle"] = "none"
  place = at + 0.5 / count * (i - (count - 1) / 2)
  axes.errorbar(place, values, bars(values, halves), **look)
  axes.set_xlim(at[0] - 0.7, at[-1] + 0.7)


def confusion(matrices: np.ndarray, names: Sequence[str]) -> Figure:
  """Draws confusion matrices [S, C, C] after steps of a round (Figure 11).

  `names` are the names of the steps. A row of a matrix belongs to a true class;
  it is NaN if the class has no sample.
  """
  axes_names = "predicted class", "class"
  figure, every = style.make_panels(len(names), 5, (2.3, 2.4), axes_names)
  label = "share of the class's samples [%]"
  tables = zip(names, matrices, strict=True)
  panels.heat_maps(figure, every, tables, label, missing="0.85", aspect="equal")
  return style.titled(figure, "Predicted classes of the samples of each class")


def against_gap(cells: Sequence[tuple[str, dict[str, Any]]]) -> Figure:
  """Draws late accuracy against performance gap, a point per row.

  Hydra's Figures 3 and 16 have this form. `cells` are pairs of a name and
  results. Colour shows the row, marker the cell. No line joins cells, as they
  need not have an order.
  """
  names = "performance gap of the classes [points]", "accuracy [%]"
  figure, (axes,) = style.make_panels(1, 1, (5.2, 3.3), names)
  points = [
    (i, row) for i, (_, results) in enumerate(cells) for row in results["rows"]
  ]
  rows, several = [row for _, row in points], len(cells) > 1
  styles = style.row_styles(rows)
  for label, own in styles.items():
    mine = [(i, row) for i, row in points if row["label"] == label]
    gap, beside = style.percent((row for _, row in mine), *GAP)
    accuracy, above = style.percent((row for _, row in mine), *LATE)
    look = {**own, "elinewidth": 0.8, "capsize": 2.5, "zorder": 3}
    look |= {"marker": "none", "linestyle": "none"} if several else {}
    both = bars(accuracy, above), bars(gap, beside)
    axes.errorbar(gap, accuracy, *both, **look)
    for (i, _), x, y in zip(mine, gap, accuracy, strict=True):
      if several:
        look = {**own, **_cell_marker(i), "linestyle": "none"}
        axes.plot(x, y, zorder=4, **look)
  axes.margins(0.1)
  axes.set_ylim(*np.clip(axes.get_ylim(), -2, 102))
  wide = frame([axes], *style.percent(rows, *GAP), axis="x")
  axes.set_xlim(left=0)
  high = frame([axes], *style.percent(rows, *LATE))
  swatch: dict[str, Any] = {"linestyle": "none"}
  if several:
    swatch = {"marker": "none", "linestyle": "-", "linewidth": 6}
  styles = {label: {**own, **swatch} for label, own in styles.items()}
  for i, (name, _) in enumerate(cells if several else ()):
    grey = {"color": "0.35", "linestyle": "none", "markersize": 5.5}
    styles[name] = {**grey, **_cell_marker(i)}
  what = "Accuracy against the performance gap, medians of the last rounds"
  runs = [results for _, results in cells]
  text = title(what, "bars", *runs, more=wide or high)
  return style.finish(figure, [axes], styles, text)


def _cell_marker(i: int) -> dict[str, Any]:
  """Returns the i-th cell's marker: all filled ones first, then hollow ones."""
  fill = "full" if i < len(style.MARKERS) else "none"
  return {"marker": style.MARKERS[i % len(style.MARKERS)], "fillstyle": fill}
