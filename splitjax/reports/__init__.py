"""Reports: results as tables and pages, with papers' numbers beside them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submodules=["figures"],
  submod_attrs={
    "by_client": ["chosen", "client_section", "clients_over_seeds"],
    "by_seed": ["differences", "gains", "over_data_sets", "seed_section"],
    "costs": ["of_grid"],
    "forgetting": ["profile", "shown"],
    "formats": ["latex", "markdown", "terminal"],
    "grid_report": ["sections", "write_grid"],
    "over_seeds": ["combine"],
    "page": ["page_text"],
    "records": ["as_csv", "collect", "remarks"],
    "report": ["read_report", "table", "write_report"],
    "results": ["folded", "told"],
    "tables": ["column", "compare", "pivot"],
    "tensorboard": ["FOLDER", "append", "event_library", "rewrite", "scalars"],
  },
)
