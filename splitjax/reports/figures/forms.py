"""Forms of figures: lines and points, bars, dots of clients, heat maps.

Each draws a table of `choose`, with means over seeds and 95 % intervals.
`options` are those of `panels`, such as the title. It returns None if there are
no numbers, or too many panels. docs/reports.md has examples of one's own.
"""

import math
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas.api.types import is_numeric_dtype

from splitjax import files
from splitjax.reports import numbers
from splitjax.reports.quantities import LARGEST, heading, label, quantity
from splitjax.reports.results import Results
from splitjax.types import UserError

_Look = dict[str, Any]  # options of a matplotlib line

_WIDEST = 11  # inches, of panels side by side
_KEY = 0.65  # inches, of a line of the legend with its gaps, before the name
_LETTER = 0.078  # inches, of a letter of the legend
_LETTERS = {"title": 11.5, "panel": 12, "tick": 14}  # that fit in an inch
_TUNED = "+FT"  # ends the name of a fine-tuned copy of a row
_MARKERS = "osD^vPXp<>h"
COLOURS = (
  "#0072B2 #D55E00 #009E73 #CC79A7 #E69F00 #56B4E9"
  " #000000 #882255 #999933 #332288 #7F7F7F #A6761D"
).split()
"""Okabe and Ito's, then Paul Tol's, for the colour-blind."""


def choose(
  results: Results, metric: str, *details: str, part: str = ""
) -> pd.DataFrame:
  """Chooses the numbers of a metric that have exactly these details.

  `details` are of round, client, class and threshold, `part` is the member of a
  family. The "value" of a line is in the unit of the quantity; "cell" and
  "panel" are the name of the grid's cell, or of the folder.
  """
  if wrong := {*details} - {*numbers.DETAIL}:
    raise UserError(f"details: {wrong} must be of {numbers.DETAIL}")
  table = results.numbers
  # LARGEST stands for the maximum over the test sets and is none of them.
  fits = table.metric.eq(metric) & table.part.eq(part) & table.set.ne(LARGEST)
  for name in numbers.DETAIL:
    lacks = table[name].isin(["", np.nan])
    fits &= ~lacks if name in details else lacks
  table = table[fits & table.row.isin(results.rows)]
  if table.value.isna().all():
    table = table.iloc[:0]
  cell = cells(table, results.axes)
  value = quantity(metric).scale * table.value
  return table.assign(value=value, cell=cell, panel=cell)


def cells(table: pd.DataFrame, axes: Sequence[str]) -> pd.Series:
  """Names each line's cell by the columns `axes`, as in "lr 0.1, iid"."""
  names = pd.Series("", table.index, dtype="str")
  for axis in axes:
    word = f"{label(axis)} " if is_numeric_dtype(table[axis]) else ""
    names += ", " + word + table[axis].map("{}".format).astype("str")
  return names.str.removeprefix(", ")


def by_set(table: pd.DataFrame) -> pd.DataFrame:
  """Draws each cell's last test set; of a single cell the first one as well."""
  sets = table.groupby("cell", sort=False).set
  ends = table.set == sets.transform("last")
  if table.cell.nunique() > 1:
    return table[ends]
  table = table[ends | (table.set == sets.transform("first"))]
  return table.assign(panel=table.set.map(heading))


def by(table: pd.DataFrame, names: pd.Series | str) -> pd.DataFrame:
  """Gives a panel to each cell and name, of a column or the same for all."""
  return table.assign(panel=names + table.cell.map(lambda x: x and f", {x}"))


def against(
  results: Results, table: pd.DataFrame, metric: str, *keys: str
) -> pd.DataFrame:
  """Adds another metric as a column, its mean over seeds for the same `keys`.

  `lines` over this column draws a point where a row has a single number.
  """
  others = choose(results, metric, *(x for x in keys if x in numbers.DETAIL))
  averaged = others.groupby([*keys]).value.mean(skipna=False).rename(metric)
  return table.merge(averaged.reset_index(), on=[*keys]).dropna(subset=metric)


def lines(
  results: Results | None,
  table: pd.DataFrame,
  x: str,
  hue: str = "row",
  **options: Any,
) -> Figure | None:
  """Draws a line for each value of the column `hue`, over the column `x`.

  Numbers of the same `x` are seeds. Without `results`, `table` is your own.
  """
  averaged = numbers.over_seeds(table[["seed", hue, "panel", x, "value"]])
  rows = results.rows if results and hue == "row" else table[hue]
  shown = looks(rows, table[hue])
  named = {"xlabel": label(x), "ylabel": _metric_of(table)}

  def draw(axes: Axes, part: pd.DataFrame) -> None:
    spread = averaged[x] if options.get("sharex", True) else part[x]
    if x in ("round", "position", "severity"):
      axes.locator_params("x", integer=True)
    elif x != "rho" and 0 < 10 * spread.min() <= spread.max():
      axes.set_xscale("log")
      axes.minorticks_off()
      axes.xaxis.set_major_formatter("{x:g}")
    for key, look in shown.items():
      curve = part[part[hue] == key].sort_values(x)
      step = max(1, len(curve) // 8)  # between points with marker and interval
      style: Any = look | {"elinewidth": 1, "capsize": 2, "errorevery": step}
      half = curve.half if curve.half.any() else None
      axes.errorbar(curve[x], curve.value, half, markevery=step, **style)
    if named["ylabel"].endswith("[%]"):
      # A wide interval would flatten the means: it leaves the frame.
      margin = 2 + 0.3 * np.ptp(averaged.value.dropna())
      top = min(averaged.value.max() + margin, 102)
      axes.set_ylim(max(averaged.value.min() - margin, -2), top)

  options = named | options | {"results": results, "shown": shown}
  return panels(averaged, draw, (3.6, 2.7), **options)


def bars(
  results: Results, table: pd.DataFrame, **options: Any
) -> Figure | None:
  """Draws a bar for each row of a cell, in panels.

  The number over a bar is its change against the first row of the cell, in
  percent of that row's value.
  """
  order = list(dict.fromkeys(table.cell))
  shown = {
    row: {"color": look["color"], "alpha": 0.5 if row.endswith(_TUNED) else 1}
    for row, look in looks(results.rows, table.row).items()
  }
  width = 0.8 / max(1, len(shown))

  def draw(axes: Axes, part: pd.DataFrame) -> None:
    averaged = numbers.over_seeds(part[["seed", "row", "cell", "value"]])
    averaged = averaged.set_index(["row", "cell"])
    base = averaged.loc[next(iter(shown))].reindex(order).value
    for number, (row, look) in enumerate(shown.items()):
      values = averaged.loc[row].reindex(order)
      at = np.arange(len(order)) + width * (number + 0.5) - 0.4
      drawn = axes.bar(at, values.value, width, yerr=values.half, **look)
      if number:
        texts = (100 * (values.value / base - 1)).map("{:+.0f}%".format)
        axes.bar_label(drawn, texts, size=7)
    name_ticks(axes, "x", order)

  options = {"ylabel": _metric_of(table)} | options
  options |= {"results": results, "shown": shown, "sharey": False}
  size = (np.clip(0.45 * len(order) * len(shown), 4.3, 27), 2.3)
  return panels(table, draw, size, **options)


def dots(
  results: Results, table: pd.DataFrame, **options: Any
) -> Figure | None:
  """Draws the clients of all seeds as dots, with quartiles, median and mean."""
  shown = looks(results.rows, table.row)

  def draw(axes: Axes, part: pd.DataFrame) -> None:
    for level, (row, look) in enumerate(shown.items()):
      values = np.sort(part.value[part.row == row].dropna())
      # A fixed quasi-random offset keeps dots of equal values apart.
      offset = 0.6 * (np.arange(len(values)) * 0.618034 % 1) - 0.3
      dot: Any = look | {"markersize": 3.2, "linestyle": "", "alpha": 0.4}
      axes.plot(values, level + offset, **dot)
      box: Any = {"orientation": "horizontal", "positions": [level]}
      axes.boxplot(values, widths=0.66, showmeans=True, showfliers=False, **box)
    name_ticks(axes, "y", shown)
    axes.set_ylim(len(shown) - 0.5, -0.5)

  options["title"] += " (box: quartiles, line: median, triangle: mean)"
  size = (3.2, 0.6 + 0.36 * len(shown))
  options = {"xlabel": _metric_of(table)} | options | {"results": results}
  return panels(table, draw, size, **options)


def heat(
  results: Results | None,
  table: pd.DataFrame,
  index: str,
  columns: str,
  *,
  key: str = "",
  **options: Any,
) -> Figure | None:
  """Draws means over seeds by two columns as colours, white where none is.

  `key` is the name of the colours, by default the metric. Per cents are
  coloured from 0 to 100, other numbers from the least to the largest.
  """
  key = key or _metric_of(table)
  table = table[["seed", "panel", index, columns, "value"]]
  averaged = numbers.over_seeds(table)
  rows = _ordered(averaged[index])
  across = _ordered(averaged[columns])
  colours = colormaps["cividis"].with_extremes(bad="white")
  norm = Normalize(0, 100) if key.endswith("[%]") else Normalize()
  norm.autoscale_None(averaged.value.dropna())

  def draw(axes: Axes, part: pd.DataFrame) -> None:
    values = part.pivot(index=index, columns=columns, values="value")
    values = values.reindex(index=rows, columns=across).astype(float)
    image: Any = {"aspect": "auto", "interpolation": "nearest", "cmap": colours}
    axes.imshow(values, norm=norm, **image)
    axes.grid(visible=False)
    name_ticks(axes, "x", across)
    name_ticks(axes, "y", rows)

  size = np.clip([0.5 + 0.3 * len(across), 1.2 + 0.2 * len(rows)], 2.5, 5)
  named: Any = {"xlabel": columns, "ylabel": index, "sharex": False}
  options = named | options | {"results": results}
  figure = panels(averaged, draw, [*size], **options)
  if figure:
    axes = figure.axes
    figure.colorbar(axes[0].images[0], ax=axes, label=key, shrink=0.9)
  return figure


def _metric_of(table: pd.DataFrame) -> str:
  """Names the metric of a table, with its unit; "" if it has several."""
  metrics = set(table.metric)
  return label(metrics.pop()) if len(metrics) == 1 else ""


def _ordered(names: pd.Series) -> list[Any]:
  """Lists each name once: numbers by their size, then texts as they come."""
  order = pd.Series(names.unique())
  number = pd.to_numeric(order, errors="coerce")
  return list(order[number.sort_values(kind="stable").index])


def nth_look(number: int) -> _Look:
  """Returns how the n-th of several lines is drawn, n from 0."""
  marker = _MARKERS[number % len(_MARKERS)]
  colour = COLOURS[number % len(COLOURS)]
  return {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1.5}


def looks(names: Iterable[str], shown: Iterable[str]) -> dict[str, _Look]:
  """Returns how the rows that are shown are drawn; `names` are all rows.

  A fine-tuned copy has its row's colour, a dashed line and hollow markers.
  """
  base = {name: name.removesuffix(_TUNED) for name in names}
  order = list(dict.fromkeys(base.values()))
  tuned = {"linestyle": "--", "markerfacecolor": "white"}
  return {
    row: nth_look(order.index(base[row])) | (tuned if base[row] != row else {})
    for row in base
    if row in set(shown)
  }


def plain(text: object, most: int = 48) -> str:
  """Shortens a text to `most` letters, and escapes $, which starts math."""
  text = "".join(c if c.isprintable() else " " for c in str(text))
  if len(text) > most:
    text = f"{text[: most - most // 3 - 1]}…{text[-(most // 3) :]}"
  return text.replace("$", r"\$")


def panels(
  parts: pd.DataFrame | Mapping[str, Any],
  draw: Callable[[Axes, Any], None],
  size: Sequence[float],
  *,
  title: str,
  results: Results | None = None,
  shown: Mapping[Any, _Look] | None = None,
  xlabel: str = "",
  ylabel: str = "",
  **options: Any,
) -> Figure | None:
  """Draws a figure of panels, with a legend and a title.

  `parts` maps the title of a panel, of `size` inches, to what `draw` draws in
  its axes, or is a table that has the titles in the column "panel". The legend
  lists the looks `shown`; the title names data and seeds of `results`. Panels
  share both axes unless `options`, those of `Figure.subplots`, say otherwise.
  """
  if isinstance(parts, pd.DataFrame):
    parts = {str(x): part for x, part in parts.groupby("panel", sort=False)}
  if not 0 < len(parts) <= 16:
    return None
  rows = math.ceil(len(parts) / min(4, max(1, _WIDEST // size[0])))
  columns = math.ceil(len(parts) / rows)
  width = max(5.2, 0.9 + columns * size[0])
  # Below the panels is the legend, of as many columns as fit; around is 0.9.
  longest = max((len(plain(name)) for name in shown or ()), default=0)
  ncols = max(1, int((width - 0.2) / (_KEY + _LETTER * longest)))
  height = 0.9 + rows * size[1] + 0.2 * math.ceil(len(shown or ()) / ncols)
  figure = Figure((width, height), layout="constrained")
  options = {"sharex": True, "sharey": True, "squeeze": False} | options
  grid = figure.subplots(rows, columns, **options).ravel()
  for axes in grid[len(parts) :]:
    axes.remove()
  letters = int(_LETTERS["panel"] * (width - 0.7) / columns)
  for number, (axes, head) in enumerate(zip(grid, parts, strict=False)):
    axes.set_title(textwrap.fill(plain(head, 2 * letters), letters), size=10)
    axes.grid(color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)
    if number + columns >= len(parts):
      axes.tick_params(labelbottom=True)
      axes.set_xlabel(xlabel)
    if number % columns == 0:
      axes.set_ylabel(ylabel)
    draw(axes, parts[head])
  if shown:
    legend(figure, shown, loc="outside lower center", ncols=ncols)
  if results is not None:
    names = [str(run.settings["data"]["name"]) for run in results.runs]
    count = len(results.seeds)
    seeds = "one seed" if count == 1 else f"{count} seeds"
    bars = " (bars: 95 % interval)" if shown and count > 1 else ""
    title += f"\n{' and '.join(dict.fromkeys(names))}, {seeds}{bars}"
  wide = int(_LETTERS["title"] * width)
  texts = [textwrap.fill(plain(x, 200), wide) for x in title.splitlines()]
  figure.suptitle("\n".join(texts), fontsize=11)
  return figure


def legend(owner: Figure | Axes, shown: Mapping, **options: Any) -> None:
  """Adds a legend of the lines `shown`, name -> look."""
  handles = [Line2D([], [], **look) for look in shown.values()]
  owner.legend(handles, map(plain, shown), fontsize=9, frameon=False, **options)


def name_ticks(axes: Axes, side: str, names: Iterable[Any]) -> None:
  """Labels positions 0, 1, ... of an axis with names, or every n-th of many."""
  texts = [plain(f"{x:g}" if isinstance(x, float) else x, 24) for x in names]
  step = math.ceil(len(texts) / (12 if side == "x" else 25))
  shown = texts[::step]
  inches = axes.bbox.width / axes.figure.dpi
  letters = int(_LETTERS["tick"] * inches / max(1, len(shown)))
  if side == "x" and letters > 9:
    shown = [textwrap.fill(text, letters - 1) for text in shown]
  elif side == "x" and sum(len(x) + 1 for x in shown) > letters * len(shown):
    axes.tick_params(axis="x", labelrotation=90)
  line = getattr(axes, f"{side}axis")
  line.set_ticks(range(0, len(texts), step), shown, fontsize=8)


def attempt(
  path: Path, draw: Callable[..., Figure | None], *of: Any
) -> list[Path]:
  """Draws a figure `of` something, as PNG, if there is one; returns its path.

  An earlier file is removed: it shows other numbers. A figure that cannot be
  drawn costs a line of the terminal, and no more.
  """
  try:
    if figure := draw(*of):
      files.write(path, lambda x: figure.savefig(x, format="png", dpi=150))
      return [path]
    path.unlink(missing_ok=True)
  except Exception as error:
    print(f"{path} is not drawn: {files.reason(error)}", file=sys.stderr)
  return []
