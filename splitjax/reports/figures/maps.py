"""Maps of a trained method: confusion matrices and server embeddings."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from splitjax.reports.figures import curves, style

MOST_NAMED = 20
"""The most groups that a legend lists; of more it gives only the number."""


def confusion(
  matrices: np.ndarray, titles: Sequence[str], classes: Sequence[str] = ()
) -> Figure | None:
  """Draws confusion matrices, as after steps of a round (Hydra Figure 11).

  Args:
    matrices: [S, C, C], shares of the samples of each true class; NaN for a
      class without samples.
    titles: titles of the S panels.
    classes: names of the C classes; (): their numbers.
  """
  names = list(classes) or range(matrices.shape[-1])
  tables = {
    title: pd.DataFrame(100 * shares, index=names, columns=names)
    for title, shares in zip(titles, matrices, strict=True)
  }
  return curves.heat(
    None,
    tables,
    title="Predicted classes of the samples of each class",
    names=("predicted class", "class"),
    key="share of the class [%]",
  )


def embeddings(
  places: np.ndarray,
  groups: dict[str, np.ndarray],
  *,
  title: str,
  silhouette: float = np.nan,
  distance_ratio: float = np.nan,
) -> Figure:
  """Draws a t-SNE map of server embeddings (HARMONY Figure 5).

  It shows the skew that `splitjax.evaluation.skew` measures: without it,
  embeddings form a cluster for each class; with it, for each class of each
  client. Distances have no unit, and empty space has no meaning.

  Args:
    places: [K, 2], positions on the map.
    groups: name such as "class", "split depth", "client" -> [K], the group of
      each embedding. Each has a panel that is coloured by group.
    title: a user's text.
    silhouette: written over the first panel.
    distance_ratio: written over the last panel.
  """
  figure = Figure((4.4 * len(groups), 5.2), layout="constrained")
  parts = figure.subplots(1, len(groups), squeeze=False)[0]
  for axes, (name, group) in zip(parts, groups.items(), strict=True):
    _groups(axes, places, group, name)
    axes.set_title(f"by {name}", fontsize=10)
  apart = _number(distance_ratio)
  parts[0].set_title(f"by class\nsilhouette {_number(silhouette)}", size=10)
  parts[-1].set_title(
    "by client: distance within a class across clients\n"
    f"over that between classes: {apart}",
    size=10,
  )
  parts[0].set_ylabel("t-SNE, second dimension (no unit)")
  return style.titled(figure, title)


def _number(value: float) -> str:
  return "unknown" if np.isnan(value) else f"{value:.2f}"


def _groups(
  axes: Axes, places: np.ndarray, group: np.ndarray, name: str
) -> None:
  """Draws points with colours and markers by group, and a legend."""
  members = np.unique(group)
  count = 10 if len(members) <= 10 else 20
  colours: Any = colormaps[f"tab{count}"](range(count))
  if name == "split depth":  # an ordered quantity, from dark to light
    colours = colormaps["viridis"](np.linspace(0, 0.88, len(members)))
  edge: Any = {"s": 18, "linewidths": 0.3, "edgecolors": "0.2", "alpha": 0.8}
  for i, member in enumerate(members):
    marker = style.MARKERS[i % len(style.MARKERS)]
    colour = [colours[i % len(colours)]]
    edge |= {"c": colour, "marker": marker, "label": str(i)}
    axes.scatter(*places[group == member].T, **edge)
  axes.set(xticks=[], yticks=[], xlabel="t-SNE, first dimension (no unit)")
  few = len(members) <= MOST_NAMED
  drawn = axes.legend(
    handles=list(axes.collections) if few else [],
    title=name if few else f"{len(members)} {name}s; colours repeat",
    loc="upper center",
    bbox_to_anchor=(0.5, -0.06),
    ncols=5,
    fontsize=9,
    frameon=False,
    handletextpad=0.1,
    columnspacing=1.0,
  )
  for text, member in zip(drawn.get_texts(), members, strict=False):
    text.set_text(style.plain(str(member), 12))
