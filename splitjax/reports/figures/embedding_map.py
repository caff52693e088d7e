"""A t-SNE map of server embeddings, by class, depth and client.

HARMONY's Figure 5. It shows what `splitjax.evaluation.skew` measures: one
cluster per class, or one per class and client. Distances on a t-SNE map have no
unit, and empty space has no meaning.
"""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from splitjax.reports.figures.style import MARKERS, save, shades

MOST_NAMED = 20
"""Groups with an entry in the legend; colours repeat beyond it."""


def draw(
  places: np.ndarray,
  classes: np.ndarray,
  clients: np.ndarray,
  depths: np.ndarray,
  path: str | Path,
  *,
  title: str = "",
  silhouette: float | None = None,
  distance_ratio: float | None = None,
) -> Path:
  """Draws the map by class, by split depth if there are several, by client.

  Args:
    places: [K, 2] float, position of each embedding.
    classes: [K] int, its class.
    clients: [K] int, its client.
    depths: [K] int, the client's split depth.
    path: of the PNG file, returned.
    title: above all panels.
    silhouette: written over the first panel.
    distance_ratio: written over the last.
  """
  several = len(np.unique(depths)) > 1
  count = 3 if several else 2
  figure = Figure(figsize=(4.4 * count, 5.2), layout="constrained")
  every = figure.subplots(1, count)
  _groups(every[0], places, classes, "class")
  every[0].set_title(f"by class\nsilhouette {_number(silhouette)}", fontsize=10)
  if several:
    _groups(every[1], places, depths, "split depth", ordered=True)
    every[1].set_title("by split depth", fontsize=10)
  _groups(every[-1], places, clients, "client")
  every[-1].set_title(
    "by client: distance within a class across clients\n"
    f"over that between classes: {_number(distance_ratio)}",
    fontsize=10,
  )
  every[0].set_ylabel("t-SNE, second dimension (no unit)")
  return save(figure, title, path)


def _number(value: float | None) -> str:
  return "unknown" if value is None else f"{value:.2f}"


def _groups(
  axes: Axes,
  places: np.ndarray,
  group: np.ndarray,
  name: str,
  *,
  ordered: bool = False,
) -> None:
  """Points by group: colour and marker, with a legend of up to 20 groups.

  Args:
    axes: to draw on.
    places: [K, 2].
    group: [K] int, the group of each point.
    name: of the grouping, title of the legend.
    ordered: groups are an ordered quantity, so colours go from dark to light.
  """
  numbers = np.unique(group)
  count = 10 if len(numbers) <= 10 else 20
  colours: Any = shades(len(numbers))
  if not ordered:
    colours = colormaps[f"tab{count}"](range(count))
  for i, number in enumerate(numbers):
    own = group == number
    x, y = places[own].T
    axes.scatter(
      x,
      y,
      color=[colours[i % len(colours)]],
      marker=MARKERS[i % len(MARKERS)],
      label=str(number),
      s=18,
      linewidths=0.3,
      edgecolors="0.2",
      alpha=0.8,
    )
  axes.set_xticks([])
  axes.set_yticks([])
  axes.set_xlabel("t-SNE, first dimension (no unit)")
  if len(numbers) > MOST_NAMED:
    axes.text(
      0.5,
      -0.1,
      f"{len(numbers)} {name}s; colours and markers repeat",
      transform=axes.transAxes,
      horizontalalignment="center",
      fontsize=9,
    )
    return
  axes.legend(
    title=name,
    loc="upper center",
    bbox_to_anchor=(0.5, -0.06),
    ncols=5 if len(numbers) <= 10 else 7,
    fontsize=9,
    frameon=False,
    handletextpad=0.1,
    columnspacing=1.0,
  )
