"""Figures of a run: accuracy over ρ, against latency and over the rounds.

They correspond to SplitGP's Figures 4-6 and HARMONY's Figures 2 and 4.
Intervals are drawn for several seeds. `splitjax.reports.report` defines the
layout of results, which `splitjax.run` returns and `splitjax.report_again`
reads from a workdir. Each function returns a matplotlib figure:

  >>> import splitjax
  >>> results = splitjax.report_again("runs/first")
  >>> splitjax.figures.accuracy_over_rho(results).savefig("rho.pdf")
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from splitjax.reports import forgetting
from splitjax.reports.figures import cost, intervals, panels, style
from splitjax.reports.figures.cost import (
  accuracy_over_cost,
  cost_per_client,
  power,
  speed_up,
)
from splitjax.reports.figures.forgetting import (
  accuracy_gap,
  class_accuracy,
  order_accuracy,
  position_curves,
)
from splitjax.reports.figures.panels import (
  accuracy_per_client,
  class_accuracy_per_client,
  effect_of_threshold,
)
from splitjax.reports.figures.severity import accuracy_over_severity
from splitjax.reports.results import (
  ends,
  exponent,
  gated,
  heading,
  ratios,
  rule,
  severities,
  times_ten,
)


def draw_all(results: dict[str, Any], workdir: str | Path) -> list[Path]:
  """Draws every figure that the results have the numbers for.

  Args:
    results: the results of one run or of several seeds.
    workdir: the folder for the figures, made if it does not exist.

  Returns:
    The PNG files. Each has a PDF beside it.
  """
  folder = Path(workdir)
  folder.mkdir(parents=True, exist_ok=True)
  return [
    style.save(draw(results), folder / f"{name}.png")
    for name, draw in drawable(results).items()
  ]


def drawable(results: dict[str, Any]) -> dict[str, style.Draw]:
  """Maps file names to functions, for the figures that the results allow."""
  return {name: draw for name, draw in FILES.items() if KNOWN[draw](results)}


@style.of_results
def accuracy_over_rho(results: dict[str, Any]) -> Figure:
  """Draws accuracy over ρ, with the config's thresholds; each row is a line."""
  rhos, rows = ratios(results), results["rows"]
  style.need(rhos, "accuracy_over_rho", "test sets that are mixtures")
  names = "ρ, OOD per ID test sample", "accuracy [%]"
  figure, (axes,) = style.make_panels(1, 1, (5.2, 3.1), names)
  styles, place = style.row_styles(rows), np.array(rhos)
  values, halves = style.percent(rows, *ACCURACY)
  dots: list[float] = []
  for i, row in enumerate(rows):
    seeds = 100 * np.array(row.get("by_seed", {}).get("accuracy", []), float)
    line = intervals.Series(values[i], halves[i], seeds.T, styles[row["label"]])
    intervals.draw(axes, place, line, i, len(rows))
    dots += seeds.ravel().tolist()
  axes.set_xticks(place)
  more = intervals.frame([axes], values, halves, dots)
  text = intervals.title("Accuracy over ρ", "dots", results, more=more)
  return style.finish(figure, [axes], styles, text)


@style.of_results
def accuracy_latency(results: dict[str, Any]) -> Figure:
  """Draws accuracy against total latency on first, middle and last test set.

  A method with two exits has a line, whose points are thresholds common to all
  clients, and a star for the config's rule. A method with one exit is a point.
  """
  names, rows = results["sets"], results["rows"]
  order = [int(r) for r in np.argsort(ratios(results) or range(len(names)))]
  shown = list(dict.fromkeys([order[0], order[len(order) // 2], order[-1]]))
  costs = [style.leaf(row, "summary", "latency")[0][shown] for row in rows]
  power = exponent(np.concatenate(costs).tolist())
  labels = (
    f"total latency\n[{times_ten(power)} parameters/power]",
    "accuracy [%]",
  )
  figure, every = style.make_panels(len(shown), 3, (2.7, 2.7), labels)
  steps = np.argsort(results["thresholds"])
  styles = style.row_styles(rows)
  # Stars that nearly coincide are nested, the smallest on top.
  apart = min(4, 14 / max(len(rows) - 1, 1))
  for axes, r in zip(every, shown, strict=True):
    for i, row in reversed(list(enumerate(rows))):
      look = {**styles[row["label"]], "markersize": 8 + apart * i}
      _trade_off(axes, row, r, steps, 10.0**-power, look)
    axes.set_title(heading(names[r]), fontsize=10)
  lines = [line for axes in every for line in axes.get_lines()]
  style.log_if_wide(every, [np.ravel(line.get_xdata()) for line in lines])
  curves = [
    style.leaf(row, "summary", "fixed", "accuracy")[0][:, shown]
    for row in gated(results)
  ]
  points = [100 * share for curve in curves for share in np.ravel(curve)]
  values, halves = style.percent(rows, *ACCURACY)
  more = intervals.frame(every, values, halves, points)
  what = (
    f"Accuracy against latency (line: fixed thresholds, star: {rule(results)})"
  )
  text = intervals.title(what, "bars", results, more=more, gated=False)
  return style.finish(figure, every, styles, text)


@style.of_results
def learning_curves(results: dict[str, Any]) -> Figure:
  """Draws accuracy over the rounds on the first and the last test set.

  Further panels show the metrics of eval.metrics on the last set. If only one
  round was evaluated, points with error bars are drawn instead of lines with
  bands.
  """
  curves = results["learning"]
  names = [results["sets"][r] for r in ends(results)]
  keys = dict.fromkeys(k for c in curves.values() for k in c.get("metrics", ()))
  paths: list[tuple[str, ...]] = [("accuracy", name) for name in names]
  paths += [("metrics", key, names[-1]) for key in keys]
  figure, every = style.make_panels(
    len(paths), 2, (3.7, 2.9), ("round", "accuracy [%]"), sharey=not keys
  )
  styles = style.row_styles(results["rows"])
  rounds = {n for curve in curves.values() for n in curve["round"]}
  for axes, (kind, *path) in zip(every, paths, strict=True):
    own = kind == "metrics"
    for i, (label, curve) in enumerate(curves.items()):
      both, at = style.leaf(curve, kind, *path), curve["round"]
      if len(at) == 1:
        at = intervals.dodged(at, i, len(curves))
      intervals.band(axes, at, *both, styles[label], 1 if own else 100)
    axes.set_title(heading(path[-1]), fontsize=10)
    if keys:
      axes.set_ylabel(path[0].replace("_", " ") if own else "accuracy [%]")
    style.round_ticks(axes, rounds)
    if len(rounds) == 1:
      axes.set_xlim(min(rounds) - 0.15, max(rounds) + 0.15)
  found = [style.leaf(c, "accuracy", n) for c in curves.values() for n in names]
  wide = (100 * np.concatenate(x) for x in zip(*found, strict=True))
  more = intervals.frame(every[: len(names)], *wide)
  shown = "bars" if len(rounds) == 1 else "bands"
  what = f"Accuracy{' and metrics' if keys else ''} over the rounds"
  text = intervals.title(what, shown, results, more=more)
  return style.finish(figure, every, {k: styles[k] for k in curves}, text)


@style.of_results
def accuracy_spread(results: dict[str, Any]) -> Figure:
  """Draws how unequal clients are over the rounds, on the last test set.

  The panels show the mean accuracy of the worst tenth of the clients, and the
  standard deviation over clients.
  """
  known = {k: c for k, c in results["learning"].items() if "std" in c}
  style.need(known, "accuracy_spread", "accuracies of clients over rounds")
  last = results["sets"][ends(results)[-1]]
  names = "round", "accuracy of the worst tenth [%]"
  figure, every = style.make_panels(2, 2, (3.7, 2.9), names, sharey=False)
  styles = style.row_styles(results["rows"])
  rounds = {n for curve in known.values() for n in curve["round"]}
  for axes, path in zip(every, ("worst_tenth", "std"), strict=True):
    for i, (label, curve) in enumerate(known.items()):
      both, at = style.leaf(curve, path, last), curve["round"]
      if len(at) == 1:
        at = intervals.dodged(at, i, len(known))
      intervals.band(axes, at, *both, styles[label], 100)
    style.round_ticks(axes, rounds)
  every[1].set_ylabel("sd over clients [points]")
  shown = "bars" if len(rounds) == 1 else "bands"
  text = intervals.title(
    f"Spread over clients, {heading(last)}", shown, results
  )
  return style.finish(figure, every, {k: styles[k] for k in known}, text)


def _trade_off(
  axes: Axes,
  row: dict[str, Any],
  r: int,
  steps: np.ndarray,
  scale: float,
  look: dict[str, Any],
) -> None:
  """Draws a row on set `r`: fixed thresholds as a line, the rule as a star."""
  point = {**look, "linestyle": "none", "zorder": 3}
  if not row["summary"]["fixed"]:
    point |= {"markersize": 5.5, "zorder": 3.5}
  else:
    costs, shares = (
      style.leaf(row, "summary", "fixed", name)[0][steps, r]
      for name in ("latency", "accuracy")
    )
    thin = {**look, "markersize": 3.5, "linewidth": 1.2}
    axes.plot(scale * costs, 100 * shares, **thin)
    point |= {"marker": "*"}
    if look["markerfacecolor"] == look["color"]:  # stands out from its line
      point |= {"markeredgecolor": "black", "markeredgewidth": 0.4}
  cost, wide = (scale * x[[r]] for x in style.leaf(row, "summary", "latency"))
  value, half = (100 * x[[r]] for x in style.leaf(row, *ACCURACY))
  beside = np.stack([np.minimum(wide, cost), wide])
  # All intervals lie below all points: a bar hides no star.
  thin = {"fmt": "none", "ecolor": look["color"], "elinewidth": 1.2}
  high = intervals.bars(value, half)
  axes.errorbar(cost, value, high, beside, zorder=2.5, **thin)
  axes.plot(cost, value, **point)


def _mixed(results: dict[str, Any]) -> bool:
  return len(ratios(results) or ()) > 1


ACCURACY = "summary", "accuracy"
"""Path of a row's accuracies."""

KNOWN: dict[style.Draw, Callable[[dict[str, Any]], Any]] = {
  accuracy_over_rho: _mixed,
  accuracy_over_severity: severities,
  accuracy_latency: bool,
  effect_of_threshold: lambda x: _mixed(x) and gated(x),
  accuracy_per_client: bool,
  class_accuracy_per_client: panels.by_class,
  learning_curves: lambda results: results.get("learning"),
  accuracy_spread: lambda x: any(
    "std" in curve for curve in x.get("learning", {}).values()
  ),
  accuracy_over_cost: cost.priced,
  cost_per_client: cost.spent,
  speed_up: cost.raced,
  power: cost.powered,
  class_accuracy: lambda x: forgetting.shown(x) and x.get("learning"),
  order_accuracy: forgetting.shown,
  position_curves: lambda x: forgetting.shown(x) and forgetting.by_position(x),
  accuracy_gap: forgetting.shown,
}
"""Figure -> check that is true if results have the numbers for it."""

NAMES = {
  order_accuracy: "accuracy_by_order",
  position_curves: "accuracy_by_position",
}
"""Figure -> name of its file, if this is not the function's name."""

FILES = {NAMES.get(draw, draw.__name__): draw for draw in KNOWN}
"""Every figure by the name of its file."""

__all__ = [draw.__name__ for draw in KNOWN]
