"""A map of server embeddings, coloured by class and by whose they are.

HARMONY's Figure 5. What a map shows is what its two numbers say (`skew`): one
cluster per class, or one per class and client. Distances on a map of t-SNE
have no unit, and its empty spaces no meaning.
"""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from splitjax.reports.figures.client_data import COLOURS
from splitjax.reports.figures.style import DPI, MARKERS, shades


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
    places: [K, 2] float, where each embedding lies.
    classes: [K] int, its class.
    clients: [K] int, whose it is.
    depths: [K] int, the client's split depth.
    path: of the PNG file, returned.
    title: above them all.
    silhouette: written over the first panel.
    distance_ratio: written over the last.
  """
  several = len(np.unique(depths)) > 1
  count = 3 if several else 2
  figure = Figure(figsize=(4.4 * count, 5.2), layout="constrained")
  panels = figure.subplots(1, count)
  _groups(panels[0], places, classes, "class", COLOURS)
  panels[0].set_title(f"by class\nsilhouette {_said(silhouette)}", fontsize=10)
  if several:
    _groups(panels[1], places, depths, "split depth")
    panels[1].set_title("by split depth", fontsize=10)
  _groups(panels[-1], places, clients, "client")
  panels[-1].set_title(
    "by client: distance of one class across clients\n"
    f"over that of different classes: {_said(distance_ratio)}",
    fontsize=10,
  )
  panels[0].set_ylabel("t-SNE, second dimension (no unit)")
  letters = int(11 * 4.4 * count)
  figure.suptitle(textwrap.fill(title, letters), fontsize=11)
  figure.savefig(path, dpi=DPI)
  return Path(path)


def _said(number: float | None) -> str:
  return "unknown" if number is None else f"{number:.2f}"


def _groups(
  axes: Axes,
  places: np.ndarray,
  group: np.ndarray,
  name: str,
  colours: Sequence[Any] = (),
) -> None:
  """Points of up to ten groups by colour and shape, of more by colour.

  Args:
    axes: to draw on.
    places: [K, 2].
    group: [K] int, which each belongs to.
    name: of what they are grouped by.
    colours: of up to ten groups; shades from dark to light if left out.
  """
  found = np.unique(group)
  colours = colours or shades(len(found))
  look: dict[str, Any] = {
    "s": 18,
    "linewidths": 0.3,
    "edgecolors": "0.2",
    "alpha": 0.8,
  }
  axes.set_xlabel("t-SNE, first dimension (no unit)")
  axes.set_xticks([]), axes.set_yticks([])
  x, y = places.T
  if len(found) > len(MARKERS):
    points = axes.scatter(x, y, c=group, cmap="viridis", **look)
    below = axes.inset_axes((0.05, -0.15, 0.9, 0.035))
    bar = axes.figure.colorbar(
      points, cax=below, orientation="horizontal", label=name
    )
    bar.locator = MaxNLocator(8, integer=True)
    bar.update_ticks()
    return
  for i, each in enumerate(found):
    own = group == each
    axes.scatter(
      x[own],
      y[own],
      color=[colours[i]],
      marker=MARKERS[i],
      label=str(each),
      **look,
    )
  axes.legend(
    title=name,
    loc="upper center",
    bbox_to_anchor=(0.5, -0.06),
    ncols=5,
    fontsize=9,
    frameon=False,
    handletextpad=0.1,
  )
