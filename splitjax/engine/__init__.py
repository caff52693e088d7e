"""The engine: a round of a method over all clients, as one program."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "faults": ["Faults", "draw_faults"],
    "loops": ["TOPOLOGIES"],
    "round": ["run_round", "start"],
  },
)
