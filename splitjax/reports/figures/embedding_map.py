"""A t-SNE map of server embeddings, by class, depth and client.

This is HARMONY's Figure 5. It shows the skew that `splitjax.evaluation.skew`
measures. Without skew, embeddings form one cluster for each class; with skew,
they form one for each class of each client. Distances on the map have no unit,
and empty space has no meaning.
"""

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from splitjax.reports.figures.style import MARKERS, shades, titled

MOST_NAMED = 20
"""The most groups that a legend lists; for more, it gives only their number."""


def draw_embedding_map(
  places: np.ndarray,
  classes: np.ndarray,
  clients: np.ndarray,
  depths: np.ndarray,
  *,
  title: str = "",
  silhouette: float | None = None,
  distance_ratio: float | None = None,
) -> Figure:
  """Draws the map in panels coloured by class, split depth and client.

  The panel of split depths is left out if all depths are equal. Embedding k has
  position places[k] [2] on the map, class classes[k], client clients[k] and
  split depth depths[k].
  `silhouette` is written over the first panel, `distance_ratio` over the last.
  """
  grouped = [("class", classes), ("split depth", depths), ("client", clients)]
  if len(np.unique(depths)) == 1:
    del grouped[1]
  figure = Figure(figsize=(4.4 * len(grouped), 5.2), layout="constrained")
  every = figure.subplots(1, len(grouped))
  for axes, (name, group) in zip(every, grouped, strict=True):
    _groups(axes, places, group, name)
    axes.set_title(f"by {name}", fontsize=10)
  every[0].set_title(f"by class\nsilhouette {_number(silhouette)}", fontsize=10)
  every[-1].set_title(
    "by client: distance within a class across clients\n"
    f"over that between classes: {_number(distance_ratio)}",
    fontsize=10,
  )
  every[0].set_ylabel("t-SNE, second dimension (no unit)")
  return titled(figure, title)


def _number(value: float | None) -> str:
  return "unknown" if value is None else f"{value:.2f}"


def _groups(
  axes: Axes, places: np.ndarray, group: np.ndarray, name: str
) -> None:
  """Draws points with colours and markers by group, and a legend."""
  numbers = np.unique(group)
  count = 10 if len(numbers) <= 10 else 20
  colours: Any = colormaps[f"tab{count}"](range(count))
  if name == "split depth":  # an ordered quantity, from dark to light
    colours = shades(len(numbers))
  look: Any = {"s": 18, "linewidths": 0.3, "edgecolors": "0.2", "alpha": 0.8}
  for i, number in enumerate(numbers):
    axes.scatter(
      *places[group == number].T,
      color=[colours[i % len(colours)]],
      marker=MARKERS[i % len(MARKERS)],
      label=str(number),
      **look,
    )
  axes.set(xticks=[], yticks=[], xlabel="t-SNE, first dimension (no unit)")
  named = len(numbers) <= MOST_NAMED
  axes.legend(
    handles=None if named else [],
    title=name if named else f"{len(numbers)} {name}s; colours repeat",
    loc="upper center",
    bbox_to_anchor=(0.5, -0.06),
    ncols=5 if count == 10 else 7,
    fontsize=9,
    frameon=False,
    handletextpad=0.1,
    columnspacing=1.0,
  )
