"""Forms of figures: lines and points, bars, dots of clients, heat maps.

Each draws a table of chosen numbers, see `choose`; its column "panel" has the
titles of panels, and `options` are those of `style.panels`, such as the title.
Means over seeds have Student's 95 % interval. A figure of one's own chooses
numbers and says what varies:

  >>> from splitjax.reports.figures import by_set, choose, lines
  >>> def worst_tenth(results):
  ...   table = by_set(choose(results, "worst_tenth", "round"))
  ...   return lines(results, table, "round", title="The worst tenth")
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from splitjax.reports import numbers
from splitjax.reports.figures import style
from splitjax.reports.figures.style import Look
from splitjax.reports.paper_numbers import LARGEST
from splitjax.reports.quantities import (
  QUANTITIES,
  field_name,
  heading,
  label,
  quantity,
)
from splitjax.reports.results import Results

MOST_COLUMNS = 60
"""A figure of more bars is not drawn: tables have its numbers."""

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
  fits = table.metric.eq(metric) & table.part.eq(part) & table.set.ne(LARGEST)
  for name in numbers.DETAIL:
    fits &= table[name].isin(["", np.nan]) != (name in details)
  table = table[fits & table.row.isin(results.rows)]
  if table.value.isna().all():
    table = table.iloc[:0]
  cell = cells(table, results.axes)
  value = quantity(metric).scale * table.value
  return table.assign(value=value, cell=cell, panel=cell)


def cells(table: pd.DataFrame, axes: Sequence[str]) -> pd.Series:
  """Names each line's cell by the columns `axes`, as in "lr 0.1, alpha 3"."""
  names = pd.Series("", table.index, dtype="str")
  for axis in axes:
    comma = ", " if axis != axes[0] else ""
    word = "" if axis == "run" else f"{field_name(axis)} "
    names += comma + word + table[axis].map("{}".format).astype("str")
  return names


def by_set(table: pd.DataFrame) -> pd.DataFrame:
  """Gives the first and the last test set a panel; of cells, each the last."""
  sets = table.groupby("cell", sort=False).set
  ends = table.set == sets.transform("last")
  if table.cell.nunique() > 1:
    return table[ends]
  table = table[ends | (table.set == sets.transform("first"))]
  return table.assign(panel=table.set.map(heading))


def means(table: pd.DataFrame, *keys: str) -> pd.DataFrame:
  """Averages over seeds: "value", "half" and "seeds" for each of the `keys`."""
  return numbers.over_seeds(table[["seed", *keys, "value"]])


def against(
  results: Results, table: pd.DataFrame, metric: str, *keys: str
) -> pd.DataFrame:
  """Adds another metric as a column, its mean over seeds for the same `keys`.

  `lines` over this column are points where a row has a single one.
  """
  details = [key for key in keys if key in numbers.DETAIL]
  lines = choose(results, metric, *details)
  if table.empty or lines.empty:
    return table.iloc[:0].assign(**{metric: 0.0})
  lines = means(lines, *keys)
  column = lines.set_index(list(keys)).value.rename(metric)
  return table.join(column, on=list(keys)).dropna(subset=metric)


def lines(
  results: Results | None,
  table: pd.DataFrame,
  x: str,
  hue: str = "row",
  **options: Any,
) -> Figure | None:
  """Draws a line for each value of the column `hue`, over the column `x`.

  Args:
    results: those that `table` is chosen of, if any.
    table: chosen numbers; those of the same `x` are seeds.
    x: the column of numbers on the x axis.
    hue: the column whose values are lines.
    **options: of `style.panels`; the axes are named by `x` and the metric
      unless these say otherwise.

  Returns:
    The figure; None if there are no numbers, or too many panels.
  """
  averaged = means(table, hue, "panel", x)
  metric = _metric(table)
  looks = _looks(results, table) if hue == "row" else style.shades(table[hue])
  span = averaged if options.get("sharex", True) else None
  swept = x in LINEAR or (results and x in results.axes)

  def draw(axes: Axes, part: pd.DataFrame) -> None:
    values = sorted(set((part if span is None else span)[x]))
    wide = x not in LINEAR and style.log_if_wide(axes, values)
    if swept and not wide:
      axes.set_xticks(values[:: -(-len(values) // 8)])
      axes.xaxis.set_major_formatter("{x:g}")
    for number, (key, look) in enumerate(looks.items()):
      curve = part[part[hue] == key].sort_values(x)
      step = max(1, len(curve) // 8)
      axes.plot(curve[x], curve.value, markevery=step, **look)
      if not curve.half.any():
        continue
      # Only the bars are shifted: points stay where they belong.
      points = min(3, 20 / len(looks)) * (number - (len(looks) - 1) / 2)
      shift = ScaledTranslation(points / 72, 0, axes.figure.dpi_scale_trans)
      bar: Any = {"ecolor": look["color"], "elinewidth": 1, "capsize": 2}
      bar |= {"fmt": "none", "errorevery": step}
      moved = axes.transData + shift
      axes.errorbar(curve[x], curve.value, curve.half, transform=moved, **bar)
    _frame(axes, metric, averaged.value)

  named = {"xlabel": label(x) if x in QUANTITIES else field_name(x)}
  named["ylabel"] = label(metric)
  parts = _by_panel(averaged)
  options = named | options | {"results": results, "shown": looks}
  return style.panels(parts, draw, (3.6, 2.7), **options)


def bars(
  results: Results, table: pd.DataFrame, **options: Any
) -> Figure | None:
  """Draws a panel for each metric, with a bar for each row of a cell.

  The number over a bar is its change against the first row of the cell, in
  percent of that row's value.
  """
  looks = _looks(results, table)
  order = list(dict.fromkeys(table.cell))
  count = len(order) * len(looks)
  width = 0.8 / max(1, len(looks))
  if count > MOST_COLUMNS:
    return None

  def draw(axes: Axes, metric: str) -> None:
    averaged = means(table[table.metric == metric], "cell", "row")
    averaged = averaged.set_index("cell")
    base = averaged.value[averaged.row == results.rows[0]].reindex(order)
    for number, (row, look) in enumerate(looks.items()):
      line = averaged[averaged.row == row].reindex(order)
      at = np.arange(len(order)) + width * (number + 0.5) - 0.4
      fill: Any = {"color": look["color"], "edgecolor": "white"}
      fill["hatch"] = "//" if "linestyle" in look else ""  # fine-tuned
      half = line.half if line.half.any() else None
      drawn = axes.bar(at, line.value, width, yerr=half, **fill)
      change = 100 * (line.value / base.where(base > 0) - 1)
      texts = change.map("{:+.0f}%".format).where(change.notna(), "")
      if number:
        axes.bar_label(drawn, texts, size=7)
    axes.grid(visible=False, axis="x")
    axes.set_ylim(0, min(axes.get_ylim()[1], 1.5 * averaged.value.max()))
    axes.set_ylabel(label(metric))
    style.name_ticks(axes, "x", order)

  parts = {"\n" * n: x for n, x in enumerate(dict.fromkeys(table.metric))}
  shown = {k: {"color": x["color"], "linewidth": 7} for k, x in looks.items()}
  options |= {"results": results, "shown": shown, "sharey": False}
  return style.panels(parts, draw, (max(4.3, 0.45 * count), 2.3), **options)


def dots(
  results: Results, table: pd.DataFrame, **options: Any
) -> Figure | None:
  """Draws every client as a dot, with quartiles, median and mean of each row.

  Clients of all seeds are pooled.
  """
  looks = _looks(results, table)
  shared = options.get("sharex", True)

  def draw(axes: Axes, part: pd.DataFrame) -> None:
    for level, (row, look) in enumerate(looks.items()):
      values = np.sort(part.value[part.row == row].dropna())
      # A fixed quasi-random offset keeps dots of equal values apart.
      offset = 0.3 * (2 * (np.arange(len(values)) * 0.618034 % 1) - 1)
      alpha = float(np.clip(30 / max(1, len(values)), 0.15, 0.6))
      dot: Any = look | {"markersize": 3.2, "linestyle": "", "alpha": alpha}
      axes.plot(values, level + offset, **dot)
      box: Any = {"showmeans": True, "showfliers": False, "widths": 0.66}
      axes.boxplot(values, positions=[level], orientation="horizontal", **box)
    if not (shared or style.log_if_wide(axes, part.value)):
      axes.set_xlim(left=0)
    style.name_ticks(axes, "y", looks)
    axes.set_ylim(len(looks) - 0.5, -0.5)

  options["title"] += " (box: quartiles, line: median, triangle: mean)"
  options["xlabel"] = label(_metric(table)) if shared else ""
  size = (3.2, 0.6 + 0.36 * len(looks))
  return style.panels(_by_panel(table), draw, size, results=results, **options)


def heat(
  results: Results | None,
  table: pd.DataFrame,
  index: str,
  columns: str,
  *,
  key: str = "accuracy [%]",
  **options: Any,
) -> Figure | None:
  """Draws means over seeds by two columns as colours, white where none is.

  Few numbers are written out. `key` is the name of the colours, in per cent.
  """
  averaged = means(table, "panel", index, columns)
  rows = _ordered(averaged[index])
  across = _ordered(averaged[columns])
  colours = colormaps["cividis"].with_extremes(bad="white")

  def draw(axes: Axes, part: pd.DataFrame) -> None:
    values = part.pivot(index=index, columns=columns, values="value")
    values = values.reindex(index=rows, columns=across).astype(float)
    image: Any = {"aspect": "auto", "interpolation": "nearest", "cmap": colours}
    axes.imshow(values, vmin=0, vmax=100, **image)
    axes.grid(visible=False)
    style.name_ticks(axes, "x", across)
    style.name_ticks(axes, "y", rows)
    written = len(across) <= 8 and len(rows) <= 16
    for (line, column), value in np.ndenumerate(values) if written else ():
      look: Any = {"color": "black" if value > 55 else "white", "size": 7}
      text = f"{value:.0f}" if np.isfinite(value) else ""
      axes.text(column, line, text, ha="center", va="center", **look)

  size: Any = (0.5 + 0.3 * len(across), 1.2 + 0.2 * len(rows))
  size = np.clip(size, 2.5, 5)
  named: Any = {"xlabel": columns, "ylabel": index, "sharex": False}
  options = named | options | {"results": results}
  figure = style.panels(_by_panel(averaged), draw, size, **options)
  if figure:
    axes = figure.axes
    figure.colorbar(axes[0].images[0], ax=axes, label=key, shrink=0.9)
  return figure


def _ordered(names: pd.Series) -> list[Any]:
  """Lists names as they come, and numbers by their size."""
  order = list(dict.fromkeys(names))
  try:
    return sorted(order, key=float)
  except ValueError:
    return order


def _by_panel(table: pd.DataFrame) -> dict[Any, pd.DataFrame]:
  return dict(list(table.groupby("panel", sort=False)))


def _looks(results: Results | None, table: pd.DataFrame) -> dict[Any, Look]:
  """The looks of the rows that the table has."""
  rows = results.rows if results else list(table.row)
  shown = set(table.row)
  return {k: look for k, look in style.looks(rows).items() if k in shown}


def _metric(table: pd.DataFrame) -> str:
  return next(iter(table.metric), "")


def _frame(axes: Axes, metric: str, means: pd.Series) -> None:
  """Frames means in per cent: an interval that would flatten them leaves it."""
  if quantity(metric).unit == "%":
    margin = 2 + 0.3 * np.ptp(means.dropna())
    top = min(means.max() + margin, 102)
    axes.set_ylim(max(means.min() - margin, -2), top)
