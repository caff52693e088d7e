"""The clients: their devices, their cuts, and the order of their service."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "allocation": ["ALLOCATIONS", "cut_costs", "cut_table"],
    "fleets": [
      "Cohort",
      "CohortShape",
      "Fleet",
      "Layout",
      "assign_depths",
      "divide",
      "even_depths",
      "slots",
      "with_full_depth",
      "with_padding",
      "without_padding",
    ],
    "orders": ["ORDERS"],
    "resources": [
      "Devices",
      "Profiles",
      "Rates",
      "draw_profiles",
    ],
  },
)
