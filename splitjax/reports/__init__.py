"""Reports: one table of numbers, and tables, pages and figures made from it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submodules=[
    "figures",
    "numbers",
    "page",
    "paper_numbers",
    "quantities",
    "results",
    "tables",
  ],
  submod_attrs={
    "results": ["Results", "Run"],
    "tensorboard": ["FOLDER", "EventFile", "scalars"],
  },
)
