"""Results as figures: accuracy over rho, against latency, over the rounds.

Intervals are drawn where the results have them, that is, over several seeds.
`report` says how results are laid out. The figures answer to SplitGP's Figures
4-6 and HARMONY's 2 and 4.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import (
  FuncFormatter,
  LogLocator,
  MaxNLocator,
  NullLocator,
)

from splitjax.reports.figures import forgetting
from splitjax.reports.figures.panels import (
  accuracy_per_client,
  effect_of_threshold,
)
from splitjax.reports.figures.style import (
  bars,
  dodged,
  finish,
  judged,
  leaf,
  row_styles,
)
from splitjax.reports.results import (
  ends,
  exponent,
  heading,
  ratios,
  rule,
  times_ten,
)


def draw_all(results: dict[str, Any], workdir: str | Path) -> list[Path]:
  """Draws every figure that the results have the numbers for.

  Args:
    results: of one run or of several seeds.
    workdir: where the PNG files go, made if it is not there.

  Returns:
    The files, as `report.write` takes them.
  """
  folder = Path(workdir)
  folder.mkdir(parents=True, exist_ok=True)
  drawn = [accuracy_latency(results, folder / "accuracy_latency.png")]
  if len(ratios(results) or ()) > 1:
    path = folder / "accuracy_over_rho.png"
    drawn.insert(0, accuracy_over_rho(results, path))
    if any(row["summary"]["fixed"] for row in results["rows"]):
      path = folder / "effect_of_threshold.png"
      drawn.append(effect_of_threshold(results, path))
  path = folder / "accuracy_per_client.png"
  drawn.append(accuracy_per_client(results, path))
  if results.get("learning"):
    path = folder / "learning_curves.png"
    drawn.append(learning_curves(results, path))
  return drawn + forgetting.draw(results, folder)


def accuracy_over_rho(results: dict[str, Any], path: str | Path) -> Path:
  """Accuracy at the config's thresholds over rho, one line per row."""
  figure = Figure(figsize=(6.4, 4.6), layout="constrained")
  axes = figure.add_subplot()
  rhos, styles = ratios(results) or [], row_styles(results)
  rows = results["rows"]
  for i, row in enumerate(rows):
    values, halves = (100 * x for x in leaf(row, "summary", "accuracy"))
    style = styles[row["label"]]
    several = np.isfinite(halves).any()
    at = dodged(rhos, i, len(rows)) if several else rhos
    axes.errorbar(at, values, bars(values, halves), capsize=3, **style)
  axes.set_xticks(rhos)
  axes.set_xlabel("ρ, out-of-distribution to in-distribution test samples")
  axes.set_ylabel("accuracy [%]")
  title = f"Accuracy over ρ{judged(results)}"
  return finish(figure, [axes], styles, title, path)


def accuracy_latency(results: dict[str, Any], path: str | Path) -> Path:
  """Accuracy against total latency on the first, middle and last test set.

  A line joins what fixed thresholds give, the same for all clients; a star is
  the config's rule. A method that has one exit is one point.
  """
  names, rows = results["sets"], results["rows"]
  order = [int(r) for r in np.argsort(ratios(results) or range(len(names)))]
  shown = list(dict.fromkeys([order[0], order[len(order) // 2], order[-1]]))
  size = (1.3 + 2.7 * len(shown), 4.7)
  figure = Figure(figsize=size, layout="constrained")
  panels = figure.subplots(
    1, len(shown), sharex=True, sharey=True, squeeze=False
  )[0]
  costs = [leaf(row, "summary", "latency")[0][shown] for row in rows]
  power = exponent(np.concatenate(costs).tolist())
  steps = np.argsort(results["thresholds"])
  styles = row_styles(results)
  for axes, r in zip(panels, shown, strict=True):
    for row in rows:
      _trade_off(axes, row, r, steps, 10.0**-power, styles[row["label"]])
    axes.set_title(heading(names[r]), fontsize=10)
    axes.set_xlabel(f"total latency\n[{times_ten(power)} parameters/power]")
  panels[0].set_ylabel("accuracy [%]")
  _scale(panels)
  star = f"star: {rule(results)}"
  title = f"Accuracy against latency (line: fixed thresholds, {star})"
  return finish(figure, panels, styles, title, path)


def learning_curves(results: dict[str, Any], path: str | Path) -> Path:
  """Accuracy over the rounds on the first and the last test set.

  Of a single evaluated round there are points with bars, no lines with bands.
  """
  names = [results["sets"][r] for r in ends(results)]
  size = (1.4 + 3.7 * len(names), 4.4)
  figure = Figure(figsize=size, layout="constrained")
  panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
  styles = row_styles(results)
  for axes, name in zip(panels, names, strict=True):
    curves = results["learning"]
    for i, (label, curve) in enumerate(curves.items()):
      accuracy = leaf(curve, "accuracy", name)
      at = curve["round"]
      if len(at) == 1:
        at = dodged(at, i, len(curves))
      _curve(axes, at, *accuracy, styles[label])
    rounds = {n for curve in curves.values() for n in curve["round"]}
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(rounds) == 1:
      axes.set_xticks(list(rounds))
      axes.set_xlim(min(rounds) - 0.15, max(rounds) + 0.15)
    axes.set_title(heading(name), fontsize=10)
    axes.set_xlabel("round")
  panels[0].set_ylabel("accuracy [%]")
  drawn = {label: styles[label] for label in results["learning"]}
  title = f"Accuracy over the rounds{judged(results)}"
  return finish(figure, panels, drawn, title, path)


def _curve(
  axes: Axes,
  rounds: Sequence[float],
  shares: np.ndarray,
  halves: np.ndarray,
  style: dict[str, Any],
) -> None:
  """One learning curve with its interval, as a band or, of one round, a bar."""
  values = 100 * shares
  below, above = bars(values, 100 * halves)
  if len(rounds) == 1:
    axes.errorbar(rounds, values, np.stack([below, above]), capsize=3, **style)
    return
  every = max(1, len(values) // 8)  # markers for print, not a caterpillar
  axes.plot(rounds, values, markevery=every, **style)
  look = {"color": style["color"], "alpha": 0.15, "linewidth": 0}
  axes.fill_between(rounds, values - below, values + above, **look)


def _trade_off(
  axes: Axes,
  row: dict[str, Any],
  r: int,
  steps: np.ndarray,
  scale: float,
  style: dict[str, Any],
) -> None:
  """One row on the r-th set: its sweep as a line, its rule as a star."""
  best = {**style, "linestyle": "none", "zorder": 3}
  if row["summary"]["fixed"]:
    cost, _ = leaf(row, "summary", "fixed", "latency")
    accuracy, _ = leaf(row, "summary", "fixed", "accuracy")
    thin = {**style, "markersize": 3.5, "linewidth": 1.2}
    axes.plot(scale * cost[steps, r], 100 * accuracy[steps, r], **thin)
    best |= {"marker": "*", "markersize": 12}
    if style["markerfacecolor"] == style["color"]:  # a rim against its line
      best |= {"markeredgecolor": "black", "markeredgewidth": 0.7}
  cost, cost_half = (scale * x[[r]] for x in leaf(row, "summary", "latency"))
  value, half = (100 * x[[r]] for x in leaf(row, "summary", "accuracy"))
  beside = np.stack([np.minimum(cost_half, cost), cost_half])
  axes.errorbar(cost, value, bars(value, half), beside, **best)


def _scale(panels: Sequence[Axes]) -> None:
  """A logarithmic x axis where the values spread over more than a decade."""
  lines = [line for axes in panels for line in axes.get_lines()]
  values = np.concatenate([np.ravel(line.get_xdata()) for line in lines])
  values = values[values > 0]
  if values.size and values.max() > 10 * values.min():
    for axes in panels:
      axes.set_xscale("log")
      axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
      axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
      axes.xaxis.set_minor_locator(NullLocator())
