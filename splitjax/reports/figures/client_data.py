"""Who holds what, as pictures: a bar per client, stacked in colours.

Bars are numbers of samples, not shares, so that unequal clients look unequal.
Up to ten classes have a legend, more have a colour bar. Of many clients the
bars touch. Arrays in, a PNG out: nothing here knows where the numbers are from.
"""

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import ListedColormap, Normalize, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

DPI = 150
WIDTH = 8.6  # inches that the panels of a row share, at most

COLOURS = (
  "#44AA99 #332288 #999933 #882255 #CCCCCC "
  "#AA4499 #DDCC77 #117733 #88CCEE #CC6677"
).split()
"""Paul Tol's "muted", his grey a little darker, told apart by the colour-blind.
Here light and dark take turns, so that neighbours differ in grey print too."""

PARTS = {
  "ID: of classes that the client trained on": "#0072B2",
  "OOD: of classes that it did not": "#E69F00",
}
"""Okabe and Ito's blue and orange, a dark and a light one."""


def label_distribution(
  counts: np.ndarray,
  path: str | Path,
  *,
  title: str = "",
  names: Sequence[str] | None = None,
) -> Path:
  """Draws how many training samples of each class each client has.

  Args:
    counts: [N, C] int, training samples of each class at each client.
    path: of the PNG file, returned.
    title: above the picture.
    names: C names of classes; their numbers if left out.

  Raises:
    ValueError: not an [N, C] array of counts, or not C names.
  """
  _of_classes({"": counts}, title, names).savefig(path, dpi=DPI)
  return Path(path)


def gallery(
  panels: Mapping[str, np.ndarray], path: str | Path, *, title: str = ""
) -> Path:
  """Draws several label distributions side by side, all to one scale.

  Args:
    panels: title -> counts [N, C] int, all of one C; N may differ.
    path: of the PNG file, returned.
    title: above them all.

  Raises:
    ValueError: no panel, one that is not [N, C] counts, or more than one C.
  """
  _of_classes(panels, title, None).savefig(path, dpi=DPI)
  return Path(path)


def test_sets(
  inside: np.ndarray,
  outside: np.ndarray,
  names: Sequence[str],
  path: str | Path,
  *,
  title: str = "",
) -> Path:
  """Draws what every client is tested on, one panel per test set.

  Args:
    inside: [R, N] int, test samples of classes that the client trained on.
    outside: [R, N] int, of classes that it did not.
    names: R names of the test sets.
    path: of the PNG file, returned.
    title: above them all.

  Raises:
    ValueError: not two [R, N] arrays of counts, or not R names.
  """
  _of_tests(inside, outside, names, title).savefig(path, dpi=DPI)
  return Path(path)


def _of_classes(
  panels: Mapping[str, np.ndarray], title: str, names: Sequence[str] | None
) -> Figure:
  """Bars of classes, with a legend or a colour bar on their right."""
  checked = [(name, _checked(panels[name], name)) for name in panels]
  sizes = [counts.shape[1] for _, counts in checked]
  if len(set(sizes)) != 1:
    raise ValueError(f"panels must have one number of classes, not {sizes}")
  classes = sizes[0]
  labels = list(map(str, range(classes))) if names is None else names
  if len(labels) != classes:
    raise ValueError(f"{len(labels)} names do not fit {classes} classes")
  few = classes <= len(COLOURS)
  shades = colormaps["viridis"](np.linspace(0, 0.96, classes))
  colours = to_rgba_array(COLOURS[:classes]) if few else shades
  figure = _stacks(checked, colours, "training samples", title)
  if few:  # listed from the top, as the bars are stacked
    place = "outside right center"
    _legend(figure, labels, colours, loc=place, title="class", reverse=True)
  else:
    _colour_bar(figure, labels, colours)
  return figure


def _of_tests(
  inside: np.ndarray, outside: np.ndarray, names: Sequence[str], title: str
) -> Figure:
  """Bars of ID and OOD test samples, with a legend below."""
  parts = [_checked(inside, "inside"), _checked(outside, "outside")]
  if parts[0].shape != parts[1].shape or len(parts[0]) != len(names):
    raise ValueError(
      f"inside {parts[0].shape}, outside {parts[1].shape} and {len(names)} "
      "names must be of the same test sets and clients"
    )
  panels = []
  for name, counts in zip(names, np.stack(parts, axis=-1), strict=True):
    share = counts[:, 1].sum() / max(counts.sum(), 1)
    mean = counts.sum(axis=1).mean()
    told = f"{name}: mean {mean:,.0f} samples, {share:.0%} OOD"
    panels.append((told, counts))
  colours = to_rgba_array(list(PARTS.values()))
  figure = _stacks(panels, colours, "test samples", title)
  _legend(figure, list(PARTS), colours, loc="outside lower center", ncols=2)
  return figure


def _checked(counts: np.ndarray, name: str) -> np.ndarray:
  """The counts as a matrix of int64, or a ValueError that names them."""
  given = np.asarray(counts)
  right = given.ndim == 2 and given.size and given.dtype.kind in "iu"
  if not right or given.min() < 0:
    raise ValueError(
      f"{name or 'counts'}: must be a matrix of whole numbers, none below 0, "
      f"not {given.dtype} of shape {given.shape}"
    )
  return given.astype(np.int64)


def _stacks(
  panels: Sequence[tuple[str, np.ndarray]],
  colours: np.ndarray,
  ylabel: str,
  title: str,
) -> Figure:
  """A figure with one panel per title and counts [N, C], all to one scale."""
  total = len(panels)
  clients = max(len(counts) for _, counts in panels)
  # A client is a pixel wide at least, if that takes no more than one column.
  columns = total if total < 4 else math.ceil(math.sqrt(total))
  columns = max(1, min(columns, int(WIDTH * DPI) // clients))
  rows = math.ceil(total / columns)
  width = min(WIDTH / columns, 4.6 + 0.04 * clients)
  size = (columns * width + 1.4, 4.0 if rows == 1 else 2.3 * rows + 0.6)
  figure = Figure(figsize=size, layout="constrained")
  grid = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
  top = max(counts.sum(axis=1).max() for _, counts in panels)
  grid[0].set_ylim(0, 1.05 * max(top, 1))
  grid[0].yaxis.set_major_locator(MaxNLocator(6, steps=(1, 2, 5), integer=True))
  grid[0].yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
  for i, (name, counts) in enumerate(panels):
    axes = grid[i]
    _bars(axes, counts, colours, 0.9 * width * DPI / len(counts))
    axes.set_xticks(_every(len(counts), int(width / 0.25)))
    axes.set_title(textwrap.fill(name, int(14 * width)), fontsize=9)
    axes.tick_params(labelsize=8)
    axes.set_xlabel("client" if i + columns >= total else "")
    axes.set_ylabel("" if i % columns else ylabel)
  for axes in grid[total:]:
    axes.remove()
  figure.suptitle(textwrap.fill(title, int(11 * size[0])), fontsize=11)
  return figure


def _bars(
  axes: Axes, counts: np.ndarray, colours: np.ndarray, pixels: float
) -> None:
  """A bar per client, `pixels` wide; counts [N, C], colours [C, 4]."""
  tops = np.cumsum(counts, axis=1)
  client, part = np.nonzero(counts)
  high, low = tops[client, part], (tops - counts)[client, part]
  roomy = pixels >= 6
  half = 0.4 if roomy else 0.5
  left, right = client - half, client + half
  x, y = [left, left, right, right], [low, high, high, low]
  corners: Any = np.stack([np.transpose(x), np.transpose(y)], axis=-1)
  # Snapped to whole pixels, or bars that touch have pale seams.
  fill = colours[part]
  bars = PolyCollection(corners, facecolors=fill, linewidths=0, snap=True)
  axes.add_collection(bars, autolim=False)
  if roomy and len(part) <= len(COLOURS) * len(counts):
    # White hairlines, but for segments that they would hide.
    tall = high - low > 0.015 * axes.get_ylim()[1]
    parted = tall[1:] & tall[:-1] & (client[1:] == client[:-1])
    at = 1 + np.flatnonzero(parted)
    axes.hlines(low[at], left[at], right[at], colors="white", linewidth=0.5)
  margin = max(0.3, 0.01 * len(counts), 3 - len(counts) / 2)
  axes.set_xlim(-0.5 - margin, len(counts) - 0.5 + margin)
  axes.grid(axis="y", color="0.9", linewidth=0.8)
  axes.set_axisbelow(True)
  axes.spines[["top", "right"]].set_visible(False)


def _legend(
  figure: Figure, labels: Sequence[str], colours: np.ndarray, **place: Any
) -> None:
  """Squares of colour with their labels, outside the panels."""
  pairs = zip(colours, labels, strict=True)
  place["handles"] = [Patch(facecolor=c, label=label) for c, label in pairs]
  place |= {"handlelength": 1, "handleheight": 1}
  figure.legend(fontsize=8, frameon=False, **place)


def _colour_bar(
  figure: Figure, labels: Sequence[str], colours: np.ndarray
) -> None:
  """A strip of all the colours, with up to twenty of the labels."""
  span = Normalize(-0.5, len(labels) - 0.5)
  scale = ScalarMappable(span, ListedColormap(colours))
  bar = figure.colorbar(scale, ax=figure.axes, aspect=30, pad=0.01)
  ticks = _every(len(labels), 20)
  bar.set_ticks(ticks, labels=[labels[c] for c in ticks], fontsize=8)
  bar.set_label("class")


def _every(count: int, most: int) -> range:
  """Numbers below `count`: every 1st, 2nd, 5th, 10th ..., `most` in all."""
  steps = (s * 10**e for e in itertools.count() for s in (1, 2, 5))
  return range(0, count, next(s for s in steps if count <= s * most))
