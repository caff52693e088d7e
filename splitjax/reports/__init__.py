"""Reports: one table of numbers, and tables, pages and figures made from it."""

import lazy_loader

_MODULES = "figures numbers page paper_numbers quantities results tables"
__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submodules=_MODULES.split(),
  submod_attrs={
    "results": ["Results", "Run"],
    "tensorboard": ["FOLDER", "EventFile", "scalars"],
  },
)
