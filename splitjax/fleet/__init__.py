"""The clients: their devices, their cuts, and the order of their service."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "allocation": ["ALLOCATIONS", "cut_costs"],
    "fleets": ["Cohort", "Fleet", "assign_depths", "divide", "own_fleet"],
    "orders": ["ORDERS", "Queue"],
    "resources": ["RESOURCES", "Devices", "Rates", "draw_devices"],
  },
)
