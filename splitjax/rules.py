"""Rules that compiled programs know by their names alone.

To jax a method with `optimizer.name="mine"` stays the same method when a cell
of a notebook defines OPTIMIZERS["mine"] anew, and would run as before.
"""

from collections.abc import Mapping
from typing import Any

import jax

from splitjax.data.augmentations import AUGMENTATIONS
from splitjax.engine.loops import TOPOLOGIES
from splitjax.methods.optimizer import OPTIMIZERS, SCHEDULES

_RULES: dict[str, Mapping[str, Any]] = {
  "augmentation": AUGMENTATIONS,
  "topology": TOPOLOGIES,
  "optimizer": OPTIMIZERS,
  "schedule": SCHEDULES,
}
"""Kind of rule -> its registry."""

_used: dict[tuple[str, str], Any] = {}  # (kind, name) -> its entry
_replaced: list[str] = []  # names whose entry was another one later


def forget_replaced() -> int:
  """Drops jax's traces if a rule was replaced since the last call.

  Returns:
    How many rules were replaced so far, for keys of compiled programs.
  """
  count = len(_replaced)
  for kind, registry in _RULES.items():
    for name, rule in registry.items():
      if _used.setdefault((kind, name), rule) is not rule:
        _used[kind, name] = rule
        _replaced.append(name)
  if len(_replaced) > count:
    jax.clear_caches()
  return len(_replaced)
