"""Figures of results, drawn by matplotlib.

`splitjax.figures` is this package. `papers.FIGURES` are the figures of a
report, `curves` has the kinds of figures for those of one's own.
"""

import lazy_loader

_PAPERS = """
  accuracy_over_rho
  accuracy_over_severity
  accuracy_over_field
  change_by_cell
  learning_curves
  metric_curves
  accuracy_over_cost
  accuracy_over_latency
  effect_of_threshold
  accuracy_over_gap
  class_accuracy
  accuracy_over_position
  position_curves
  accuracy_per_client
  class_accuracy_per_client
  cost_per_client
""".split()

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submodules=["clients", "maps"],
  submod_attrs={
    "curves": [
      "bars",
      "by_set",
      "choose",
      "dots",
      "heat",
      "lines",
      "means",
      "points",
    ],
    "papers": ["FIGURES", "draw", *_PAPERS],
    "style": ["Figure", "attempt", "look", "looks", "save"],
  },
)
