"""What figures share: colours of rows, panels, legends, titles, files.

A row of a report has one colour and marker in all its figures. Its fine-tuned
copy has the same colour, a dashed line and hollow markers. Users' texts, such
as labels and names of clients, are drawn letter by letter.
"""

import functools
import math
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from splitjax import files
from splitjax.reports.results import Results

Part = TypeVar("Part")
Look = dict[str, Any]
"""Options of a matplotlib line."""

MOST_PANELS = 16
"""A figure of more panels is not drawn: tables have its numbers."""

FINE_TUNED = "+FT"
MARKERS = "osD^vPXp<>h"
COLOURS = (
  "#0072B2 #D55E00 #009E73 #CC79A7 #E69F00 #56B4E9"
  " #000000 #882255 #999933 #332288 #7F7F7F #A6761D"
).split()
"""Okabe and Ito's, then Paul Tol's, for the colour-blind."""


def look(number: int, colour: Any = None) -> Look:
  """Returns how the n-th of several lines is drawn."""
  marker = MARKERS[number % len(MARKERS)]
  colour = COLOURS[number % len(COLOURS)] if colour is None else colour
  return {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1.5}


def looks(rows: Sequence[str]) -> dict[str, Look]:
  """Returns how the rows of a report are drawn, by their labels."""
  bases = [row.removesuffix(FINE_TUNED) for row in rows]
  methods = list(dict.fromkeys(bases))
  tuned = {"linestyle": "--", "markerfacecolor": "white"}
  return {
    row: look(methods.index(base)) | (tuned if row != base else {})
    for row, base in zip(rows, bases, strict=True)
  }


def shades(values: Iterable[Any]) -> dict[Any, Look]:
  """Returns looks for ordered values: dark to light, even in grey print."""
  order = list(dict.fromkeys(values))
  colours = colormaps["viridis"](np.linspace(0, 0.88, len(order)))
  return {value: look(n, colours[n]) for n, value in enumerate(order)}


def plain(text: object, most: int = 48) -> str:
  """Returns a text that matplotlib draws letter by letter, without formulas.

  A text of more than `most` letters loses those in its middle.
  """
  text = "".join(c if c.isprintable() else " " for c in str(text))
  if len(text) > most:
    text = f"{text[: most - most // 3 - 1]}…{text[-(most // 3) :]}"
  return text.replace("$", r"\$")


def panels(
  parts: Mapping[Any, Part],
  draw: Callable[[Axes, Part], None],
  size: Sequence[float],
  *,
  title: str,
  results: Results | None = None,
  shown: Mapping[Any, Look] | None = None,
  xlabel: str = "",
  ylabel: str = "",
  **options: Any,
) -> Figure | None:
  """Draws a figure of panels, with a legend and a title.

  Args:
    parts: title of a panel -> what `draw` draws in it.
    draw: draws a part in the axes of its panel.
    size: inches of a panel.
    title: a user's text.
    results: the title names their data, seeds and threshold rule.
    shown: name -> look of what the legend lists, which has intervals as bars.
    xlabel: the name of the x axes.
    ylabel: the name of the y axes.
    **options: of `Figure.subplots`; panels share both axes otherwise.

  Returns:
    The figure; None if there is no part, or too many.
  """
  if not 0 < len(parts) <= MOST_PANELS:
    return None
  rows = math.ceil(len(parts) / min(4, max(1, 11 // size[0])))
  columns = math.ceil(len(parts) / rows)
  width = max(5.2, 0.9 + columns * size[0])
  figure = Figure((width, 0.9 + rows * size[1]), layout="constrained")
  options = {"sharex": True, "sharey": True, "squeeze": False} | options
  grid = figure.subplots(rows, columns, **options).ravel()
  for axes in grid[len(parts) :]:
    axes.remove()
  letters = int(12 * (width - 0.7) / columns)
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

  # The legend lies below the panels, with as many columns as fit.
  if shown:
    room = 0.65 + 0.078 * max(len(plain(name)) for name in shown)
    side_by_side = max(1, int((width - 0.2) / room))
    height = figure.get_figheight() + 0.2 * math.ceil(len(shown) / side_by_side)
    figure.set_size_inches(width, height)
    legend(figure, shown, loc="outside lower center", ncols=side_by_side)
  if results is not None:
    title += f"\n{_origin(results, bars=bool(shown))}"
  texts = [plain(line, 200) for line in title.splitlines()]
  wrapped = [textwrap.fill(text, int(11.5 * width)) for text in texts]
  figure.suptitle("\n".join(wrapped), fontsize=11)
  return figure


def legend(owner: Figure | Axes, shown: Mapping, **options: Any) -> None:
  """Adds a legend of the lines `shown`, name -> look."""
  lines = [Line2D([], [], **look) for look in shown.values()]
  numbers = list(map(str, range(len(shown))))  # names as "_x" are left out
  drawn = owner.legend(lines, numbers, fontsize=9, frameon=False, **options)
  for text, name in zip(drawn.get_texts(), shown, strict=True):
    text.set_text(plain(name))


def _origin(results: Results, bars: bool) -> str:
  """Names data, seeds and threshold rule."""
  trees = [run.settings for run in results.runs]
  data = dict.fromkeys(str(tree["data"]["name"]) for tree in trees)
  rules = {tree["eval"]["threshold_rule"] for tree in trees} - {"oracle"}
  seeds = "one seed"
  if len(results.seeds) > 1:
    seeds = f"{len(results.seeds)} seeds"
    seeds += " (bars: 95 % interval)" if bars else ""
  words = [" and ".join(data), seeds]
  return ", ".join([*words, *(f"{rule} thresholds" for rule in sorted(rules))])


def log_if_wide(axes: Axes, values: Any) -> bool:
  """Makes an x axis logarithmic if positive values span a decade; says if."""
  low = np.nanmin(values)
  high = np.nanmax(values)
  if not 0 < 10 * low <= high:
    return False
  axes.set_xscale("log")
  subs = (1, 2, 5) if high < 300 * low else (1,)
  axes.xaxis.set_major_locator(LogLocator(subs=subs))
  axes.xaxis.set_major_formatter("{x:g}")
  axes.xaxis.set_minor_locator(NullLocator())
  return True


def name_ticks(axes: Axes, side: str, names: Iterable[Any]) -> None:
  """Labels the positions 0, 1, ... of an axis with names, of many the n-th.

  Names that are their positions get round steps.
  """
  line = getattr(axes, f"{side}axis")
  texts = [f"{x:g}" if isinstance(x, float) else str(x) for x in names]
  if texts == list(map(str, range(len(texts)))):
    line.set_major_locator(MaxNLocator(10, steps=(1, 2, 5, 10), integer=True))
    return
  step = math.ceil(len(texts) / (12 if side == "x" else 25))
  shown = [plain(text, 26) for text in texts[::step]]
  inches = axes.bbox.width / axes.figure.dpi
  if side == "x" and sum(len(text) + 2 for text in shown) > 14 * inches:
    shown = [plain(text, 16) for text in texts[::step]]
    axes.tick_params(axis="x", labelrotation=90)
  line.set_ticks(range(0, len(texts), step), shown, fontsize=8)


def save(figure: Figure, path: str | Path) -> Path:
  """Writes a figure as PNG; returns its path."""
  write = functools.partial(figure.savefig, format="png", dpi=150)
  files.write(Path(path), write)
  return Path(path)


def attempt(path: Path, draw: Callable[[], Figure | None]) -> list[Path]:
  """Draws a figure and saves it, if there is one; returns the PNG's path.

  If there is none, an earlier file is removed: it shows other numbers. A figure
  that cannot be drawn costs a line of the terminal, and no more.
  """
  try:
    if figure := draw():
      return [save(figure, path)]
    path.unlink(missing_ok=True)
  except Exception as error:
    print(f"{path} is not drawn: {files.reason(error)}", file=sys.stderr)
  return []
