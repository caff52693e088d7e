"""Figures of the clients' data and devices, drawn before the training.

A stacked bar shows a client's samples: numbers instead of shares, so that
clients of unequal size look unequal.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from splitjax.reports.figures import style

COLOURS = (
  "#44AA99 #332288 #999933 #882255 #CCCCCC"
  " #AA4499 #DDCC77 #117733 #88CCEE #CC6677"
).split()
"""Paul Tol's "muted": light and dark colours alternate, also in grey print."""

MOST_BARS = 600
"""The most segments drawn as bars with gaps; of more, bars touch."""

PARTS = {
  "ID: classes that the client trains on": "#0072B2",
  "OOD: classes that it does not train on": "#E69F00",
}


def training_samples(
  counts: np.ndarray,
  title: str,
  clients: Sequence[str] = (),
  classes: Sequence[str] = (),
) -> Figure:
  """Draws training samples by client and class.

  Args:
    counts: [N, C].
    title: a user's text.
    clients: names of the N clients; (): their numbers.
    classes: names of the C classes; (): their numbers.
  """
  count = counts.shape[1]
  names = list(classes) or list(map(str, range(count)))
  few = count <= len(COLOURS)
  colours: Any = COLOURS[:count]
  if not few:
    colours = colormaps["viridis"](np.linspace(0, 0.96, count))
  figure = _stacks({"": counts}, colours, "training samples", clients)
  if few:
    key = dict(zip(names, map(style.thick, colours), strict=True))
    style.legend(figure, key, title="class")
  else:
    scale = ScalarMappable(
      Normalize(-0.5, count - 0.5), ListedColormap(colours)
    )
    bar = figure.colorbar(scale, ax=figure.axes, aspect=30, label="class")
    step = math.ceil(count / 20)
    ticks = range(0, count, step)
    bar.set_ticks(ticks, labels=[style.plain(names[c], 18) for c in ticks])
    bar.ax.tick_params(labelsize=8)
  return style.titled(figure, title)


def test_samples(
  inside: np.ndarray,
  outside: np.ndarray,
  names: Sequence[str],
  title: str,
  clients: Sequence[str] = (),
) -> Figure:
  """Draws every client's test sets, one panel per set.

  Args:
    inside: [R, N], numbers of samples of classes that the client trains on.
    outside: [R, N], numbers of samples of other classes.
    names: names of the R sets.
    title: a user's text.
    clients: names of the N clients; (): their numbers.
  """
  sets = {}
  for name, known, other in zip(names, inside, outside, strict=True):
    share = other.sum() / max(known.sum() + other.sum(), 1)
    mean = (known + other).mean()
    text = f"{name}: mean {mean:,.0f} samples, {share:.0%} OOD"
    sets[text] = np.stack([known, other], axis=-1)
  figure = _stacks(sets, list(PARTS.values()), "test samples", clients)
  style.legend(figure, {k: style.thick(c) for k, c in PARTS.items()})
  return style.titled(figure, title)


def _stacks(
  panels: Mapping[str, np.ndarray],
  colours: Sequence[Any],
  ylabel: str,
  names: Sequence[str],
) -> Figure:
  """Draws numbers of samples [N, C] in panels, as a stacked bar per client."""
  clients = max(map(len, panels.values()))
  size = min(8.6, 2.6 + 0.02 * clients), 2.4
  if len(panels) == 1:
    size = min(8.6, 4.6 + 0.04 * clients), 3.2
  most = 1 if clients > 400 else 3
  figure, parts = style.panels(list(panels), size, ("client", ylabel), most)
  for axes, counts in zip(parts, panels.values(), strict=True):
    _stack(axes, counts, colours)
    axes.grid(visible=False, axis="x")
    style.name_ticks(axes, "x", list(names) or list(map(str, range(clients))))
  top = max(counts.sum(axis=1).max() for counts in panels.values())
  parts[0].set_ylim(0, 1.05 * max(top, 1))
  whole = MaxNLocator(6, steps=(1, 2, 5, 10), integer=True)
  parts[0].yaxis.set_major_locator(whole)
  parts[0].yaxis.set_major_formatter("{x:,.0f}")
  return figure


def _stack(axes: Axes, counts: np.ndarray, colours: Sequence[Any]) -> None:
  """Draws one bar per client, stacked by class; counts [N, C]."""
  clients, tops = np.arange(len(counts)), np.cumsum(counts, axis=1)
  edges = np.arange(len(counts) + 1) - 0.5
  for c, colour in enumerate(colours):
    base = tops[:, c] - counts[:, c]
    if counts.size <= MOST_BARS:
      axes.bar(clients, counts[:, c], bottom=base, color=colour)
    else:
      axes.stairs(tops[:, c], edges, baseline=base, fill=True, color=colour)
  margin = max(0.8, 0.01 * len(counts))
  axes.set_xlim(-margin, len(counts) - 1 + margin)
