"""Figures of the clients: their data and their devices.

A stacked bar shows a client's data: numbers of samples instead of shares, so
that clients of unequal size look unequal. A legend names up to ten classes; for
more there is a colour bar.
"""

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from splitjax.reports.figures.style import (
  MARKERS,
  legend,
  make_panels,
  name_clients,
  plain_look,
  shades,
)

FILES = "clients", "test_sets", "devices"
"""Names of the files that show training samples, test samples and devices.
Devices are drawn only where they decide the split depths."""

MOST_BARS = 600
"""The most segments drawn as bars with gaps. If there are more, bars touch."""

COLOURS = (
  "#44AA99 #332288 #999933 #882255 #CCCCCC "
  "#AA4499 #DDCC77 #117733 #88CCEE #CC6677"
).split()
"""Paul Tol's palette "muted" for the colour-blind, with a darker grey. Light
and dark colours alternate, so that neighbours differ in grey print too."""

PARTS = {
  "ID: classes that the client trains on": "#0072B2",
  "OOD: classes that it does not train on": "#E69F00",
}
"""Label -> colour: Okabe and Ito's blue and orange, one dark, one light."""


def of_classes(
  distributions: Mapping[str, np.ndarray], clients: Sequence[str] = ()
) -> Figure:
  """Draws training samples by client and class.

  `distributions` maps each panel's title to counts [N, C]. `clients` are the
  clients' names; () if they have none.
  """
  classes = next(iter(distributions.values())).shape[1]
  if classes <= len(COLOURS):
    colours: list[Any] = COLOURS[:classes]
    figure = _stacks(distributions, colours, "training samples", clients)
    _legend(figure, colours, map(str, range(classes)), title="class")
    return figure
  colours = list(colormaps["viridis"](np.linspace(0, 0.96, classes)))
  figure = _stacks(distributions, colours, "training samples", clients)
  scale = ScalarMappable(
    Normalize(-0.5, classes - 0.5), ListedColormap(colours)
  )
  bar = figure.colorbar(scale, ax=figure.axes, aspect=30, label="class")
  bar.set_ticks(range(0, classes, math.ceil(classes / 20)))
  bar.ax.tick_params(labelsize=8)
  return figure


def of_tests(
  inside: np.ndarray,
  outside: np.ndarray,
  names: Sequence[str],
  clients: Sequence[str] = (),
) -> Figure:
  """Draws every client's test sets, one panel per set.

  Args:
    inside: [R, N], numbers of samples of classes that the client trains on.
    outside: [R, N], numbers of samples of other classes.
    names: names of the R sets.
    clients: names of the N clients; () if they have none.
  """
  sets = {}
  for name, *parts in zip(names, inside, outside, strict=True):
    counts = np.stack(parts, axis=-1)
    share = counts[:, 1].sum() / max(counts.sum(), 1)
    mean = counts.sum(axis=1).mean()
    sets[f"{name}: mean {mean:,.0f} samples, {share:.0%} OOD"] = counts
  figure = _stacks(sets, list(PARTS.values()), "test samples", clients)
  _legend(figure, PARTS.values(), PARTS)
  return figure


def of_devices(depths: Sequence[int], devices: Mapping[str, Any]) -> Figure:
  """Draws every client's device as a dot, coloured by its split depth.

  Args:
    depths: [N], the clients' split depths.
    devices: memory, latency, compute, bandwidth -> [N], see
      `engine.resources.Profiles`.
  """
  figure, every = make_panels(
    2, 2, (3.1, 2.8), ("", ""), sharex=False, sharey=False
  )
  axes_names = (
    ("latency", "latency of a round trip [ms]", "memory", "memory [GB]"),
    ("compute", "compute [GFLOP/s]", "bandwidth", "bandwidth [Mbit/s]"),
  )
  used, counts = sorted(set(depths)), Counter(depths)
  styles: dict[str, Any] = {
    f"depth {d}: {counts[d]} client{'s' * (counts[d] > 1)}": {
      "color": colour, "marker": MARKERS[i], "markersize": 5,
      "linestyle": "none", "alpha": 0.8,
    }
    for i, (d, colour) in enumerate(zip(used, shades(len(used)), strict=True))
  }  # fmt: skip
  for axes, (x, x_name, y, y_name) in zip(every, axes_names, strict=True):
    for d, style in zip(used, styles.values(), strict=True):
      mine = [n for n, depth in enumerate(depths) if depth == d]
      axes.plot(*([devices[k][n] for n in mine] for k in (x, y)), **style)
    axes.set_xlabel(x_name)
    axes.set_ylabel(y_name)
    plain_look(axes)
  legend(figure, [Line2D([], [], label=k, **s) for k, s in styles.items()])
  return figure


def _legend(
  figure: Figure, colours: Iterable[Any], labels: Iterable[str], **options: Any
) -> None:
  pairs = zip(colours, labels, strict=True)
  legend(figure, [Patch(facecolor=c, label=x) for c, x in pairs], **options)


def _stacks(
  distributions: Mapping[str, np.ndarray],
  colours: Sequence[Any],
  ylabel: str,
  names: Sequence[str],
) -> Figure:
  """Draws each distribution [N, C] in a panel, as a stacked bar per client."""
  clients = max(map(len, distributions.values()))
  columns = 1 if clients > 400 else 3
  size = (min(8.6, 2.6 + 0.02 * clients), 2.4)
  if len(distributions) == 1:
    size = (min(8.6, 4.6 + 0.04 * clients), 3.4)
  options = {"sharex": len(set(map(len, distributions.values()))) == 1}
  figure, every = make_panels(
    len(distributions), columns, size, ("client", ylabel), **options
  )
  for axes, (name, counts) in zip(every, distributions.items(), strict=True):
    _stack(axes, counts, colours)
    axes.set_title(textwrap.fill(name, int(14 * size[0])), fontsize=9)
    plain_look(axes)
    axes.grid(False, axis="x")
    name_clients(axes, "x", names)
  top = max(counts.sum(axis=1).max() for counts in distributions.values())
  every[0].set_ylim(0, 1.05 * max(top, 1))
  every[0].yaxis.set_major_locator(
    MaxNLocator(6, steps=(1, 2, 5), integer=True)
  )
  every[0].yaxis.set_major_formatter("{x:,.0f}")
  return figure


def _stack(axes: Axes, counts: np.ndarray, colours: Sequence[Any]) -> None:
  """Draws one bar per client, stacked by class; counts [N, C]."""
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
