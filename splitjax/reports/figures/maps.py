"""Maps: server embeddings, confusion matrices, and the clients' samples."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure

from splitjax.reports.figures import curves

COLOURS = (
  "#44AA99 #332288 #999933 #882255 #CCCCCC"
  " #AA4499 #DDCC77 #117733 #88CCEE #CC6677"
).split()
"""Paul Tol's "muted": light and dark colours alternate, also in grey print."""

MOST_NAMED = 20
"""The most groups that a legend lists; of more it gives only the number."""


def samples(
  panels: Mapping[str, np.ndarray],
  kinds: Sequence[str],
  *,
  title: str,
  ylabel: str,
  clients: Sequence[str],
) -> Figure | None:
  """Draws numbers of samples, as a bar for each client, stacked by kind.

  Numbers instead of shares: clients of unequal size look unequal.

  Args:
    panels: title of a panel -> [N, C], numbers of samples.
    kinds: names of the C kinds, such as classes.
    title: a user's text.
    ylabel: the name of the y axis.
    clients: names of the N clients.
  """
  colours: Any = COLOURS[: len(kinds)]
  if len(kinds) > len(COLOURS):
    colours = colormaps["viridis"](np.linspace(0, 0.96, len(kinds)))
  # One outline for each kind, with gaps between clients: bars take minutes.
  edges = (np.arange(len(clients))[:, None] + [-0.4, 0.4]).ravel()

  def draw(axes: Axes, counts: np.ndarray) -> None:
    tops = np.cumsum(counts, axis=1)
    for top, height, colour in zip(tops.T, counts.T, colours, strict=True):
      base, outline = (np.repeat(x, 2) for x in (top - height, top))
      outline[1::2] = base[1::2]
      fill = {"fill": True, "color": colour}
      axes.stairs(outline[:-1], edges, baseline=base[:-1], **fill)
    axes.grid(visible=False, axis="x")
    axes.set_xlim(edges[0] - 0.4, edges[-1] + 0.4)
    axes.set_ylim(0)
    curves.name_ticks(axes, "x", clients)

  width = (4.6 if len(panels) == 1 else 2.6) + 0.03 * len(clients)
  named: Any = {"title": title, "xlabel": "client", "ylabel": ylabel}
  figure: Any = curves.panels(panels, draw, (min(8.6, width), 2.7), **named)
  limits = Normalize(-0.5, len(kinds) - 0.5)
  bar = figure.colorbar(
    ScalarMappable(limits, ListedColormap(colours)), ax=figure.axes, aspect=30
  )
  curves.name_ticks(bar.ax, "y", kinds)
  return figure


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
  keys = ["panel", "class", "predicted class"]
  index = pd.MultiIndex.from_product([titles, names, names], names=keys)
  shares = pd.Series(100 * matrices.ravel(), index, name="value")
  table = shares.reset_index().assign(seed=0)
  title = "Predicted classes of the samples of each class"
  key = "share of the class [%]"
  return curves.heat(
    None, table, "class", "predicted class", title=title, key=key
  )


def embeddings(
  positions: np.ndarray, groups: Mapping[str, np.ndarray], *, title: str
) -> Figure | None:
  """Draws a t-SNE map of server embeddings (HARMONY Figure 5).

  It shows the skew that `splitjax.evaluation.skew` measures: without it,
  embeddings form a cluster for each class; with it, for each class of each
  client. Distances have no unit, and empty space has no meaning.

  Args:
    positions: [K, 2], on the map.
    groups: name such as "class", "split depth", "client" -> [K], the group of
      each embedding. Each has a panel that is coloured by group.
    title: a user's text.
  """

  def draw(axes: Axes, name: str) -> None:
    members = np.unique(groups[name])
    shown = {str(member): curves.look(n) for n, member in enumerate(members)}
    for member, look in zip(members, shown.values(), strict=True):
      look |= {"linestyle": "", "markeredgecolor": "0.2", "alpha": 0.8}
      axes.plot(*positions[groups[name] == member].T, **look)
    axes.set(xticks=[], yticks=[], xlabel="t-SNE, first dimension (no unit)")
    named = len(members) <= MOST_NAMED
    curves.legend(
      axes,
      shown if named else {},
      title=name if named else f"{len(members)} {name}s; colours repeat",
      loc="upper center",
      bbox_to_anchor=(0.5, -0.06),
      ncols=5,
      columnspacing=1.0,
    )

  parts = {f"by {name}": name for name in groups}
  ylabel = "t-SNE, second dimension (no unit)"
  return curves.panels(parts, draw, (4.4, 4.3), title=title, ylabel=ylabel)
