"""Intervals over seeds in figures, and the title line that describes them.

Error bars end at the bounds of a quantity (0 and 100 %) and stand side by side.
An error bar that is far wider than the others leaves the frame instead of
stretching the axis.
"""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from splitjax.reports.results import rule

PERCENT, ANY = (0.0, 100.0), (-np.inf, np.inf)
BARS = {"bars": "bars", "dots": "bars", "bands": "bands"}
FAR = 3.0
"""To leave the frame, an interval must be wider than the typical one by this
factor."""
LEAST = 3.0
"""To leave the frame, an interval must also exceed ± this many points."""


def bars(
  values: np.ndarray,
  halves: np.ndarray,
  bounds: tuple[float, float] = PERCENT,
) -> np.ndarray:
  """Returns error bars [2, ...] of values [...], cut off at their bounds."""
  room = np.stack([values - bounds[0], bounds[1] - values])
  return np.maximum(np.minimum(halves, room), 0)


def band(
  axes: Axes,
  rounds: Sequence[float],
  shares: np.ndarray,
  halves: np.ndarray,
  style: dict[str, Any],
  scale: float = 100,
) -> None:
  """Draws a curve [P] and its interval as a band.

  A single round gets an error bar instead. `scale` multiplies the values. A
  scale of 100 turns shares into per cent; the intervals then end at 0 and 100.
  """
  values, bounds = scale * shares, PERCENT if scale == 100 else ANY
  below, above = bars(values, scale * halves, bounds)
  if len(rounds) == 1:
    axes.errorbar(rounds, values, np.stack([below, above]), capsize=3, **style)
    return
  every = max(1, len(values) // 8)
  axes.plot(rounds, values, markevery=every, **style)
  look = {"color": style["color"], "alpha": 0.15, "linewidth": 0}
  axes.fill_between(rounds, values - below, values + above, **look)


def frame(
  every: Sequence[Axes],
  values: np.ndarray,
  halves: np.ndarray,
  points: Iterable[float] = (),
  *,
  axis: str = "y",
) -> str:
  """Keeps intervals that are far wider than the others from setting the axis.

  The axis shows all values [...], in per cent, and all further `points` that
  are drawn, such as the seeds' dots. It shows every interval that is not far
  wider than the others. An interval is far wider if its half-width exceeds both
  `LEAST` and `FAR` times the typical half-width, and if it is longer than the
  range of the values. The typical half-width is the lower quartile, which stays
  narrow if one of two methods diverges. Values that are NaN are left out.

  Returns:
    A text for `title` on the width of intervals that leave the frame, or "".
  """
  known = np.isfinite(values) & np.isfinite(halves)
  values, halves = values[known], halves[known]
  if not values.size:
    return ""
  typical = np.quantile(halves, 0.25, method="lower")
  least = max(FAR * typical, LEAST)
  far = (halves > least) & (2 * halves > np.ptp(values))
  if not far.any():
    return ""
  below, above = bars(values, np.where(far, 0, halves))
  dots = [x for x in points if np.isfinite(x)]
  low = min((values - below).min(), *dots, np.inf)
  high = max((values + above).max(), *dots, -np.inf)
  margin = 0.05 * ((high - low) or 1.0)
  below, above = bars(values, halves)
  outside = values - below < low - margin, values + above > high + margin
  leave = far & np.logical_or(*outside)
  if not leave.any():
    return ""
  for axes in every:
    set_limits = axes.set_ylim if axis == "y" else axes.set_xlim
    set_limits(low - margin, high + margin)
  widest = float(f"{halves[leave].max():.2g}")
  return f"intervals up to ±{widest:g} leave the frame"


def dodged(
  x: Sequence[float] | np.ndarray, place: float, count: int
) -> np.ndarray:
  """Shifts a row's x [P], so that the error bars of `count` rows stay apart.

  `place` is the row's index; a fraction means a place between two rows.
  """
  at = np.array(x, float)
  apart = np.diff(np.unique(at))
  gap = apart.min() if apart.size else 1.0
  step = min(0.4 * gap / count, 0.02 * (np.ptp(at) or 1.0))
  return at + step * (place - (count - 1) / 2)


class Series(NamedTuple):
  """A row's values over an axis, in per cent.

  Attributes:
    values: [P].
    halves: [P], half-widths; NaN without an interval.
    seeds: P arrays [..], the seeds' values at each position; or empty.
    style: the row's drawing style.
  """

  values: np.ndarray
  halves: np.ndarray
  seeds: Iterable[np.ndarray]
  style: dict[str, Any]


def draw(
  axes: Axes,
  x: np.ndarray,
  line: Series,
  i: int,
  count: int,
  wide: bool = False,
) -> None:
  """Draws the `i`-th of `count` lines over x [P], ascending.

  Intervals of the lines stand side by side, and seeds' dots lie beside them.
  `wide` says that the x axis is logarithmic.
  """

  def aside(place: float) -> np.ndarray:
    at = dodged(np.log10(x) if wide else x, place, count)
    return 10**at if wide else at

  values, halves, seeds, style = line
  at = aside(i) if np.isfinite(halves).any() else x
  axes.errorbar(at, values, bars(values, halves), capsize=3, **style)
  dots = np.array(list(zip_longest(*seeds, fillvalue=np.nan)))  # [S, P]
  if len(dots) > 1:
    look = {"color": style["color"], "alpha": 0.45, "linewidths": 0, "s": 11}
    beside = np.broadcast_to(aside(i + 0.4), dots.shape)
    axes.scatter(beside, dots, zorder=1.5, **look)


def title(
  what: str,
  shown: str,
  *every: dict[str, Any],
  more: str = "",
  gated: bool = True,
) -> str:
  """Makes a title of two lines: the quantity, then how it was obtained.

  The second line has data set, seeds, interval and thresholds.

  Args:
    what: the quantity that is drawn.
    shown: the mark of the interval: "bars", "dots" (bars and a dot per seed) or
      "bands"; "" if only means are drawn; "clients" if the clients of all seeds
      are drawn.
    every: the results that are drawn, of one run or of several cells.
    more: the text that `frame` returns.
    gated: true if all that is drawn depends on the rule of the thresholds; the
      title then names the rule, if it is not the oracle.
  """
  configs = [each.get("config", {}) for each in every]
  names = [config.get("data", {}).get("name", "") for config in configs]
  parts = [" and ".join(filter(None, dict.fromkeys(names)))]
  if any(config.get("scale") == "small" for config in configs):
    parts[0] += " at small scale"
  counts = sorted({len(each.get("seeds", (0,))) for each in every})
  many = " or ".join(map(str, counts)) + " seeds"
  if counts == [1]:
    parts += ["one seed" + (", no interval" if shown in BARS else "")]
  elif shown in BARS:
    dots = any(row.get("by_seed") for each in every for row in each["rows"])
    said = f"{BARS[shown]}: 95 % interval"
    said += "; dots: seeds" * (dots and shown == "dots")
    parts += [f"{many} ({said})"]
  else:
    parts += [f"{'clients' if shown else 'means'} of {many}"]
  rules = dict.fromkeys(rule(each) for each in every if gated)
  parts += [f"{name} thresholds" for name in rules if name != "oracle"]
  return f"{what}\n" + ", ".join(filter(None, [*parts, more]))
