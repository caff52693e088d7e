"""Configs: the tree of checked fields, sweeps over them, config files."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "config": ["Checkpoint", "Config", "significant"],
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
    "sweep": ["plan"],
    "tree": ["assign", "check", "flat"],
  },
)
