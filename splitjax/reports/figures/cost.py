"""Figures of the cost of training: rounds, bytes, seconds, joules and power.

They correspond to SuperSFL's Figures 3 to 5. Seconds and joules are modelled on
the clients' devices, see `splitjax.evaluation.cost`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from splitjax.reports.figures import panels, style
from splitjax.reports.figures.intervals import bars, title
from splitjax.reports.records import at
from splitjax.reports.results import heading

AXES = {
  "round": ("round", 1.0),
  "bytes": ("MB on the wire", 1e-6),
  "seconds": ("modelled seconds", 1.0),
  "joules": ("modelled joules", 1.0),
}
"""Cost -> the name of its axis, and the factor that converts to its unit."""

PER_CLIENT = {
  "seconds": ("modelled seconds of a client", 1.0),
  "joules": ("modelled joules of a client", 1.0),
  "bytes": ("MB sent and received", 1e-6),
}
"""Cost of a client -> the name of its axis, and the factor, as in AXES."""

FASTER = {"rounds": "rounds", "bytes": "megabytes", "seconds": "modelled time"}
"""Cost to the target -> its name in `speed_up`."""

POWER = {
  "watts_per_point": "modelled power per point [W/%]",
  "grams": "modelled CO₂ [g]",
}
"""Cost of a row -> the name of its axis in `power`."""


def priced(results: dict[str, Any]) -> bool:
  """Checks if all learning curves have costs and some have several rounds."""
  curves = results.get("learning", {}).values()
  several = any(len(curve["round"]) > 1 for curve in curves)
  return several and all(curve.get("cost") for curve in curves)


@style.of_results
def accuracy_over_cost(results: dict[str, Any]) -> Figure:
  """Draws accuracy on the first test set over rounds, bytes, seconds, joules.

  Accuracy and cost are means over seeds; dots are the seeds' last accuracies.
  The dotted line is eval.target.
  """
  curves, styles = results["learning"], style.row_styles(results["rows"])
  names = "", "accuracy [%]"
  figure, every = style.make_panels(4, 4, (2.4, 2.6), names, sharex=False)
  for axes, (cost, (axis, _)) in zip(every, AXES.items(), strict=True):
    drawn = [
      _curve(axes, results, label, cost, 6, **styles[label]) for label in curves
    ]
    style.log_if_wide([axes], [spent[-1:] for spent in drawn])
    axes.set_xlabel(axis)
  dotted = _targets(every, results)
  what = f"Accuracy ({heading(results['sets'][0])}) over what training costs"
  text = title(what + dotted, "", results, more=_dots(results))
  return style.finish(figure, every, {x: styles[x] for x in curves}, text)


def over_bytes(cells: Sequence[tuple[str, dict[str, Any]]]) -> Figure:
  """Draws accuracy on the first test set over bytes, for a grid's cells.

  `cells` are pairs of a name and results. Each row has a panel, each cell a
  colour. Accuracy and bytes are means over seeds; dots are the seeds' last
  accuracies. The dotted line is eval.target.
  """
  runs = [results for _, results in cells]
  labels = list(dict.fromkeys(x for each in runs for x in each["learning"]))
  names = AXES["bytes"][0], "accuracy [%]"
  figure, every = style.make_panels(len(labels), 3, (3.2, 2.8), names)
  colours = zip(cells, style.shades(len(cells)), strict=True)
  styles: dict[str, dict[str, Any]] = {
    cell: {"color": colour, "marker": style.MARKERS[i % len(style.MARKERS)]}
    for i, ((cell, _), colour) in enumerate(colours)
  }
  ends = []
  for axes, label in zip(every, labels, strict=True):
    for cell, results in cells:
      if label in results["learning"]:
        look = {"markersize": 5, **styles[cell]}
        spent = _curve(axes, results, label, "bytes", 5, **look)
        ends += [spent[:1], spent[-1:]]
    axes.set_title(label, fontsize=10)
  dotted = _targets(every, runs[0])
  style.log_if_wide(every, ends)
  what = f"Accuracy ({heading(runs[0]['sets'][0])}) over {AXES['bytes'][0]}"
  text = title(what + dotted, "", *runs, more=_dots(*runs))
  return style.finish(figure, every, styles, text)


def _dots(*runs: dict[str, Any]) -> str:
  """Says in words what the dots of `_curve` are; returns "" without dots."""
  rows = (row for results in runs for row in results["rows"])
  return (
    "dots: seeds, at the mean cost"
    if any(row.get("by_seed") for row in rows)
    else ""
  )


def _curve(
  axes: Axes,
  results: dict[str, Any],
  label: str,
  cost: str,
  points: int,
  **look: Any,
) -> np.ndarray:
  """Draws a row's accuracy over a cost; returns the costs [evaluated rounds].

  The means over seeds are drawn as a line with about `points` markers, and the
  last accuracy of each seed as a dot at the end of the line.
  """
  curve = results["learning"][label]
  spent = curve["round"] if cost == "round" else curve["cost"][cost]
  spent = AXES[cost][1] * np.array(spent, float)
  shares, _ = style.leaf(curve, "accuracy", results["sets"][0])
  often = max(1, len(spent) // points)
  axes.plot(spent, 100 * shares, markevery=often, **look)
  row = next(each for each in results["rows"] if each["label"] == label)
  seeds = [each[0] for each in row.get("by_seed", {}).get("accuracy", ())]
  ends, dots = np.full(len(seeds), spent[-1]), 100 * np.array(seeds, float)
  pale: Any = {"color": look["color"], "alpha": 0.45, "linewidths": 0, "s": 11}
  axes.scatter(ends, dots, zorder=1.5, **pale)
  return spent


def _targets(every: Sequence[Axes], results: dict[str, Any]) -> str:
  """Draws eval.target, if any; returns words on it for the title, or ""."""
  target = results["config"].get("eval", {}).get("target")
  if target is None:
    return ""
  for axes in every:
    axes.axhline(100 * target, color="black", linewidth=0.9, linestyle=":")
  return " (dotted: the target)"


def raced(results: dict[str, Any]) -> list[dict[str, Any]]:
  """Returns the rows that reached eval.target.

  Returns [] unless the first row and at least one other row reached it.
  """
  rows = results["rows"]
  reached = [row for row in rows if row.get("to_target")]
  return reached if len(reached) > 1 and reached[0] is rows[0] else []


def powered(results: dict[str, Any]) -> list[str]:
  """Returns the keys of POWER for which all rows have a value."""
  costs = [row.get("cost") or {} for row in results["rows"]]
  return [k for k in POWER if all(c.get(k) is not None for c in costs)]


@style.of_results
def speed_up(results: dict[str, Any]) -> Figure:
  """Draws how much cheaper each row reaches eval.target (SuperSFL Figure 4).

  A bar is the first row's cost to the target divided by the row's own cost.
  Both are means over seeds. Above 1, the row costs less than the first. Rows
  that missed the target are left out. A row whose cost is zero, such as no
  bytes, has no bar.
  """
  rows = raced(results)
  wanted = "several rows, the first too, that reached eval.target"
  style.need(rows, "speed_up", wanted)
  first = rows[0]["to_target"]
  table = {
    f"speed-up, {name}": [
      (first[cost] / (row["to_target"][cost] or np.nan), None) for row in rows
    ]
    for cost, name in FASTER.items()
  }
  target = 100 * results["config"]["eval"]["target"]
  what = f"Cost of {rows[0]['label']} up to {target:g} % over that of each"
  return _bars(rows, table, title(what, "", results))


@style.of_results
def power(results: dict[str, Any]) -> Figure:
  """Draws each row's CO2, and power per point of accuracy (SuperSFL Fig. 5)."""
  known, rows = powered(results), results["rows"]
  style.need(known, "power", "rows with a modelled cost")
  table = {
    POWER[cost]: [
      (row["cost"][cost], at(row.get("interval"), ("cost", cost)))
      for row in rows
    ]
    for cost in known
  }
  what = "Power and carbon dioxide of the training"
  return _bars(rows, table, title(what, "bars", results, gated=False))


def _bars(
  rows: Sequence[dict[str, Any]],
  table: Mapping[str, Sequence[tuple[float, float | None]]],
  text: str,
) -> Figure:
  """Draws a panel per name of `table`, with a bar and interval per row."""
  labels, styles = [row["label"] for row in rows], style.row_styles(rows)
  figure, every = panels.sideways(labels, len(table), 2.7)
  colours = [styles[label]["color"] for label in labels]
  for axes, (name, pairs) in zip(every, table.items(), strict=True):
    values, halves = np.array(pairs, float).T
    error = (
      None if np.isnan(halves).all() else bars(values, halves, (0, np.inf))
    )
    axes.barh(range(len(rows)), values, xerr=error, capsize=3, color=colours)
    axes.set_xlabel(name)
  return style.finish(figure, every, {}, text)


def spent(results: dict[str, Any]) -> list[dict[str, list[float]]]:
  """Returns a dict cost -> clients' values per row; [] if any row has none."""
  rows = results["rows"]
  each = [
    (row.get("pooled") or row["summary"].get("per_client", {})).get("cost")
    for row in rows
  ]
  return [one for one in each if one] if all(each) else []


@style.of_results
def cost_per_client(results: dict[str, Any]) -> Figure:
  """Draws what the training cost each client, one dot per client.

  Clients of several seeds are pooled. Clients that never took part cost nothing
  and are therefore missing on a logarithmic axis.
  """
  columns = [
    [unit * np.array(one[cost], float) for one in spent(results)]
    for cost, (_, unit) in PER_CLIENT.items()
  ]
  figure, every = panels.spreads(results["rows"], columns, 2.9)
  names = (axis for axis, _ in PER_CLIENT.values())
  for axes, name, values in zip(every, names, columns, strict=True):
    axes.set_xlabel(name)
    if not style.log_if_wide([axes], values):
      axes.set_xlim(left=0)
  what = "Cost of every client (box: quartiles, line: median, diamond: mean)"
  text = title(what, "clients", results, gated=False)
  return style.finish(figure, every, {}, text)
