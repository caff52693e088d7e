"""Figures of a run: accuracy over ρ, against latency and over the rounds.

They correspond to SplitGP's Figures 4-6 and HARMONY's Figures 2 and 4.
Intervals are drawn for several seeds. `splitjax.reports.report` defines the
layout of results, which `splitjax.run` returns and `splitjax.report_again`
reads from a workdir. Each function returns a matplotlib figure:

  >>> import splitjax
  >>> results = splitjax.report_again("runs/first")
  >>> splitjax.figures.accuracy_over_rho(results).savefig("rho.pdf")
"""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from splitjax.reports import leakage
from splitjax.reports.figures import forgetting
from splitjax.reports.figures.cost import (
  accuracy_over_cost,
  cost_per_client,
  power,
  powered,
  priced,
  raced,
  speed_up,
  spent,
)
from splitjax.reports.figures.forgetting import (
  accuracy_gap,
  class_accuracy,
  order_accuracy,
  position_curves,
)
from splitjax.reports.figures.intervals import (
  band,
  bars,
  dodged,
  frame,
  seed_dots,
  title,
)
from splitjax.reports.figures.leakage import accuracy_over_leakage
from splitjax.reports.figures.panels import (
  accuracy_per_client,
  by_class,
  class_accuracy_per_client,
  effect_of_threshold,
)
from splitjax.reports.figures.style import (
  finish,
  leaf,
  log_if_wide,
  need,
  of_results,
  panels,
  round_ticks,
  row_styles,
  save,
)
from splitjax.reports.results import (
  ends,
  exponent,
  heading,
  ratios,
  rule,
  times_ten,
)

__all__ = [
  "accuracy_gap",
  "accuracy_latency",
  "accuracy_over_cost",
  "accuracy_over_leakage",
  "accuracy_over_rho",
  "accuracy_per_client",
  "class_accuracy",
  "class_accuracy_per_client",
  "cost_per_client",
  "effect_of_threshold",
  "learning_curves",
  "order_accuracy",
  "position_curves",
  "power",
  "speed_up",
]


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
  mixtures = len(ratios(results) or ()) > 1
  gated = any(row["summary"]["fixed"] for row in results["rows"])
  wanted = {
    accuracy_over_rho: mixtures,
    accuracy_latency: True,
    effect_of_threshold: mixtures and gated,
    accuracy_per_client: True,
    class_accuracy_per_client: by_class(results),
    learning_curves: bool(results.get("learning")),
    accuracy_over_cost: priced(results),
    cost_per_client: bool(spent(results)),
    speed_up: bool(raced(results)),
    power: bool(powered(results)),
    accuracy_over_leakage: bool(leakage.rows(results)),
  }
  drawn = {draw.__name__: draw for draw, known in wanted.items() if known}
  drawn |= forgetting.drawn(results)
  return [
    save(draw(results), folder / f"{name}.png") for name, draw in drawn.items()
  ]


@of_results
def accuracy_over_rho(results: dict[str, Any]) -> Figure:
  """Draws accuracy at the config's thresholds over ρ, one line per row."""
  need(ratios(results), "accuracy_over_rho", "test sets that are mixtures")
  names = "ρ, OOD per ID test sample", "accuracy [%]"
  figure, (axes,) = panels(1, 1, (5.2, 3.1), names)
  rows = results["rows"]
  rhos, styles = ratios(results) or [], row_styles(rows)
  for i, row in enumerate(rows):
    values, halves = (100 * x for x in leaf(row, "summary", "accuracy"))
    style = styles[row["label"]]
    several = np.isfinite(halves).any()
    at = dodged(rhos, i, len(rows)) if several else np.array(rhos)
    axes.errorbar(at, values, bars(values, halves), capsize=3, **style)
    if row.get("by_seed"):
      seeds = 100 * np.array(row["by_seed"]["accuracy"], float)
      seed_dots(axes, dodged(rhos, i + 0.4, len(rows)), seeds, style)
  axes.set_xticks(rhos)
  every = [leaf(row, "summary", "accuracy") for row in rows]
  more = frame([axes], *(100 * np.array(x) for x in zip(*every, strict=True)))
  text = title("Accuracy over ρ", "dots", results, more=more)
  return finish(figure, [axes], styles, text)


@of_results
def accuracy_latency(results: dict[str, Any]) -> Figure:
  """Draws accuracy against total latency on first, middle and last test set.

  Each point of a line is one threshold for all clients, the star is the
  config's rule. A method with one exit is a single point.
  """
  names, rows = results["sets"], results["rows"]
  order = [int(r) for r in np.argsort(ratios(results) or range(len(names)))]
  shown = list(dict.fromkeys([order[0], order[len(order) // 2], order[-1]]))
  costs = [leaf(row, "summary", "latency")[0][shown] for row in rows]
  power = exponent(np.concatenate(costs).tolist())
  cost = f"total latency\n[{times_ten(power)} parameters/power]"
  figure, every = panels(len(shown), 3, (2.7, 2.7), (cost, "accuracy [%]"))
  steps = np.argsort(results["thresholds"])
  styles = row_styles(rows)
  # Stars that nearly coincide are nested, the smallest on top.
  apart = min(4, 14 / max(len(rows) - 1, 1))
  for axes, r in zip(every, shown, strict=True):
    for i, row in reversed(list(enumerate(rows))):
      style = {**styles[row["label"]], "markersize": 8 + apart * i}
      _trade_off(axes, row, r, steps, 10.0**-power, style)
    axes.set_title(heading(names[r]), fontsize=10)
  lines = [line for axes in every for line in axes.get_lines()]
  log_if_wide(every, [np.ravel(line.get_xdata()) for line in lines])
  found = [leaf(row, "summary", "accuracy") for row in rows]
  more = frame(every, *(100 * np.array(x) for x in zip(*found, strict=True)))
  what = "Accuracy against latency (line: fixed thresholds, star:"
  text = title(
    f"{what} {rule(results)})", "bars", results, more=more, gated=False
  )
  return finish(figure, every, styles, text)


@of_results
def learning_curves(results: dict[str, Any]) -> Figure:
  """Draws accuracy over the rounds on the first and the last test set.

  The metrics of eval.metrics are beside it, on the last set. If only one round
  was evaluated, points with error bars replace lines with bands.
  """
  curves = results["learning"]
  names = [results["sets"][r] for r in ends(results)]
  keys = dict.fromkeys(k for c in curves.values() for k in c.get("metrics", ()))
  paths: list[tuple[str, ...]] = [("accuracy", name) for name in names]
  paths += [("metrics", key, names[-1]) for key in keys]
  figure, every = panels(
    len(paths), 2, (3.7, 2.9), ("round", "accuracy [%]"), sharey=not keys
  )
  styles = row_styles(results["rows"])
  rounds = {n for curve in curves.values() for n in curve["round"]}
  for axes, (kind, *path) in zip(every, paths, strict=True):
    own = kind == "metrics"
    for i, (label, curve) in enumerate(curves.items()):
      scale, at = 1 if own else 100, curve["round"]
      values, halves = leaf(curve, kind, *path)
      if len(at) == 1:
        at = dodged(at, i, len(curves))
      band(axes, at, values, halves, styles[label], scale)
    axes.set_title(heading(path[-1]), fontsize=10)
    if keys:
      axes.set_ylabel(path[0].replace("_", " ") if own else "accuracy [%]")
    round_ticks(axes, rounds)
    if len(rounds) == 1:
      axes.set_xlim(min(rounds) - 0.15, max(rounds) + 0.15)
  found = [leaf(c, "accuracy", n) for c in curves.values() for n in names]
  wide = (100 * np.concatenate(x) for x in zip(*found, strict=True))
  more = frame(every[: len(names)], *wide)
  shown = "bars" if len(rounds) == 1 else "bands"
  what = f"Accuracy{' and metrics' if keys else ''} over the rounds"
  text = title(what, shown, results, more=more)
  return finish(figure, every, {k: styles[k] for k in curves}, text)


def _trade_off(
  axes: Axes,
  row: dict[str, Any],
  r: int,
  steps: np.ndarray,
  scale: float,
  style: dict[str, Any],
) -> None:
  """Draws a row on the r-th set: fixed thresholds as a line, rule as a star."""
  gated = row["summary"]["fixed"]
  point = {**style, "linestyle": "none", "zorder": 3}
  if not gated:
    point |= {"markersize": 5.5, "zorder": 3.5}
  else:
    cost, _ = leaf(row, "summary", "fixed", "latency")
    accuracy, _ = leaf(row, "summary", "fixed", "accuracy")
    thin = {**style, "markersize": 3.5, "linewidth": 1.2}
    axes.plot(scale * cost[steps, r], 100 * accuracy[steps, r], **thin)
    point |= {"marker": "*"}
    if style["markerfacecolor"] == style["color"]:  # stands out from its line
      point |= {"markeredgecolor": "black", "markeredgewidth": 0.4}
  cost, cost_half = (scale * x[[r]] for x in leaf(row, "summary", "latency"))
  value, half = (100 * x[[r]] for x in leaf(row, "summary", "accuracy"))
  beside = np.stack([np.minimum(cost_half, cost), cost_half])
  # All intervals lie below all points: a bar hides no star.
  thin = {"fmt": "none", "ecolor": style["color"], "elinewidth": 1.2}
  axes.errorbar(cost, value, bars(value, half), beside, zorder=2.5, **thin)
  axes.plot(cost, value, **point)
