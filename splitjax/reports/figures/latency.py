"""Inference time over client power and over bandwidth (SplitGP Figure 3).

It compares a network cut between client and server with the whole network at
the client or at the server. Marks show two bounds. Beyond them the cut network
is slower than the whole network at the client (Proposition 2) or at the server
(Proposition 3).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from splitjax.evaluation import latency
from splitjax.evaluation.latency import inference_times
from splitjax.evaluation.split_points import Setting, sizes_of
from splitjax.reports.figures.style import finish, make_panels

PLACES: dict[str, dict[str, Any]] = {
  "SplitGP: cut (eq. 30)": {"color": "#0072B2", "linewidth": 2.2},
  "whole at the client (eq. 28)": {"color": "#D55E00", "linestyle": "--"},
  "whole at the server (eq. 29)": {"color": "#000000", "linestyle": "-."},
}
"""Label -> style of its line."""

MARKS: dict[str, dict[str, Any]] = {
  "value of the setting": {"color": "0.5", "linewidth": 1.2},
  "bound of the proposition": {"color": "0.35", "linestyle": ":"},
}
POINTS = 200


def inference_time(
  depth: Mapping[str, Any],
  setting: Setting,
  pixels: int,
  title: str,
) -> Figure:
  """Draws the latencies of PLACES over client power P_C and over bandwidth R.

  R is fixed where P_C varies, and P_C where R varies. `depth` is one of the
  dicts that `split_depths` returns; `pixels` is q, how many numbers a raw
  sample has.
  """
  sizes, rates = sizes_of(depth), setting.resources()
  offloaded = setting.offloaded
  names = "", "inference time of one sample\n[units of time]"
  figure, every = make_panels(2, 2, (4.0, 2.6), names, sharex=False)
  power = setting.client_power
  powers = power * np.geomspace(0.05, 100, POINTS)
  bandwidths = rates.bandwidth * np.geomspace(1e-3, 10, POINTS)
  most_power = float(latency.largest_power(sizes, rates, offloaded))
  most_bandwidth = float(
    latency.largest_bandwidth(sizes, rates, offloaded, pixels)
  )
  varied = [
    [rates._replace(client=p) for p in powers],
    [rates._replace(bandwidth=float(r)) for r in bandwidths],
  ]
  over_power, over_bandwidth = (
    np.array([inference_times(sizes, r, offloaded, pixels) for r in each])
    for each in varied
  )
  _lines(every[0], powers, over_power, power, most_power)
  every[0].set_xlabel("P_C, client power [parameters per unit of time]")
  every[0].set_title(
    f"R = {rates.bandwidth:g}; Proposition 2: {_at_most('P_C', most_power)}",
    fontsize=10,
  )
  _lines(every[1], bandwidths, over_bandwidth, rates.bandwidth, most_bandwidth)
  every[1].set_xlabel("R, bandwidth [numbers per unit of time]")
  every[1].set_title(
    f"P_C = {power:g}; Proposition 3: {_at_most('R', most_bandwidth)}",
    fontsize=10,
  )
  title += f" (P_S={rates.server:g}, β={offloaded:g})"
  return finish(figure, every, {**PLACES, **MARKS}, title)


def _at_most(name: str, bound: float) -> str:
  """Formats a bound for a title; it is infinite if the cut is always faster."""
  return f"{name} ≤ {bound:.3g}" if np.isfinite(bound) else f"any {name}"


def _lines(
  axes: Axes, x: np.ndarray, found: np.ndarray, used: float, bound: float
) -> None:
  """Draws latencies [P, 3] over x [P]; marks the values `used` and `bound`."""
  for line, style in zip(found.T, PLACES.values(), strict=True):
    axes.loglog(x, line, **style)
  for axis in (axes.xaxis, axes.yaxis):  # plain text, in the font of the rest
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")
  for value, style in zip((used, bound), MARKS.values(), strict=True):
    if x[0] <= value <= x[-1]:
      axes.axvline(value, zorder=1, **style)
