"""Figures with one panel or line per row.

They show how accuracy depends on the entropy threshold (SplitGP Figure 6(b)),
how it differs between clients, which a mean hides, and how it differs between
their classes (PGFedSplit Figure 4).
"""

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from splitjax.reports.figures import style
from splitjax.reports.figures.intervals import title
from splitjax.reports.results import ends, gated, heading, ratios, rule

MOST_LINES = 6
"""The most thresholds in a panel; longer grids are thinned out evenly."""

MOST_COLUMNS = 4


@style.of_results
def effect_of_threshold(results: dict[str, Any]) -> Figure:
  """Draws accuracy over ρ: a line per threshold, a panel per two-exit row.

  Each threshold is used by all clients. The dashed line is the oracle, with one
  threshold per client; the dotted line is the config's rule, if that is not the
  oracle. Only means are drawn: so many intervals would hide one another.
  """
  rows = gated(results)
  known = ratios(results) and rows
  style.need(
    known, "effect_of_threshold", "mixtures and a method with two exits"
  )
  names = "ρ, OOD per ID test sample", "accuracy [%]"
  figure, every = style.make_panels(len(rows), MOST_COLUMNS, (2.5, 2.4), names)
  rhos = np.array(ratios(results))
  left_to_right = np.argsort(rhos)
  chosen, styles = _thresholds(results["thresholds"])
  rules = _rules(results, rows)
  styles |= {label: look for label, (look, _) in rules.items()}
  for axes, row in zip(every, rows, strict=True):
    fixed, _ = style.leaf(row, "summary", "fixed", "accuracy")
    others = [style.leaf(row, *path)[0] for _, path in rules.values()]
    values = [*fixed[chosen], *others]
    for line, look in zip(values, styles.values(), strict=True):
      axes.plot(rhos[left_to_right], 100 * line[left_to_right], **look)
    axes.set_title(textwrap.fill(row["label"], 28), fontsize=10)
    axes.set_xticks(rhos)
  what = "Accuracy over ρ at one entropy threshold for all clients"
  text = title(what, "", results, gated=False)
  return style.finish(figure, every, styles, text)


def _thresholds(
  grid: list[float],
) -> tuple[list[int], dict[str, dict[str, Any]]]:
  """Returns the indices of the drawn thresholds, and label -> style."""
  count = min(len(grid), MOST_LINES)
  places = np.linspace(0, len(grid) - 1, count).round().astype(int)
  chosen = np.argsort(grid)[places].tolist()
  styles: dict[str, dict[str, Any]] = {}
  for i, (e, colour) in enumerate(
    zip(chosen, style.shades(count), strict=True)
  ):
    name = f"{grid[e]:.3g} nats" if grid[e] else "0: always the server"
    look = {"color": colour, "marker": style.MARKERS[i], "markersize": 4.5}
    styles[name] = {**look, "linewidth": 1.3}
  return chosen, styles


def _rules(
  results: dict[str, Any], rows: list[dict[str, Any]]
) -> dict[str, tuple[dict[str, Any], tuple[str, ...]]]:
  """Returns how to draw the oracle and the config's rule.

  Maps a rule's label to the style of its line and to the path of its accuracy
  in a row.
  """
  name, own = rule(results), ("summary", "accuracy")
  look = {"color": "black", "linewidth": 1.6, "zorder": 3}
  dashed = {**look, "linestyle": (0, (4, 2))}
  if name == "oracle":
    return {"oracle": (dashed, own)}
  found = {}
  if all(row["summary"].get("rules") for row in rows):
    found["oracle"] = dashed, ("summary", "rules", "oracle", "accuracy")
  mine = {**look, "linestyle": ":"}
  return {**found, f"{name} (the config's rule)": (mine, own)}


@style.of_results
def accuracy_per_client(results: dict[str, Any]) -> Figure:
  """Draws each client's accuracy as a dot, on the first and last test set.

  Thresholds are those of the config's rule. Clients of all seeds are pooled.
  """
  rows, shown = results["rows"], ends(results)
  columns = [[100 * of_clients(row, r) for row in rows] for r in shown]
  figure, every = spreads(rows, columns, 3.2, sharex=True)
  for axes, r in zip(every, shown, strict=True):
    axes.set_title(heading(results["sets"][r]), fontsize=10)
    axes.set_xlabel("accuracy of a client [%]")
  what = (
    "Accuracy of every client (box: quartiles, line: median, diamond: mean)"
  )
  return style.finish(figure, every, {}, title(what, "clients", results))


@style.of_results
def class_accuracy_per_client(results: dict[str, Any]) -> Figure:
  """Draws every client's accuracy by class, and the classes it trained on.

  Results must have one seed and a test set that all clients share. Each row of
  the results has a panel, a heat map with a line per client and a column per
  class.
  """
  style.need(
    by_class(results),
    "class_accuracy_per_client",
    "one seed, and a test set that all clients share",
  )
  rows = [row["summary"]["per_client"] for row in results["rows"]]
  counts = np.array(rows[0]["training_samples"], float)
  share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
  tables = {"share of the client's training samples": share} | {
    row["label"]: own["class_accuracy"]
    for row, own in zip(results["rows"], rows, strict=True)
  }
  names = "class", "client"
  figure, every = style.make_panels(
    len(tables), MOST_COLUMNS, (2.6, 2.8), names
  )
  label, shown = "accuracy, or share of samples [%]", tables.items()
  heat_maps(figure, every, shown, label, missing="white", aspect="auto")
  for axes in every:
    style.name_clients(axes, "y", results.get("names", ()))
  what = "Accuracy of every client by class"
  return style.titled(figure, title(what, "clients", results))


def by_class(results: dict[str, Any]) -> bool:
  """Checks if the results have accuracies by client and class."""
  return all(
    "class_accuracy" in row["summary"].get("per_client", {})
    for row in results["rows"]
  )


def of_clients(row: dict[str, Any], r: int) -> np.ndarray:
  """Returns the accuracies [..] of all clients with samples in the r-th set."""
  held = row["pooled"] if "pooled" in row else row["summary"]["per_client"]
  return np.array([x for x in held["accuracy"][r] if x is not None], float)


def sideways(
  labels: Sequence[str], count: int, width: float, **options: Any
) -> tuple[Figure, list[Axes]]:
  """Makes `count` panels of `width` inches side by side.

  Their common y axis has a place for each of `labels`.
  """
  longest, lines = max(map(len, labels)), len(labels)
  size = 1.2 + 0.08 * longest + width * count, 1.4 + 0.4 * lines
  figure = Figure(figsize=size, layout="constrained")
  every = figure.subplots(1, count, sharey=True, squeeze=False, **options)[0]
  every[0].set_yticks(range(lines), labels)
  every[0].set_ylim(lines - 0.5, -0.5)
  return figure, list(every)


def spreads(
  rows: Sequence[dict[str, Any]],
  columns: Sequence[Sequence[np.ndarray]],
  width: float,
  **options: Any,
) -> tuple[Figure, list[Axes]]:
  """Draws one dot per client in panels of `sideways`, each row at one height.

  Each of `columns` is drawn in a panel. It holds an array [..] for each row,
  the values of the row's clients.
  """
  labels, styles = [row["label"] for row in rows], style.row_styles(rows)
  figure, every = sideways(labels, len(columns), width, **options)
  for axes, column in zip(every, columns, strict=True):
    for place, (label, values) in enumerate(zip(labels, column, strict=True)):
      if len(values):
        _spread(axes, place, values, styles[label])
  return figure, every


def _spread(
  axes: Axes, place: int, values: np.ndarray, look: dict[str, Any]
) -> None:
  """Draws the dots of one row, with their quartiles and their mean."""
  # A fixed quasi-random offset keeps dots of equal values apart.
  beside = 0.3 * (2 * (np.arange(len(values)) * 0.618034 % 1) - 1)
  axes.plot(
    np.sort(values),
    place + beside,
    linestyle="none",
    marker=look["marker"],
    color=look["color"],
    markerfacecolor=look["markerfacecolor"],
    markersize=3.2,
    alpha=float(np.clip(30 / len(values), 0.15, 0.6)),
    markeredgewidth=0.6,
  )
  low, middle, high = np.percentile(values, [25, 50, 75])
  axes.barh(place, high - low, 0.66, low, fill=False, edgecolor="black")
  axes.vlines(middle, place - 0.33, place + 0.33, color="black", linewidth=2)
  white: Any = {"markerfacecolor": "white", "markeredgecolor": "black"}
  axes.plot(values.mean(), place, "D", markersize=4.5, zorder=4, **white)


def heat_map(axes: Axes, table: np.ndarray, missing: str, aspect: str) -> Any:
  """Draws a table of percentages as colours, NaN in the colour `missing`."""
  colours = colormaps["cividis"].with_extremes(bad=missing)
  look: Any = {"aspect": aspect, "interpolation": "nearest", "cmap": colours}
  return axes.imshow(table, vmin=0, vmax=100, **look)


def heat_maps(
  figure: Figure,
  every: Sequence[Axes],
  tables: Iterable[tuple[str, Any]],
  name: str,
  *,
  missing: str,
  aspect: str,
) -> None:
  """Draws a heat map of fractions in every panel, with row and column numbers.

  `tables` are pairs of a panel's title and its fractions, in [0, 1]. `name`
  labels the colour bar.
  """
  image: Any = None
  for axes, (head, table) in zip(every, tables, strict=True):
    shares = 100 * np.array(table, float)
    image = heat_map(axes, shares, missing, aspect)
    axes.set_title(textwrap.fill(head, 23), fontsize=10)
    axes.tick_params(labelsize=8)
    for axis in (axes.xaxis, axes.yaxis):
      axis.set_major_locator(MaxNLocator(10, integer=True))
  figure.colorbar(image, ax=every, shrink=0.9, label=name)
