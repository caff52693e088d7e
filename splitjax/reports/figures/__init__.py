"""Figures of results, drawn by matplotlib."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submodules=["plots"],
  submod_attrs={
    "client_data": ["PARTS", "of_classes", "of_devices", "of_tests"],
    "cost": [
      "AXES",
      "accuracy_over_cost",
      "cost_per_client",
      "over_bytes",
      "priced",
      "raced",
      "spent",
    ],
    "embedding_map": ["draw_embedding_map"],
    "forgetting": ["class_accuracy", "confusion", "position_curves"],
    "grid": ["changes", "draw_grid"],
    "intervals": ["frame", "title"],
    "panels": ["by_class", "of_clients"],
    "plots": ["drawable", "power", "speed_up"],
    "style": [
      "COLOURS",
      "Figure",
      "OWN",
      "finish",
      "log_if_wide",
      "make_panels",
      "round_ticks",
      "row_styles",
      "save",
    ],
  },
)
