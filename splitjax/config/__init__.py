"""Configs: the checked schema, templates to override, sweeps over fields."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "groups": ["Checkpoint"],
    "paper_numbers": [
      "Line",
      "Printed",
      "LARGEST",
      "SCALE",
      "numbers",
      "same_set",
      "sources",
      "tables",
    ],
    "schema": ["Config", "significant", "with_values"],
    "sweep": ["plan"],
  },
)
