"""Maps: server embeddings, confusion matrices, and the clients' samples.

Titles and names may be a user's texts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure

from splitjax.reports.figures import forms

_MOST_NAMED = 20  # groups that a legend lists; of more it gives the number


def samples(
  panels: Mapping[str, np.ndarray],
  kinds: Sequence[str],
  *,
  title: str,
  ylabel: str,
  clients: Sequence[str],
) -> Figure | None:
  """Draws numbers of samples, as a bar for each client, stacked by kind.

  `panels` maps the title of a panel to [N, C] numbers of samples, of N clients
  and C kinds, such as classes: clients of unequal size look unequal.
  """
  colours: Any = forms.COLOURS[: len(kinds)]
  if len(kinds) > len(colours):
    colours = colormaps["viridis"](np.linspace(0, 0.96, len(kinds)))
  # One area for each kind, without gaps between clients: bars take minutes.
  edges = np.arange(len(clients) + 1) - 0.5

  def draw(axes: Axes, counts: np.ndarray) -> None:
    closed = np.vstack([counts, counts[-1:]])
    axes.stackplot(edges, closed.T, colors=colours, step="post", linewidth=0)
    axes.grid(visible=False, axis="x")
    axes.margins(x=0)
    forms.name_ticks(axes, "x", clients)

  width = (4.6 if len(panels) == 1 else 2.6) + 0.03 * len(clients)
  named: Any = {"title": title, "xlabel": "client", "ylabel": ylabel}
  figure: Any = forms.panels(panels, draw, (min(8.6, width), 2.7), **named)
  limits = Normalize(-0.5, len(kinds) - 0.5)
  key = ScalarMappable(limits, ListedColormap(colours))
  bar = figure.colorbar(key, ax=figure.axes, aspect=30)
  forms.name_ticks(bar.ax, "y", kinds)
  return figure


def confusion(matrices: np.ndarray, titles: Sequence[str]) -> Figure | None:
  """Draws confusion matrices, as after steps of a round (Hydra Figure 11).

  `matrices` [S, C, C] are shares of the samples of each true class, NaN for a
  class without samples; each has a panel.
  """
  keys = ["panel", "class", "predicted class"]
  names = [titles, *map(range, matrices.shape[1:])]
  index = pd.MultiIndex.from_product(names, names=keys)
  table = pd.DataFrame({"value": 100 * matrices.ravel(), "seed": 0}, index)
  options: Any = {"title": "Predicted classes of the samples of each class"}
  options |= {"key": "share of the class [%]"}
  return forms.heat(None, table.reset_index(), *keys[1:], **options)


def embeddings(
  positions: np.ndarray, groups: Mapping[str, np.ndarray], *, title: str
) -> Figure | None:
  """Draws a t-SNE map of server embeddings (HARMONY Figure 5).

  Without the skew that `splitjax.evaluation.skew` measures, embeddings form a
  cluster for each class; with it, for each class of each client. `positions`
  [K, 2] are on the map. `groups` maps the name of a panel, such as "class" or
  "client", to the group of each embedding [K], which colours it.
  """

  def draw(axes: Axes, name: str) -> None:
    members = np.unique(groups[name])
    shown = {str(member): forms.nth_look(n) for n, member in enumerate(members)}
    for member, look in zip(members, shown.values(), strict=True):
      look |= {"linestyle": "", "markeredgecolor": "0.2", "alpha": 0.8}
      axes.plot(*positions[groups[name] == member].T, **look)
    axes.set(xticks=[], yticks=[], xlabel="t-SNE, first dimension (no unit)")
    many = len(members) > _MOST_NAMED
    key = f"{len(members)} {name}s; colours repeat" if many else name
    where: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.06)}
    forms.legend(axes, {} if many else shown, title=key, ncols=5, **where)

  parts = {f"by {name}": name for name in groups}
  ylabel = "t-SNE, second dimension (no unit)"
  return forms.panels(parts, draw, (4.4, 4.3), title=title, ylabel=ylabel)
