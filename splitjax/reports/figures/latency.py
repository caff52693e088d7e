"""Inference time over client power and over bandwidth (SplitGP Figure 3).

It compares a network cut between client and server with the whole network at
the client and at the server. The bounds of Propositions 2 and 3, where the cut
becomes slower than one of the others, are marked.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from splitjax.evaluation import latency
from splitjax.evaluation.latency import inference_times
from splitjax.reports.figures.style import finish
from splitjax.reports.results import RAISED

PLACES: dict[str, dict[str, Any]] = {
  "SplitGP: cut (eq. 30)": {"color": "#0072B2", "linewidth": 2.2},
  "whole at the client (eq. 28)": {"color": "#D55E00", "linestyle": "--"},
  "whole at the server (eq. 29)": {"color": "#000000", "linestyle": "-."},
}
"""Label -> how it is drawn."""

MARKS: dict[str, dict[str, Any]] = {
  "value of the setting": {"color": "0.5", "linewidth": 1.2},
  "bound of the proposition": {"color": "0.35", "linestyle": ":"},
}
POINTS = 200


def inference_time(
  sizes: latency.Sizes,
  rates: latency.Resources,
  offloaded: float,
  pixels: float,
  path: str | Path,
  *,
  title: str = "",
) -> Path:
  """Draws the three latencies over P_C and over R, each with the other fixed.

  Args:
    sizes: of one client.
    rates: the fixed values P_C, P_S and R.
    offloaded: beta.
    pixels: q.
    path: of the PNG file, returned.
    title: above both panels.
  """
  figure = Figure(figsize=(9.2, 4.4), layout="constrained")
  every = figure.subplots(1, 2, sharey=True)
  power = float(rates.client)

  def times(varied: Sequence[latency.Resources]) -> np.ndarray:
    each = [inference_times(sizes, r, offloaded, pixels) for r in varied]
    return np.array(each)

  # Over P_C, with the bound of Proposition 2.
  powers = power * np.geomspace(0.05, 100, POINTS)
  found = times([rates._replace(client=p) for p in powers])
  bound = float(latency.largest_power(sizes, rates, offloaded))
  _lines(every[0], powers, found, power, bound)
  every[0].set_xlabel("P_C, client power [parameters per unit of time]")
  every[0].set_title(
    f"R = {rates.bandwidth:g}; Proposition 2: {_at_most('P_C', bound)}",
    fontsize=10,
  )

  # Over R, with the bound of Proposition 3.
  bandwidths = rates.bandwidth * np.geomspace(1e-3, 10, POINTS)
  found = times([rates._replace(bandwidth=float(r)) for r in bandwidths])
  bound = float(latency.largest_bandwidth(sizes, rates, offloaded, pixels))
  _lines(every[1], bandwidths, found, rates.bandwidth, bound)
  every[1].set_xlabel("R, bandwidth [numbers per unit of time]")
  every[1].set_title(
    f"P_C = {power:g}; Proposition 3: {_at_most('R', bound)}", fontsize=10
  )
  every[0].set_ylabel("inference time of one sample\n[units of time]")
  title += f" (P_S={rates.server:g}, β={offloaded:g})"
  return finish(figure, every, {**PLACES, **MARKS}, title, path)


def _at_most(name: str, bound: float) -> str:
  """A bound for a title; infinite where the cut is always faster."""
  return f"{name} ≤ {bound:.3g}" if np.isfinite(bound) else f"any {name}"


def ten_to(value: float) -> str:
  """A power of ten as text: 1000.0 -> "10³"."""
  return "10" + str(round(np.log10(value))).translate(RAISED)


def _lines(
  axes: Axes, x: np.ndarray, found: np.ndarray, used: float, bound: float
) -> None:
  """Three lines on logarithmic axes, with the setting's value and the bound.

  Args:
    axes: to draw on.
    x: [P] the varied quantity.
    found: [P, 3] latencies.
    used: the value of the setting.
    bound: the value up to which the cut is faster.
  """
  for line, style in zip(found.T, PLACES.values(), strict=True):
    axes.plot(x, line, **style)
  axes.set_xscale("log")
  axes.set_yscale("log")
  for axis in (axes.xaxis, axes.yaxis):  # plain text, in the font of the rest
    axis.set_major_formatter(FuncFormatter(lambda x, _: ten_to(x)))
    axis.set_minor_formatter(NullFormatter())
  for value, style in zip((used, bound), MARKS.values(), strict=True):
    if x[0] <= value <= x[-1]:
      axes.axvline(value, zorder=1, **style)
