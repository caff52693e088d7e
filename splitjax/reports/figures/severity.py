"""Figure of test sets under corruptions of growing severity."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from splitjax.reports.figures import intervals, style
from splitjax.reports.records import at
from splitjax.reports.results import rule, severities

PANELS: dict[str, tuple[str, ...]] = {
  "accuracy [%]": ("summary", "accuracy"),
  "offloaded [%]": ("summary", "offload"),
  "calibrated: offloaded [%]": ("summary", "rules", "calibrated", "offload"),
  "calibrated: points below oracle": (
    "summary", "rules", "calibrated", "below",
  ),
}  # fmt: skip
"""Name of a quantity -> its path in a row, where values are fractions."""


@style.of_results
def accuracy_over_severity(results: dict[str, Any]) -> Figure:
  """Draws accuracy and offloading over the severity of a drift.

  For thresholds calibrated before the drift, two panels show the offloaded
  share and how many points the accuracy is below the oracle's. Further panels
  show the config's metrics, such as the calibration error `ece`. A panel shows
  only the rows that have its quantity.
  """
  known, rows = severities(results), results["rows"]
  style.need(known, "accuracy_over_severity", "severities (eval.shift)")
  own = [key for row in rows for key in row["summary"].get("metrics", ())]
  paths = {**PANELS, **{key: ("summary", "metrics", key) for key in own}}
  shown = {
    name: [row for row in rows if at(row, path) is not None]
    for name, path in paths.items()
  }
  shown = {name: mine for name, mine in shown.items() if mine}
  x, styles = np.array(known, float), style.row_styles(rows)
  figure, every = style.make_panels(
    len(shown), 3, (3.3, 2.6), ("severity", ""), sharey=False
  )
  for axes, (name, mine) in zip(every, shown.items(), strict=True):
    scale = 100 if name in PANELS else 1
    for i, row in enumerate(mine):
      values, halves = (scale * each for each in style.leaf(row, *paths[name]))
      seeds: Any = ()
      if name == "accuracy [%]":
        seeds = scale * np.array(row.get("by_seed", {}).get("accuracy", ())).T
      line = intervals.Series(values, halves, seeds, styles[row["label"]])
      intervals.draw(axes, x, line, i, len(mine))
    axes.set_ylabel(name.replace("_", " "))
    axes.set_xticks(x)
  what = f"Drift of inputs at {rule(results)} thresholds"
  text = intervals.title(what, "dots", results, gated=False)
  return style.finish(figure, every, styles, text)
