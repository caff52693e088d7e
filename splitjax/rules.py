"""Registry entries that compiled programs use: optimizers, schedules, ...

A program knows an entry by its name alone. When a cell of a notebook defines
OPTIMIZERS["mine"] anew, it would miss that, and run as before.
"""

from collections.abc import Mapping
from typing import Any

import jax

from splitjax.data.augmentations import AUGMENTATIONS
from splitjax.engine.loops import TOPOLOGIES
from splitjax.methods.optimizer import OPTIMIZERS, SCHEDULES

_REGISTRIES: dict[str, Mapping[str, Any]] = {
  "augmentation": AUGMENTATIONS,
  "topology": TOPOLOGIES,
  "optimizer": OPTIMIZERS,
  "schedule": SCHEDULES,
}

_seen: dict[tuple[str, str], list[Any]] = {}
"""(registry, name) -> the entries that the name has had, the newest last."""


def refresh() -> int:
  """Clears jax's caches if an entry was replaced since the last call.

  Returns:
    How many entries were replaced so far, for keys of compiled programs.
  """
  for kind, registry in _REGISTRIES.items():
    for name, entry in registry.items():
      entries = _seen.setdefault((kind, name), [entry])
      if entries[-1] is not entry:
        entries.append(entry)
        jax.clear_caches()
  return sum(len(entries) - 1 for entries in _seen.values())
