"""Inference time over client power and over bandwidth (SplitGP Figure 3).

Three places for a network: cut between client and server, whole at the client,
whole at the server. Where the cut is as fast as one of the others is what
Propositions 2 and 3 say; both are marked.
"""

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
  "SplitGP: cut (eq. 30)": {"color": "black", "linewidth": 2.2},
  "whole at the client (eq. 28)": {"color": "#D55E00", "linestyle": "--"},
  "whole at the server (eq. 29)": {"color": "#0072B2", "linestyle": "-."},
}
"""Label -> how it is drawn."""

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
  """Draws the three latencies over P_C and over R, the other one fixed.

  Args:
    sizes: of one client, [1] each.
    rates: what is fixed: P_C [1], P_S and R.
    offloaded: beta.
    pixels: q.
    path: of the PNG file, returned.
    title: above both.
  """
  figure = Figure(figsize=(9.2, 4.6), layout="constrained")
  panels = figure.subplots(1, 2, sharey=True)
  beta, power = np.array([offloaded]), float(rates.client[0])
  powers = power * np.geomspace(0.05, 100, POINTS)
  found = [
    inference_times(
      sizes, rates._replace(client=np.array([p])), offloaded, pixels
    )
    for p in powers
  ]
  bound = latency.largest_power(sizes, rates, beta)[0]
  _lines(panels[0], powers, np.array(found), power, bound, "P_C")
  panels[0].set_xlabel("P_C, client's power [parameters per unit of time]")
  panels[0].set_title(f"R={rates.bandwidth:g}", fontsize=10)
  bandwidths = rates.bandwidth * np.geomspace(1e-3, 10, POINTS)
  found = [
    inference_times(
      sizes, rates._replace(bandwidth=float(r)), offloaded, pixels
    )
    for r in bandwidths
  ]
  bound = latency.largest_bandwidth(sizes, rates, beta, pixels)[0]
  _lines(panels[1], bandwidths, np.array(found), rates.bandwidth, bound, "R")
  panels[1].set_xlabel("R, bandwidth [numbers per unit of time]")
  panels[1].set_title(f"P_C={power:g}", fontsize=10)
  panels[0].set_ylabel("inference time of one sample\n[units of time]")
  title += f" (P_S={rates.server:g}, β={offloaded:g})"
  return finish(figure, panels, PLACES, title, path)


def ten_to(value: float) -> str:
  """1000.0 -> "10³", of a power of ten."""
  return "10" + str(round(np.log10(value))).translate(RAISED)


def _lines(
  axes: Axes,
  x: np.ndarray,
  found: np.ndarray,
  used: float,
  bound: float,
  name: str,
) -> None:
  """Three lines on logarithmic axes, what is used and the bound marked.

  Args:
    axes: to draw on.
    x: [P] what varies.
    found: [P, 3] latencies.
    used: the value elsewhere.
    bound: up to which the cut is the faster one.
    name: of what varies.
  """
  for line, style in zip(found.T, PLACES.values(), strict=True):
    axes.plot(x, line, **style)
  axes.set_xscale("log")
  axes.set_yscale("log")
  for axis in (axes.xaxis, axes.yaxis):  # as text: mathtext wants other fonts
    axis.set_major_formatter(FuncFormatter(lambda x, _: ten_to(x)))
    axis.set_minor_formatter(NullFormatter())
  low, high = axes.get_ylim()
  axes.set_ylim(low / 1.6, high)
  number = 2 if name == "P_C" else 3
  marks = {f"given: {used:g}": used, f"Prop. {number}: {bound:.3g}": bound}
  for label, value in marks.items():
    if x[0] <= value <= x[-1]:
      axes.axvline(value, color="0.45", linestyle=":", linewidth=1.2)
      late = value > x[0] * (x[-1] / x[0]) ** 0.7
      axes.annotate(
        label,
        (value, 0.02),
        xycoords=("data", "axes fraction"),
        xytext=(-3 if late else 3, 0),
        textcoords="offset points",
        horizontalalignment="right" if late else "left",
        fontsize=8,
        color="0.25",
      )
