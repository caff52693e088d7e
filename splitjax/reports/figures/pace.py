"""A figure of paces: the clients' shares of the aggregate, and staleness."""

import numpy as np
from matplotlib.figure import Figure

from splitjax.reports.figures import style


def shares_and_staleness(arrays: dict[str, np.ndarray], of: str) -> Figure:
  """Draws each client's share over its modelled seconds, and the staleness.

  Args:
    arrays: "share", "even" and "seconds" [N], and "staleness", the number of
      updates of each tau, where rounds are buffered.
    of: method and data, for the title.
  """
  buffered = "staleness" in arrays
  figure = Figure(figsize=(3.4 * (1 + buffered), 2.9), layout="constrained")
  axes, *more = figure.subplots(1, 1 + buffered, squeeze=False)[0]
  relative = arrays["share"] / arrays["even"]
  axes.scatter(arrays["seconds"], relative, s=14)
  axes.axhline(1, color="black", linewidth=0.9, linestyle=":")
  axes.set_xlabel("modelled seconds of a client's round")
  axes.set_ylabel("share of the aggregate\n(1: all take part equally often)")
  axes.set_ylim(bottom=0)
  for axes in more:
    count = arrays["staleness"]
    axes.bar(np.arange(len(count)), count / count.sum())
    axes.set_xlabel("staleness [rounds]")
    axes.set_ylabel("share of updates")
  for axes in figure.axes:
    style.plain_look(axes)
  return style.titled(figure, f"Who makes up the aggregate, {of}")
