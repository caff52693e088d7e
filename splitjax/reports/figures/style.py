"""How all figures of results look: colours, markers, legends, intervals.

Every row keeps its colour and marker in all figures. A "+FT" row has those of
the method that it fine-tunes, dashed and hollow. Rows of one method that differ
in a number (a sweep of lambda) have shades that grow with it.
"""

import math
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from splitjax.reports.results import rule

DPI = 150

COLOURS = (
  "#000000",
  "#0072B2",
  "#D55E00",
  "#009E73",
  "#CC79A7",
  "#56B4E9",
  "#E69F00",
)
"""Okabe and Ito's, told apart by the colour-blind; not their pale yellow."""

MARKERS = "osD^vPXp<>"
LINES = ("-", ":", "-.")
FINE_TUNED = "+FT"
NUMBERED = re.compile(r"(.*=) *([0-9]*\.?[0-9]+)")


def leaf(tree: dict[str, Any], *path: str) -> tuple[np.ndarray, np.ndarray]:
  """The numbers at a path and their half-widths; NaN where there are none."""
  value, half = tree, tree.get("interval")
  for step in path:
    value = value[step]
    half = half[step] if half else None
  values = np.array(value, float)
  if half is None:
    return values, np.full(values.shape, np.nan)
  return values, np.array(half, float)


def bars(values: np.ndarray, halves: np.ndarray) -> np.ndarray:
  """What is drawn of an interval of percentages: what lies in 0..100.

  Args:
    values: [...] in percent.
    halves: [...] half-widths; NaN where there is none.

  Returns:
    [2, ...] lengths below and above the value, none negative.
  """
  room = np.stack([values, 100 - values])
  return np.maximum(np.minimum(halves, room), 0)


def dodged(x: Sequence[float], place: int, count: int) -> np.ndarray:
  """Where one of several rows is drawn, so that their bars stay apart.

  Args:
    x: [P] where all would be, at least one.
    place: of the row among them.
    count: of the rows.
  """
  at = np.array(x, float)
  apart = np.diff(np.unique(at))
  gap = apart.min() if apart.size else 1.0
  step = min(0.4 * gap / count, 0.012 * (np.ptp(at) or 1.0))
  return at + step * (place - (count - 1) / 2)


def judged(results: dict[str, Any]) -> str:
  """For titles: whose thresholds it is at, where they are not the oracle's."""
  name = rule(results)
  return "" if name == "oracle" else f", {name} thresholds"


def row_styles(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
  """Row label -> how it is drawn, the same in every figure."""
  labels = [row["label"] for row in results["rows"]]
  methods = list(dict.fromkeys(x.removesuffix(FINE_TUNED) for x in labels))
  swept = _sweep_colours(methods)
  others = [x for x in methods if x not in swept]
  styles = {}
  for label in labels:
    method, tuned = label.removesuffix(FINE_TUNED), label.endswith(FINE_TUNED)
    i, turn = methods.index(method), 0
    colour: Any = swept.get(method)
    if colour is None:
      turn, place = divmod(others.index(method), len(COLOURS))
      colour = COLOURS[place]
    styles[label] = {
      "color": colour,
      "marker": MARKERS[i % len(MARKERS)],
      "markersize": 5.5,
      "markerfacecolor": "white" if tuned else colour,
      "linestyle": "--" if tuned else LINES[turn % len(LINES)],
      "linewidth": 1.5,
    }
  return styles


def _sweep_colours(methods: Sequence[str]) -> dict[str, tuple[float, ...]]:
  """Label -> shade of three or more that differ in their last number alone.

  As "SplitGP λ=0.1", "SplitGP λ=0.5", "SplitGP λ=0.9": dark to light by it.
  """
  found: dict[str, list[tuple[float, str]]] = {}
  for label in methods:
    if match := NUMBERED.fullmatch(label):
      found.setdefault(match[1], []).append((float(match[2]), label))
  return {
    label: shade
    for members in found.values()
    if len(members) >= 3
    for (_, label), shade in zip(
      sorted(members), shades(len(members)), strict=True
    )
  }


def shades(count: int) -> list[tuple[float, ...]]:
  """Colours of something that grows, dark to light also in grey print."""
  found = colormaps["viridis"](np.linspace(0, 0.88, count))
  return [tuple(map(float, colour)) for colour in found]


def _fitting(labels: Sequence[str], width: float, most: int) -> int:
  """Into how many columns a legend goes, `width` inches wide."""
  for count in range(min(most, len(labels)), 1, -1):
    parts = np.array_split(list(map(len, labels)), count)
    if sum(0.75 + 0.075 * part.max() for part in parts) <= width:
      return count
  return 1


def finish(
  figure: Figure,
  panels: Sequence[Axes],
  styles: dict[str, dict[str, Any]],
  title: str,
  path: str | Path,
  *,
  columns: int = 3,
) -> Path:
  """Grid, title, a legend below that covers nothing; writes the PNG.

  Args:
    figure: with its panels drawn.
    panels: that get a grid.
    styles: label -> how it is drawn, for the legend; {} for none.
    title: above them all.
    path: of the PNG file, returned.
    columns: of the legend, at most.
  """
  for axes in panels:
    axes.grid(color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)
  handles = [
    Line2D([], [], label=label, **style) for label, style in styles.items()
  ]
  width, height = map(float, figure.get_size_inches())
  letters = int(11 * width)
  figure.suptitle(textwrap.fill(title, letters), fontsize=11)
  if handles:
    columns = _fitting(list(styles), width, columns)
    lines = math.ceil(len(handles) / columns)
    figure.set_size_inches(width, height + 0.2 * max(0, lines - 4))
    figure.legend(
      handles=handles,
      loc="outside lower center",
      ncols=columns,
      fontsize=9,
      frameon=False,
      handlelength=3,
    )
  figure.savefig(path, dpi=DPI)
  return Path(path)
