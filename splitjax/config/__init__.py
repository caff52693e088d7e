"""Configs: the tree of checked fields, sweeps over them, config files."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "config": ["Checkpoint", "Config", "assign", "flat", "significant"],
    "sweep": ["plan"],
  },
)
