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
from typing import Any

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from splitjax import files
from splitjax.reports.results import Results

Look = dict[str, Any]
"""Options of a matplotlib line."""

FINE_TUNED = "+FT"
MARKERS = "osD^vPXp<>h"
LINES = ("-", ":", "-.")
COLOURS = (
  "#0072B2 #D55E00 #009E73 #CC79A7 #E69F00 #56B4E9"
  " #000000 #882255 #999933 #332288 #7F7F7F #A6761D"
).split()
"""Colours of rows: Okabe and Ito's, then Paul Tol's, for the colour-blind."""


def looks(results: Results) -> dict[str, Look]:
  """Returns how the rows of a report are drawn, by their labels."""
  bases = [label.removesuffix(FINE_TUNED) for label in results.rows]
  order = {base: number for number, base in enumerate(dict.fromkeys(bases))}
  found = {}
  for label, base in zip(results.rows, bases, strict=True):
    number = order[base]
    found[label] = look(number, COLOURS[number % len(COLOURS)])
    found[label]["linestyle"] = LINES[number // len(COLOURS) % len(LINES)]
    if label != base:
      found[label] |= {"linestyle": "--", "markerfacecolor": "white"}
  return found


def look(number: int, colour: Any) -> Look:
  """Returns a line of a colour with the marker of a number."""
  marker = MARKERS[number % len(MARKERS)]
  return {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1.5}


def shades(values: Iterable[Any]) -> dict[Any, Look]:
  """Returns looks for ordered values: dark to light, even in grey print."""
  known = list(values)
  colours = colormaps["viridis"](np.linspace(0, 0.88, len(known)))
  return {
    value: look(number, colours[number]) for number, value in enumerate(known)
  }


def plain(text: str, most: int = 48) -> str:
  """Returns a text that matplotlib draws letter by letter, without formulas.

  A text of more than `most` letters loses those in its middle.
  """
  if len(text) > most:
    end = most // 3
    text = f"{text[: most - end - 1]}…{text[-end:]}"
  text = "".join(c if c.isprintable() else " " for c in text)
  return text.replace("$", r"\$")


def panels(
  titles: Sequence[str],
  size: tuple[float, float],
  names: tuple[str, str],
  most: int = 3,
  **options: Any,
) -> tuple[Figure, list[Axes]]:
  """Makes a panel of `size` inches for each title, up to `most` side by side.

  `names` are those of the x and the y axis. Panels share both axes unless the
  `options` of `Figure.subplots` say otherwise.
  """
  rows = math.ceil(len(titles) / most)
  columns = math.ceil(len(titles) / rows)
  width = max(5.2, 0.9 + columns * size[0])
  figure = Figure((width, 0.9 + rows * size[1]), layout="constrained")
  options = {"sharex": True, "sharey": True, **options}
  grid = figure.subplots(rows, columns, squeeze=False, **options)
  parts = list(grid.ravel())
  for axes in parts[len(titles) :]:
    axes.remove()
  letters = int(12 * (width - 0.7) / columns)
  for number, (axes, title) in enumerate(zip(parts, titles, strict=False)):
    axes.set_title(textwrap.fill(plain(title, 2 * letters), letters), size=10)
    axes.grid(color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)
    if number + columns >= len(titles):
      axes.tick_params(labelbottom=True)
      axes.set_xlabel(names[0])
    if number % columns == 0:
      axes.set_ylabel(names[1])
  return figure, parts[: len(titles)]


def legend(
  figure: Figure, named: Mapping[str, Look], title: str | None = None
) -> None:
  """Adds a legend below the panels, with as many columns as fit."""
  texts = [plain(name) for name in named]
  width, height = map(float, figure.get_size_inches())
  room = 0.65 + 0.078 * max(map(len, texts), default=0)
  columns = max(1, int((width - 0.2) / room))
  lines = math.ceil(len(texts) / columns)
  figure.set_size_inches(width, height + 0.2 * (lines + bool(title)))
  drawn = figure.legend(
    [Line2D([], [], **look) for look in named.values()],
    list(map(str, range(len(texts)))),  # names such as "_x" are left out
    loc="outside lower center",
    ncols=columns,
    fontsize=9,
    frameon=False,
    title=title,
  )
  for text, name in zip(drawn.get_texts(), texts, strict=True):
    text.set_text(name)


def thick(colour: Any) -> Look:
  """Returns a line of a legend that stands for bars of a colour."""
  return {"color": colour, "linewidth": 7}


def titled(
  figure: Figure,
  title: str,
  results: Results | None = None,
  intervals: str = "",
) -> Figure:
  """Adds a title and, of results, a line on data, seeds and threshold rule.

  `intervals` names what shows the interval over seeds. Returns the figure.
  """
  lines = [plain(line, 200) for line in title.splitlines()]
  if results is not None:
    settings = [run.settings for run in results.runs]
    data = dict.fromkeys(str(known["data"]["name"]) for known in settings)
    rules = {known["eval"]["threshold_rule"] for known in settings}
    count = len(results.seeds)
    seeds = f"{count} seeds" if count > 1 else "one seed"
    if count > 1 and intervals:
      seeds += f" ({intervals}: 95 % interval)"
    words = [" and ".join(data), seeds]
    words += [f"{rule} thresholds" for rule in sorted(rules - {"oracle"})]
    lines.append(plain(", ".join(words), 200))
  width = int(11.5 * figure.get_figwidth())
  wrapped = "\n".join(textwrap.fill(line, width) for line in lines)
  figure.suptitle(wrapped, fontsize=11)
  return figure


def log_if_wide(parts: Iterable[Axes], values: Any) -> bool:
  """Makes x axes logarithmic if positive values span a decade; says if so."""
  known = np.asarray(values, float)
  known = known[np.isfinite(known)]
  wide = known.size > 0 and bool(0 < 10 * known.min() <= known.max())
  for axes in parts if wide else ():
    few = known.max() < 300 * known.min()
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
  return wide


def name_ticks(axes: Axes, side: str, names: Sequence[str]) -> None:
  """Labels the places 0, 1, ... of an axis with names, of many the n-th.

  Names that are their places get round steps.
  """
  line = axes.xaxis if side == "x" else axes.yaxis
  if all(name == str(place) for place, name in enumerate(names)):
    line.set_major_locator(MaxNLocator(10, steps=(1, 2, 5, 10), integer=True))
    return
  step = math.ceil(len(names) / (12 if side == "x" else 25))
  texts = [plain(name, 26) for name in names[::step]]
  letters = sum(map(len, texts)) + 2 * len(texts)
  inches = axes.bbox.width / axes.figure.dpi
  turned = side == "x" and letters > 14 * inches
  if turned:
    texts = [plain(name, 16) for name in names[::step]]
  line.set_ticks(range(0, len(names), step), texts, fontsize=8)
  if turned:
    axes.tick_params(axis="x", labelrotation=90)


def save(figure: Figure, path: str | Path) -> Path:
  """Writes a PNG, and beside it a PDF for print; returns the PNG's path."""
  path = Path(path)
  forms: dict[str, dict[str, Any]] = {
    "png": {"dpi": 150},
    "pdf": {"metadata": {"CreationDate": None}},
  }
  with matplotlib.rc_context({"pdf.fonttype": 42}):  # keeps text as text
    for form, options in forms.items():
      write = functools.partial(figure.savefig, format=form, **options)
      files.write_bytes(path.with_suffix(f".{form}"), write)
      figure.set_layout_engine("none")  # the PDF keeps the computed layout
  return path


def attempt(path: Path, draw: Callable[[], Figure | None]) -> list[Path]:
  """Draws a figure and saves it, if there is one; returns the PNG's path.

  If there is none, an earlier file is removed.
  A figure that cannot be drawn costs a line of the terminal, and no more.
  """
  try:
    if figure := draw():
      return [save(figure, path)]
    for old in (path, path.with_suffix(".pdf")):  # of other numbers
      old.unlink(missing_ok=True)
    return []
  except Exception as error:
    print(f"{path} is not drawn: {files.reason(error)}", file=sys.stderr)
    return []
