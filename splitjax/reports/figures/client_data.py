"""Figures of the clients' data: one stacked bar per client.

Bars are numbers of samples, not shares, so that clients of unequal size look
unequal. Up to ten classes have a legend, more a colour bar.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from splitjax.reports.figures.style import label_axes, legend, panels, save

MOST_BARS = 600
"""Segments drawn as bars with gaps; more are drawn as touching steps."""

COLOURS = (
  "#44AA99 #332288 #999933 #882255 #CCCCCC "
  "#AA4499 #DDCC77 #117733 #88CCEE #CC6677"
).split()
"""Paul Tol's "muted", his grey slightly darker, for the colour-blind. Light and
dark colours alternate, so that neighbours differ in grey print too."""

PARTS = {
  "ID: classes that the client trains on": "#0072B2",
  "OOD: classes that it does not train on": "#E69F00",
}
"""Okabe and Ito's blue and orange, a dark and a light colour."""


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
    title: above the figure.
    names: C names of classes; their numbers by default.

  Raises:
    ValueError: not an [N, C] array of counts, or not C names.
  """
  return save(of_classes({"": counts}, names), title, path)


def gallery(
  distributions: Mapping[str, np.ndarray], path: str | Path, *, title: str = ""
) -> Path:
  """Draws several label distributions side by side on one scale.

  Args:
    distributions: title -> counts [N, C] int, all with the same C.
    path: of the PNG file, returned.
    title: above all panels.

  Raises:
    ValueError: no distribution, one that is not [N, C] counts, or different C.
  """
  return save(of_classes(distributions), title, path)


def test_sets(
  inside: np.ndarray,
  outside: np.ndarray,
  names: Sequence[str],
  path: str | Path,
  *,
  title: str = "",
) -> Path:
  """Draws every client's test sets, one panel per set.

  Args:
    inside: [R, N] int, test samples of classes that the client trains on.
    outside: [R, N] int, test samples of other classes.
    names: R names of the test sets.
    path: of the PNG file, returned.
    title: above all panels.

  Raises:
    ValueError: not two [R, N] arrays of counts, or not R names.
  """
  return save(of_tests(inside, outside, names), title, path)


def of_classes(
  distributions: Mapping[str, np.ndarray], names: Sequence[str] | None = None
) -> Figure:
  """The figure of `gallery`, not yet written."""
  checked = {key: _checked(each, key) for key, each in distributions.items()}
  sizes = {counts.shape[1] for counts in checked.values()}
  if len(sizes) != 1:
    raise ValueError(f"panels must have one number of classes, not {sizes}")
  (classes,) = sizes
  labels = list(map(str, range(classes))) if names is None else list(names)
  if len(labels) != classes:
    raise ValueError(f"{len(labels)} names do not fit {classes} classes")
  if classes <= len(COLOURS):
    colours: list[Any] = COLOURS[:classes]
    figure = _stacks(checked, colours, "training samples")
    patches = map(_patch, colours, labels)
    legend(figure, list(patches), title="class")
    return figure
  colours = list(colormaps["viridis"](np.linspace(0, 0.96, classes)))
  figure = _stacks(checked, colours, "training samples")
  scale = ScalarMappable(
    Normalize(-0.5, classes - 0.5), ListedColormap(colours)
  )
  bar = figure.colorbar(scale, ax=figure.axes, aspect=30, label="class")
  ticks = range(0, classes, math.ceil(classes / 20))
  bar.set_ticks(list(ticks), labels=[labels[c] for c in ticks], fontsize=8)
  return figure


def of_tests(
  inside: np.ndarray, outside: np.ndarray, names: Sequence[str]
) -> Figure:
  """The figure of `test_sets`, not yet written."""
  inside, outside = _checked(inside, "inside"), _checked(outside, "outside")
  if inside.shape != outside.shape or len(inside) != len(names):
    raise ValueError(
      f"inside {inside.shape}, outside {outside.shape} and {len(names)} "
      "names must be of the same test sets and clients"
    )
  sets = {}
  for name, *parts in zip(names, inside, outside, strict=True):
    counts = np.stack(parts, axis=-1)
    share = counts[:, 1].sum() / max(counts.sum(), 1)
    mean = counts.sum(axis=1).mean()
    sets[f"{name}: mean {mean:,.0f} samples, {share:.0%} OOD"] = counts
  figure = _stacks(sets, list(PARTS.values()), "test samples")
  legend(figure, list(map(_patch, PARTS.values(), PARTS)))
  return figure


def _checked(counts: np.ndarray, name: str) -> np.ndarray:
  """The counts as an int64 matrix; ValueError if they are not counts."""
  given = np.asarray(counts)
  right = given.ndim == 2 and given.size and given.dtype.kind in "iu"
  if not right or given.min() < 0:
    raise ValueError(
      f"{name or 'counts'}: must be a matrix of whole numbers, none below 0, "
      f"not {given.dtype} of shape {given.shape}"
    )
  return given.astype(np.int64)


def _patch(colour: Any, label: str) -> Patch:
  return Patch(facecolor=colour, label=label)


def _stacks(
  distributions: Mapping[str, np.ndarray], colours: Sequence[Any], ylabel: str
) -> Figure:
  """A figure with one panel of stacked bars per title and counts [N, C]."""
  clients = max(map(len, distributions.values()))
  columns = 1 if clients > 400 else 3
  size = (min(8.6, 2.6 + 0.02 * clients), 2.4)
  if len(distributions) == 1:
    size = (min(8.6, 4.6 + 0.04 * clients), 3.4)
  options = {"sharex": len(set(map(len, distributions.values()))) == 1}
  figure, every = panels(len(distributions), columns, size, **options)
  for axes, (name, counts) in zip(every, distributions.items(), strict=True):
    _stack(axes, counts, colours)
    axes.set_title(textwrap.fill(name, int(14 * size[0])), fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(axis="y", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
  top = max(counts.sum(axis=1).max() for counts in distributions.values())
  every[0].set_ylim(0, 1.05 * max(top, 1))
  every[0].yaxis.set_major_locator(
    MaxNLocator(6, steps=(1, 2, 5), integer=True)
  )
  every[0].yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
  label_axes(every, "client", ylabel)
  return figure


def _stack(axes: Axes, counts: np.ndarray, colours: Sequence[Any]) -> None:
  """One bar per client, stacked by class; counts [N, C]."""
  clients = np.arange(len(counts))
  tops = np.cumsum(counts, axis=1)
  few = counts.size <= MOST_BARS
  for c, colour in enumerate(colours):
    bottom = tops[:, c] - counts[:, c]
    if few:
      axes.bar(clients, counts[:, c], bottom=bottom, color=colour)
    else:
      edges = np.arange(len(counts) + 1) - 0.5
      axes.stairs(tops[:, c], edges, baseline=bottom, fill=True, color=colour)
  margin = max(0.8, 0.01 * len(counts))
  axes.set_xlim(-margin, len(counts) - 1 + margin)
  axes.xaxis.set_major_locator(
    MaxNLocator(10, steps=(1, 2, 5, 10), integer=True)
  )
