"""Decides whether two configs describe the same run.

Fields whose declared effect is NONE (the machine, file locations, checkpoints)
are not compared. Data sets and pretrained networks are compared by the digests
of their content, not by their paths. A config with more rounds continues a run
if faults and learning rates of the earlier rounds are unchanged.
"""

from typing import Any

import jax.numpy as jnp

from splitjax.config.config import Config, OptimizerConfig, significant
from splitjax.experiment.setup.method_factory import make_optimizer


def difference(theirs: dict, mine: dict) -> str | None:
  """Describes the first field in which two runs differ; None if equal.

  Both are {"config": ..., "data": ...} like config.json. Only methods that
  both runs have are compared, as each trains by itself. `mine` may have more
  rounds than `theirs` if this does not change the rounds that both have.
  """
  one, two = (
    {"config": significant(tree["config"]), "data": tree["data"]}
    for tree in (theirs, mine)
  )
  a, b = (tree["config"]["methods"] for tree in (one, two))
  both = a.keys() & b.keys()
  for tree, methods in ((one, a), (two, b)):
    tree["config"]["methods"] = {key: methods[key] for key in both}
  done, wanted = (tree["config"].pop("rounds", None) for tree in (one, two))
  found = _first_difference(one, two)
  if done == wanted:
    return found
  more = f"rounds is {done} there and {wanted} here"
  if found:
    return found
  if wanted < done:
    return more
  if mine["config"]["faults"]["server_down"]:
    return f"{more}, and faults.server_down depends on it"
  field = _looks_ahead(mine["config"], done)
  return field and f"{more}, and {field} depends on it"


def _looks_ahead(config: dict, done: int) -> str | None:
  """Names a schedule whose first `done` rounds depend on config["rounds"]."""
  chosen = OptimizerConfig(**config["optimizer"])
  short, whole = (
    make_optimizer(chosen, rounds).at(jnp.arange(done)).lr
    for rounds in (done, config["rounds"])
  )
  if jnp.array_equal(short, whole):
    return None
  return f"optimizer.schedule={chosen.schedule}"


def unlike(theirs: Config, mine: Config) -> str | None:
  """Describes how two configs differ as runs; None if equal.

  In contrast to `difference`, their rounds must be equal, too.
  """
  if theirs.rounds != mine.rounds:
    return f"rounds is {theirs.rounds} there and {mine.rounds} here"
  a, b = ({"config": c.to_dict(), "data": {}} for c in (theirs, mine))
  return difference(a, b)


def joined(config: Config, theirs: dict) -> Config:
  """Adds to a config the methods of earlier starts, whose config is `theirs`.

  Raises UserError where two methods then have the same label.
  """
  mine, old = config.to_dict(), theirs["methods"]
  more = mine["methods"].keys() - old.keys()
  order = [*mine["methods"], *old] if more else old
  methods = {key: {**old, **mine["methods"]}[key] for key in order}
  return Config.from_dict({**mine, "methods": methods})


def _first_difference(theirs: Any, mine: Any, where: str = "") -> str | None:
  """Describes the first field that differs: its path and both values."""
  if theirs == mine:
    return None
  if not (isinstance(theirs, dict) and isinstance(mine, dict)):
    return f"{where} is {theirs!r} there and {mine!r} here"
  names = sorted(theirs.keys() | mine.keys())
  name = next(n for n in names if theirs.get(n) != mine.get(n))
  top = not where and name in ("config", "data")
  path = where if top else f"{where}.{name}".removeprefix(".")
  return _first_difference(theirs.get(name), mine.get(name), path)
