"""The common style of all figures: colours, markers, legends, files.

A method of COLOURS has one colour and marker in every figure. Variants of a
method (other labels) differ in shade, line style and marker. A "+FT" row looks
like the row it fine-tunes, but dashed and with hollow markers.
"""

import functools
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from splitjax.reports.records import at
from splitjax.types import UserError

DPI = 150
MARKERS = "osD^vPXp<>"
LINES: tuple[Any, ...] = ("-", ":", "-.", (0, (6, 1.5)))
FINE_TUNED = "+FT"
MOST_NAMES = 20

COLOURS = {
  "harmony": "#D55E00",
  "splitgp": "#0072B2",
  "multi_exit": "#009E73",
  "splitfed_v1": "#000000",
  "splitfed_v2": "#7F7F7F",
  "splitfed_v3": "#56B4E9",
  "splitnn": "#8C564B",
  "multi_head": "#E69F00",
  "merge_sfl": "#882255",
  "hydra": "#CC79A7",
  "fedavg": "#6A3D9A",
  "fedavg_ft": "#6A3D9A",
  "local": "#999933",
  "fedprox": "#9E9AC8",
  "fedbn": "#2F4F4F",
  "fedper": "#17BECF",
  "fedrep": "#1B7837",
  "fedbabu": "#A6761D",
  "fedamp": "#E7298A",
  "fedfomo": "#66A61E",
  "fedala": "#4575B4",
  "fedpac": "#B2182B",
  "fedgh": "#525252",
  "fedproto": "#0B7A75",
  "pgfedsplit": "#FF7F00",
  "supersfl": "#AD1457",
  "dfl": "#00796B",
  "scaffold": "#5D4037",
  "ditto": "#1F78B4",
  "pfedme": "#B15928",
  "per_fedavg": "#33A02C",
  "moon": "#6B6ECF",
}
"""Method -> its colour; seven are Okabe and Ito's, for the colour-blind."""

OWN = ("#117733", "#332288", "#DDCC77", "#44AA99", "#AA4499", "#CC6677")
"""Colours of methods that are not in COLOURS, in order of appearance."""


def leaf(tree: dict[str, Any], *path: str) -> tuple[np.ndarray, np.ndarray]:
  """Reads the numbers at a path, and their half-widths; NaN where missing."""
  values, half = np.array(at(tree, path), float), at(tree.get("interval"), path)
  if half is None:
    return values, np.full(values.shape, np.nan)
  return values, np.array(half, float)


def percent(
  rows: Iterable[dict[str, Any]], *path: str
) -> tuple[np.ndarray, np.ndarray]:
  """Reads K rows' fractions and half-widths, both [K, ...], in per cent."""
  pairs = 100 * np.array([leaf(row, *path) for row in rows])
  return pairs[:, 0], pairs[:, 1]


def log_axis(axes: Axes) -> None:
  """Sets a logarithmic x axis with plain numbers and no minor ticks."""
  axes.set_xscale("log")
  axes.xaxis.set_major_formatter("{x:g}")
  axes.xaxis.set_minor_locator(NullLocator())


def log_if_wide(every: Sequence[Axes], values: Sequence[np.ndarray]) -> bool:
  """Makes x axes logarithmic if positive values span more than a decade.

  Returns whether it did.
  """
  known = [x for x in np.concatenate(values) if x > 0]
  wide = bool(known) and max(known) > 10 * min(known)
  for axes in every if wide else ():
    log_axis(axes)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
  return wide


def name_clients(
  axes: Axes, side: Literal["x", "y"], names: Sequence[str]
) -> None:
  """Labels an axis with clients' names, if there are 1 to MOST_NAMES names."""
  if 0 < len(names) <= MOST_NAMES:
    short = [textwrap.shorten(name, 20, placeholder="…") for name in names]
    turned = 90 if side == "x" else 0
    ticks = axes.set_xticks if side == "x" else axes.set_yticks
    ticks(range(len(names)), short, fontsize=7, rotation=turned)


def round_ticks(axes: Axes, rounds: Iterable[float]) -> None:
  """Sets ticks at every evaluated round, or every n-th if there are over 8."""
  evaluated = sorted(set(rounds))
  step = math.ceil(len(evaluated) / 8)
  axes.set_xticks(evaluated[::-1][::step][::-1])


def row_styles(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
  """Maps the labels of result rows to drawing styles, by method."""
  methods: dict[str, dict[str, None]] = {}
  for row in rows:
    method = row.get("method", row["label"])
    methods.setdefault(method, {})[row["label"]] = None
  others = [method for method in methods if method not in COLOURS]
  styles = {}
  for method, labels in methods.items():
    variants = list(dict.fromkeys(x.removesuffix(FINE_TUNED) for x in labels))
    variants.sort(key=len)  # the plain name gets the method's colour
    place = (list(COLOURS) if method in COLOURS else others).index(method)
    colour = COLOURS.get(method) or OWN[place % len(OWN)]
    for label in labels:
      i = variants.index(label.removesuffix(FINE_TUNED))
      tuned = label.endswith(FINE_TUNED)
      white = 0.6 * i / max(len(variants) - 1, 2)  # mixed with the colour
      shade = tuple(x + white * (1 - x) for x in to_rgb(colour))
      styles[label] = {
        "color": shade,
        "marker": MARKERS[(place + i) % len(MARKERS)],
        "markersize": 5.5,
        "markerfacecolor": "white" if tuned else shade,
        "linestyle": "--" if tuned else LINES[i % len(LINES)],
        "linewidth": 1.5,
      }
  return styles


def shades(count: int) -> list[tuple[float, ...]]:
  """Returns colours for ordered values, dark to light even in grey print."""
  return list(map(tuple, colormaps["viridis"](np.linspace(0, 0.88, count))))


def make_panels(
  count: int,
  most: int,
  size: tuple[float, float],
  names: tuple[str, str],
  **options: Any,
) -> tuple[Figure, list[Axes]]:
  """Makes a figure of `count` panels of `size` inches, up to `most` in a line.

  Panels share both axes unless `options` say otherwise. `names` has the name of
  the x axis, which the lowest panel of each column shows, and the name of the y
  axis, which the left panels show.
  """
  rows = math.ceil(count / most)
  columns = math.ceil(count / rows)
  whole = max(5.2, 1.2 + columns * size[0]), 1.3 + rows * size[1]
  figure = Figure(figsize=whole, layout="constrained")
  options = {"sharex": True, "sharey": True, **options}
  grid = figure.subplots(rows, columns, squeeze=False, **options)
  every = list(grid.ravel())
  for axes in every[count:]:
    axes.remove()
  for axes in every[max(0, count - columns) : count]:
    axes.tick_params(labelbottom=True)
    axes.set_xlabel(names[0])
  for axes in grid[:, 0]:
    axes.set_ylabel(names[1])
  return figure, every[:count]


Draw = Callable[[dict[str, Any]], Figure]


def of_results(draw: Draw) -> Draw:
  """Wraps a figure function so that it refuses other objects than results.

  The wrapper raises UserError if rows or test sets are missing.
  """

  @functools.wraps(draw)
  def checked(results: dict[str, Any]) -> Figure:
    if not isinstance(results, Mapping) or not {"rows", "sets"} <= {*results}:
      raise UserError(
        f"figures.{draw.__name__} needs the results of a run, as splitjax.run"
        " or splitjax.report_again returns them; of a grid those of one cell"
      )
    return draw(results)

  return checked


def need(known: Any, figure: str, what: str) -> None:
  """Raises UserError if results lack what a figure shows."""
  if not known:
    raise UserError(f"figures.{figure} needs results of {what}")


def plain_look(axes: Axes) -> None:
  """Draws grid lines behind the data, and no frame at the top and the right."""
  axes.grid(color="0.9", linewidth=0.8)
  axes.set_axisbelow(True)
  axes.spines[["top", "right"]].set_visible(False)
  axes.tick_params(labelsize=9)


def finish(
  figure: Figure,
  every: Sequence[Axes],
  styles: dict[str, dict[str, Any]],
  title: str,
) -> Figure:
  """Adds the plain look, the title, and a legend below the panels.

  The legend lists the labels of `styles`; {}: no legend. Returns the figure.
  """
  for axes in every:
    plain_look(axes)
  handles = [Line2D([], [], label=name, **how) for name, how in styles.items()]
  if handles:
    legend(figure, handles)
  return titled(figure, title)


def legend(figure: Figure, handles: Sequence[Any], **options: Any) -> None:
  """Adds a legend below the panels, with the fewest lines that fit."""
  width, height = map(float, figure.get_size_inches())
  longest = max(len(handle.get_label()) for handle in handles)
  most = max(1, int(width / (0.75 + 0.075 * longest)))
  lines = math.ceil(len(handles) / most)
  columns = math.ceil(len(handles) / lines)  # lines of about equal length
  figure.set_size_inches(width, height + 0.2 * lines)
  figure.legend(
    # Matplotlib fills columns; readers expect rows.
    handles=[h for i in range(columns) for h in handles[i::columns]],
    loc="outside lower center",
    ncols=columns,
    fontsize=9,
    frameon=False,
    **options,
  )


def titled(figure: Figure, title: str) -> Figure:
  """Adds a title, wrapped to the width of the figure; returns the figure."""
  width = int(11 * figure.get_figwidth())
  lines = [textwrap.fill(line, width) for line in title.splitlines()]
  figure.suptitle("\n".join(lines), fontsize=11)
  return figure


def save(figure: Figure, path: str | Path) -> Path:
  """Writes a PNG, and beside it a PDF for print; returns the PNG's path."""
  path = Path(path)
  figure.savefig(path, dpi=DPI)
  figure.set_layout_engine("none")  # the PDF keeps the computed layout
  with matplotlib.rc_context({"pdf.fonttype": 42}):  # keeps text as text
    figure.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None})
  return path
