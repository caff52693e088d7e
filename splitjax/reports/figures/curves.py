"""Kinds of figures: lines, points, bars, dots of clients, heat maps.

Each draws a table of chosen numbers, see `choose`; its column "panel" has the
titles of panels. Means over seeds have Student's 95 % interval. A figure of
one's own chooses numbers and says what varies:

  >>> from splitjax.reports.figures import by_set, choose, lines
  >>> def worst_tenth(results):
  ...   table = by_set(choose(results, "worst_tenth", "round"))
  ...   return lines(results, table, "round", title="The worst tenth")
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from splitjax.config.paper_numbers import LARGEST
from splitjax.reports import numbers
from splitjax.reports.figures import style
from splitjax.reports.figures.style import Look
from splitjax.reports.quantities import field_name, heading, quantity
from splitjax.reports.results import Results

MOST_PANELS, MOST_COLUMNS = 16, 60
"""A figure of more panels, or bars, is not drawn: tables have its numbers."""

MOST_BARS = 12
"""Over more values on the x axis, intervals are a band instead of bars."""

LINEAR = ("round", "rho", "position", "severity")
"""Columns whose axis is never logarithmic."""


def choose(
  results: Results, metric: str, *details: str, part: str = ""
) -> pd.DataFrame:
  """Chooses the numbers of a metric that have exactly these details.

  Args:
    results: of a run, of seeds, of a grid or of folders.
    metric: a key of `quantities.QUANTITIES`, or of eval.metrics.
    *details: those of the columns round, client, class, threshold that the
      numbers have.
    part: the member of a family.

  Returns:
    The lines, with "value" in the unit of the quantity, and the name of the
    grid's cell, or of the folder, as "cell" and as "panel".
  """
  table = results.numbers
  kept = (
    (table.metric == metric) & (table.part == part) & (table.set != LARGEST)
  )
  for name in numbers.DETAIL:
    lacks = table[name].isin(["", np.nan])
    kept &= ~lacks if name in details else lacks
  table = table[kept & table.row.isin(results.rows)]
  if not table.value.notna().any():
    table = table.iloc[:0]
  cells = pd.Series("", table.index, dtype="str")
  for axis in results.axes:
    word = "" if axis == "run" else f"{field_name(axis)} "
    comma = ", " if cells.any() else ""
    cells += comma + word + table[axis].map("{}".format).astype("str")
  value = quantity(metric).scale * table.value
  return table.assign(value=value, cell=cells, panel=cells)


def by_set(table: pd.DataFrame) -> pd.DataFrame:
  """Gives the first and the last test set a panel; of cells, each the last."""
  sets = table.groupby("cell", sort=False).set
  last = table.set == sets.transform("last")
  if table.cell.nunique() > 1:
    return table[last]
  table = table[last | (table.set == sets.transform("first"))]
  return table.assign(panel=table.set.map(heading))


def label(metric: str) -> str:
  """Returns a metric's name and unit, for an axis."""
  known = quantity(metric)
  return f"{known.name} [{known.unit}]" if known.unit else known.name


def means(table: pd.DataFrame, *keys: str) -> pd.DataFrame:
  """Averages over seeds: "value", "half" and "seeds" for each of the `keys`."""
  return numbers.over_seeds(table[["seed", *keys, "value"]])


def lines(
  results: Results,
  table: pd.DataFrame,
  x: str,
  *,
  title: str,
  hue: str = "row",
  named: Mapping[Any, Look] | None = None,
  xlabel: str = "",
  ylabel: str = "",
  **options: Any,
) -> Figure | None:
  """Draws a line for each value of the column `hue`, over the column `x`.

  Args:
    results: those that `table` is chosen of.
    table: chosen numbers; those of the same `x` are seeds.
    x: the column of numbers on the x axis.
    title: the first line of the title.
    hue: the column whose values are lines.
    named: value of `hue` -> its look; None: the looks of the rows.
    xlabel: the name of the x axis; "": that of the column.
    ylabel: the name of the y axis; "": that of the metric.
    **options: of `Figure.subplots`.

  Returns:
    The figure; None if there are no numbers, or too many panels.
  """
  titles = list(dict.fromkeys(table.panel))
  if not 0 < len(titles) <= MOST_PANELS:
    return None
  named = style.looks(results) if named is None else named
  averaged = means(table, hue, "panel", x)
  metric = table.metric.iloc[0]
  axes_names = xlabel or field_name(x), ylabel or label(metric)
  figure, parts = style.panels(titles, (3.6, 2.7), axes_names, **options)
  shown = [key for key in named if (averaged[hue] == key).any()]
  long = averaged.groupby("panel")[x].nunique().max() > MOST_BARS
  for panel, axes in zip(titles, parts, strict=True):
    of_panel = averaged[averaged.panel == panel]
    shared = averaged if options.get("sharex", True) else of_panel
    wide = x not in LINEAR and style.log_if_wide([axes], shared[x])
    for number, key in enumerate(shown):
      curve = of_panel[of_panel[hue] == key].sort_values(x)
      if curve.empty:
        continue
      shift = (number + 0.5) / len(shown) - 0.5
      _line(axes, curve, x, None if long else shift, wide, named[key])
    known = sorted(set(of_panel[x]))
    if not wide and (x in LINEAR or len(known) <= 6):
      axes.set_xticks(known[:: -(-len(known) // 8)])
      axes.xaxis.set_major_formatter("{x:g}")
  if quantity(metric).unit == "%":
    _frame(parts[0], averaged)
  style.legend(figure, {str(key): named[key] for key in shown})
  return style.titled(figure, title, results, "bands" if long else "bars")


def _line(
  axes: Axes,
  curve: pd.DataFrame,
  x: str,
  shift: float | None,
  wide: bool,
  named: Look,
) -> None:
  """Draws a line, and its interval as a band or as bars beside other rows'."""
  at, value = curve[x].to_numpy(float), curve.value.to_numpy(float)
  half = curve.half.fillna(0).to_numpy(float)
  axes.plot(at, value, markevery=max(1, len(at) // 8), **named)
  if shift is None:
    shade = {"color": named["color"], "alpha": 0.15, "linewidth": 0}
    axes.fill_between(at, value - half, value + half, **shade)
    return
  # Only the bars are shifted: points stay where they belong.
  place = np.log10(at) if wide else at
  gap = np.diff(place).min(initial=0.1 * np.ptp(place) or 0.2)
  place = place + 0.4 * gap * shift
  bars = np.flatnonzero(half)
  axes.errorbar(
    (10**place if wide else place)[bars],
    value[bars],
    half[bars],
    fmt="none",
    ecolor=named["color"],
    elinewidth=1,
    capsize=2,
    alpha=0.7,
  )


def _frame(axes: Axes, averaged: pd.DataFrame) -> None:
  """Shows all means, and the intervals that do not flatten the means.

  The interval of two seeds, or of a method that diverges, can be wider than all
  differences; then its bars leave the frame.
  """
  half = averaged.half.fillna(0)
  spread = float(np.ptp(averaged.value.dropna()))
  half = half.where(half <= max(3 * min(half.median(), spread), 3), 0)
  low, high = (averaged.value - half).min(), (averaged.value + half).max()
  margin = 0.05 * (high - low) or 1
  axes.set_ylim(max(low - margin, -2), min(high + margin, 102))


def _within_percent(axes: Axes) -> None:
  """Cuts what an interval has beyond 0 and 100."""
  low, high = axes.get_ylim()
  axes.set_ylim(max(low, -2), min(high, 102))


def points(
  results: Results,
  table: pd.DataFrame,
  x: str,
  y: str,
  *,
  title: str,
  paths: pd.DataFrame | None = None,
) -> Figure | None:
  """Draws a row's metric `y` against its metric `x`, with both intervals.

  `table` has the numbers of both metrics, `paths` those by "threshold", which
  are drawn as a thin line of the row.
  """
  both = _pairs(table, x, y, "row", "panel")
  titles = list(dict.fromkeys(both.panel))
  if not 0 < len(titles) <= MOST_PANELS:
    return None
  looks = {k: v for k, v in style.looks(results).items() if k in set(both.row)}
  keys = "row", "panel", "threshold"
  along = None if paths is None else _pairs(paths, x, y, *keys)
  figure, parts = style.panels(titles, (3.3, 2.8), (label(x), label(y)))
  for panel, axes in zip(titles, parts, strict=True):
    for row, named in looks.items():
      if along is not None:
        same = along[(along.panel == panel) & (along.row == row)]
        axes.plot(same[x], same[y], **{**named, "markersize": 3, "alpha": 0.7})
      for _, at in both[(both.panel == panel) & (both.row == row)].iterrows():
        half = np.nan_to_num([at[f"{x} half"], at[f"{y} half"]])
        edge = {"markeredgecolor": "black", "linestyle": "", "markersize": 8}
        bar = {"elinewidth": 0.9, "zorder": 3, **named, **edge}
        axes.errorbar(at[x], at[y], half[1] or None, half[0] or None, **bar)
    axes.margins(0.08)
    axes.xaxis.set_major_locator(MaxNLocator(5))
  if quantity(y).unit == "%":
    _within_percent(axes)
  known = both[x] if along is None else pd.concat([both[x], along[x]])
  style.log_if_wide(parts, known)
  style.legend(figure, looks)
  return style.titled(figure, title, results, "bars")


def _pairs(table: pd.DataFrame, x: str, y: str, *keys: str) -> pd.DataFrame:
  """Joins the means of two metrics, and their half-widths, by the keys."""
  left, right = (
    means(table[table.metric == metric], *keys)
    .rename(columns={"value": metric, "half": f"{metric} half"})
    .drop(columns="seeds")
    for metric in (x, y)
  )
  joined = left.merge(right, on=list(keys))
  return joined.dropna(subset=[x, y])


def bars(
  results: Results, tables: Sequence[pd.DataFrame], *, title: str
) -> Figure | None:
  """Draws a panel for each metric's table, with a bar for each row of a cell.

  The number over a bar is its change against the first row of the cell, in
  percent of that row's value.
  """
  tables = [table for table in tables if len(table)]
  cells = list(dict.fromkeys(cell for table in tables for cell in table.cell))
  looks, width = style.looks(results), 0.8 / max(1, len(results.rows))
  count = len(cells) * len(looks)
  if not 0 < count <= MOST_COLUMNS:
    return None
  size = max(4.3, 0.45 * count), 2.3
  figure, parts = style.panels(
    [""] * len(tables), size, ("", ""), 1, sharey=False
  )
  for axes, table in zip(parts, tables, strict=True):
    averaged = means(table, "row", "cell").set_index("cell")
    first = averaged.value[averaged.row == results.rows[0]].reindex(cells)
    for number, (row, look) in enumerate(looks.items()):
      of_row = averaged[averaged.row == row].reindex(cells)
      half = of_row.half.fillna(0) if of_row.half.any() else None
      at = np.arange(len(cells)) + width * (number + 0.5) - 0.4
      fill = {"color": look["color"], "width": 0.94 * width, "capsize": 2}
      if "markerfacecolor" in look:  # a fine-tuned copy
        fill |= {"hatch": "//", "edgecolor": "white"}
      drawn = axes.bar(at, of_row.value, yerr=half, **fill)
      change = 100 * (of_row.value / first.where(first > 0) - 1)
      if number:
        texts = change.map("{:+.0f}%".format).where(change.notna(), "")
        axes.bar_label(drawn, texts, size=7)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel(label(table.metric.iloc[0]))
  style.name_ticks(parts[-1], "x", cells)
  colours = {row: style.thick(look["color"]) for row, look in looks.items()}
  style.legend(figure, colours)
  return style.titled(figure, title, results, "bars")


def dots(
  results: Results, table: pd.DataFrame, *, title: str, sharex: bool = True
) -> Figure | None:
  """Draws every client as a dot, with quartiles, median and mean of each row.

  Clients of all seeds are pooled. If panels do not share their x axis, their
  titles name it.
  """
  titles = list(dict.fromkeys(table.panel))
  if not 0 < len(titles) <= MOST_PANELS:
    return None
  looks = {k: v for k, v in style.looks(results).items() if k in set(table.row)}
  names = label(table.metric.iloc[0]) if sharex else "", ""
  size = 3.2, 0.6 + 0.36 * len(looks)
  figure, parts = style.panels(titles, size, names, sharex=sharex)
  for panel, axes in zip(titles, parts, strict=True):
    of_panel = table[(table.panel == panel)].dropna(subset="value")
    for place, (row, look) in enumerate(looks.items()):
      values = of_panel.value[of_panel.row == row].to_numpy(float)
      if values.size:
        _spread(axes, place, values, look)
    if not (sharex or style.log_if_wide([axes], of_panel.value)):
      axes.set_xlim(left=0)
    style.name_ticks(axes, "y", list(looks))
    axes.set_ylim(len(looks) - 0.5, -0.5)
  title += " (box: quartiles, line: median, diamond: mean)"
  return style.titled(figure, title, results)


def _spread(axes: Axes, place: int, values: np.ndarray, named: Look) -> None:
  # A fixed quasi-random offset keeps dots of equal values apart.
  beside = 0.3 * (2 * (np.arange(len(values)) * 0.618034 % 1) - 1)
  small = {"markersize": 3.2, "markeredgewidth": 0.6, "linestyle": "none"}
  alpha = float(np.clip(30 / len(values), 0.15, 0.6))
  axes.plot(np.sort(values), place + beside, **{**named, **small}, alpha=alpha)
  low, middle, high = np.percentile(values, [25, 50, 75])
  axes.barh(place, high - low, 0.66, low, fill=False, edgecolor="black")
  axes.vlines(middle, place - 0.33, place + 0.33, color="black", linewidth=2)
  axes.plot(values.mean(), place, "D", mfc="white", mec="black", ms=4.5)


def heat(
  results: Results | None,
  tables: Mapping[str, pd.DataFrame],
  *,
  title: str,
  names: tuple[str, str],
  key: str = "accuracy [%]",
) -> Figure | None:
  """Draws tables of percentages as colours, each in a panel; NaN is white.

  `names` are those of the columns and of the index; `key` is that of the
  colours. Few numbers are written out.
  """
  if not 0 < len(tables) <= MOST_PANELS:
    return None
  lines = max(table.shape[0] for table in tables.values())
  columns = max(table.shape[1] for table in tables.values())
  shape = np.array([0.5 + 0.3 * columns, 1.2 + 0.2 * lines])
  size = np.clip(shape, 2.5, 5)
  figure, parts = style.panels(list(tables), size, names, 4, sharex=False)
  colours = colormaps["cividis"].with_extremes(bad="white")
  for axes, table in zip(parts, tables.values(), strict=True):
    values = table.to_numpy(float)
    look: Any = {"aspect": "auto", "interpolation": "nearest", "cmap": colours}
    image = axes.imshow(values, vmin=0, vmax=100, **look)
    axes.grid(visible=False)
    style.name_ticks(axes, "x", [str(name) for name in table.columns])
    style.name_ticks(axes, "y", [str(name) for name in table.index])
    few = columns <= 8 and lines <= 16
    for (line, column), value in np.ndenumerate(values) if few else ():
      if np.isfinite(value):
        centre: Any = {"ha": "center", "va": "center", "size": 7}
        colour = "black" if value > 55 else "white"
        axes.text(column, line, f"{value:.0f}", color=colour, **centre)
  figure.colorbar(image, ax=parts, label=key, shrink=0.9)
  return style.titled(figure, title, results)
