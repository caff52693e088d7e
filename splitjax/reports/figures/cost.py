"""Figures of the cost of training: rounds, bytes, seconds, joules and power.

They correspond to SuperSFL's Figures 3 to 5. Seconds and joules are modelled on
the clients' devices, see `splitjax.evaluation.cost`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from splitjax.reports.figures.intervals import bars, title
from splitjax.reports.figures.panels import sideways, spread
from splitjax.reports.figures.style import (
  MARKERS,
  finish,
  leaf,
  log_if_wide,
  need,
  of_results,
  panels,
  row_styles,
  shades,
)
from splitjax.reports.records import at
from splitjax.reports.results import heading

AXES = {
  "round": ("round", 1.0),
  "bytes": ("MB on the wire", 1e-6),
  "seconds": ("modelled seconds", 1.0),
  "joules": ("modelled joules", 1.0),
}
"""Cost -> the name and the unit of its axis."""

PER_CLIENT = {
  "seconds": ("modelled seconds of a client", 1.0),
  "joules": ("modelled joules of a client", 1.0),
  "bytes": ("MB sent and received", 1e-6),
}
"""Cost of a client -> the name and the unit of its axis."""


def priced(results: dict[str, Any]) -> bool:
  """Checks if all learning curves have costs, and one has several rounds."""
  curves = results.get("learning", {}).values()
  several = any(len(curve["round"]) > 1 for curve in curves)
  return several and all(curve.get("cost") for curve in curves)


@of_results
def accuracy_over_cost(results: dict[str, Any]) -> Figure:
  """Draws accuracy on the first test set over four costs of training.

  These are rounds, bytes, seconds and joules. Accuracy and cost are means over
  seeds. The dotted line is eval.target.
  """
  name = results["sets"][0]
  curves, styles = results["learning"], row_styles(results["rows"])
  figure, every = panels(4, 4, (2.4, 2.6), ("", "accuracy [%]"), sharex=False)
  target = results["config"].get("eval", {}).get("target")
  for axes, (cost, (axis, unit)) in zip(every, AXES.items(), strict=True):
    ends = []
    for label, curve in curves.items():
      spent = curve["round"] if cost == "round" else curve["cost"][cost]
      at = unit * np.array(spent, float)
      accuracy = 100 * leaf(curve, "accuracy", name)[0]
      axes.plot(at, accuracy, markevery=max(1, len(at) // 6), **styles[label])
      ends.append(at[-1:])
    log_if_wide([axes], ends)
    if target is not None:
      axes.axhline(100 * target, color="black", linewidth=0.9, linestyle=":")
    axes.set_xlabel(axis)
  drawn = {label: styles[label] for label in curves}
  what = f"Accuracy ({heading(name)}) over what training costs"
  if target is not None:
    what += " (dotted: the target)"
  return finish(figure, every, drawn, title(what, "", results))


def over_bytes(cells: Sequence[tuple[str, dict[str, Any]]]) -> Figure:
  """Draws accuracy on the first test set over megabytes, for a grid's cells.

  `cells` are pairs of a name and results. Each row has a panel, each cell a
  colour. Accuracy and cost are means over seeds. The dotted line is
  eval.target.
  """
  first = cells[0][1]
  name, target = first["sets"][0], first["config"]["eval"]["target"]
  labels = list(dict.fromkeys(x for _, each in cells for x in each["learning"]))
  figure, every = panels(
    len(labels), 3, (3.2, 2.8), ("MB on the wire", "accuracy [%]")
  )
  styles: dict[str, dict[str, Any]] = {
    cell: {"color": colour, "marker": MARKERS[i % len(MARKERS)]}
    for i, ((cell, _), colour) in enumerate(
      zip(cells, shades(len(cells)), strict=True)
    )
  }
  ends = []
  for axes, label in zip(every, labels, strict=True):
    for cell, results in cells:
      curve = results["learning"].get(label)
      if curve is None:
        continue
      at = 1e-6 * np.array(curve["cost"]["bytes"], float)
      accuracy = 100 * leaf(curve, "accuracy", name)[0]
      often = max(1, len(at) // 5)
      axes.plot(at, accuracy, markevery=often, markersize=5, **styles[cell])
      ends += [at[:1], at[-1:]]
    axes.axhline(100 * target, color="black", linewidth=0.9, linestyle=":")
    axes.set_title(label, fontsize=10)
  log_if_wide(every, ends)
  what = f"Accuracy ({heading(name)}) over what was sent (dotted: the target)"
  runs = [results for _, results in cells]
  return finish(figure, every, styles, title(what, "", *runs))


FASTER = {"rounds": "rounds", "bytes": "megabytes", "seconds": "modelled time"}
"""Cost to the target -> its name in `speed_up`."""

POWER = {
  "watts_per_point": "modelled power per point [W/%]",
  "grams": "modelled CO₂ [g]",
}
"""Cost of a row -> the name of its axis in `power`."""


def raced(results: dict[str, Any]) -> list[dict[str, Any]]:
  """Returns rows that reached eval.target; [] unless the first and another."""
  rows = results["rows"]
  reached = [row for row in rows if row.get("to_target")]
  return reached if len(reached) > 1 and reached[0] is rows[0] else []


def powered(results: dict[str, Any]) -> list[str]:
  """Returns the keys of POWER for which all rows have a value."""
  costs = [row.get("cost") or {} for row in results["rows"]]
  return [k for k in POWER if all(c.get(k) is not None for c in costs)]


@of_results
def speed_up(results: dict[str, Any]) -> Figure:
  """Draws how much cheaper each row reaches eval.target (SuperSFL Figure 4).

  A bar is the first row's cost to the target divided by the row's, both means
  over seeds: above 1 the row needs less. Rows that missed it are left out.
  """
  rows = raced(results)
  need(
    rows, "speed_up", "several rows, the first too, that reached eval.target"
  )
  first = rows[0]["to_target"]
  table = {
    f"speed-up, {name}": [
      (first[cost] / row["to_target"][cost], None) for row in rows
    ]
    for cost, name in FASTER.items()
  }
  target = 100 * results["config"]["eval"]["target"]
  what = f"Cost of {rows[0]['label']} up to {target:g} % over that of each"
  return _bars(rows, table, title(what, "", results))


@of_results
def power(results: dict[str, Any]) -> Figure:
  """Draws power per point of accuracy, and CO2, of each row (Figure 5)."""
  known, rows = powered(results), results["rows"]
  need(known, "power", "rows with a modelled cost")
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
  labels, styles = [row["label"] for row in rows], row_styles(rows)
  figure, every = sideways(labels, len(table), 2.7)
  colours = [styles[label]["color"] for label in labels]
  for axes, (name, pairs) in zip(every, table.items(), strict=True):
    values = [value for value, _ in pairs]
    halves = np.array([half for _, half in pairs], float)
    wide = bars(np.array(values), halves, (0.0, np.inf))
    error = None if np.isnan(halves).all() else wide
    axes.barh(range(len(rows)), values, xerr=error, capsize=3, color=colours)
    axes.set_xlabel(name)
  return finish(figure, every, {}, text)


def spent(results: dict[str, Any]) -> list[dict[str, list[float]]]:
  """Returns the cost of each row's clients; [] if a row has none."""
  rows = results["rows"]
  each = [
    (row.get("pooled") or row["summary"].get("per_client", {})).get("cost")
    for row in rows
  ]
  return [one for one in each if one] if all(each) else []


@of_results
def cost_per_client(results: dict[str, Any]) -> Figure:
  """Draws the cost of each client in the training as a dot.

  Clients of several seeds are pooled. Clients that never took part are missing
  on a logarithmic axis.
  """
  rows, each = results["rows"], spent(results)
  styles = row_styles(rows)
  labels = [row["label"] for row in rows]
  figure, every = sideways(labels, len(PER_CLIENT), 2.9)
  for axes, (cost, (axis, unit)) in zip(every, PER_CLIENT.items(), strict=True):
    values = [unit * np.array(one[cost], float) for one in each]
    for place, (row, own) in enumerate(zip(rows, values, strict=True)):
      spread(axes, place, own, styles[row["label"]])
    axes.set_xlabel(axis)
    if not log_if_wide([axes], values):
      axes.set_xlim(left=0)
  what = "Cost of every client (box: quartiles, line: median, diamond: mean)"
  text = title(what, "clients", results, gated=False)
  return finish(figure, every, {}, text)
