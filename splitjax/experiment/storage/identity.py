"""What makes two runs the same run.

What is the machine's (where files lie, how many devices) is no part of it; what
the data, a checkpoint or a schedule of faults are is, by their digests.
"""

from pathlib import Path
from typing import Any

from splitjax.config.schema import Config
from splitjax.data import npz
from splitjax.engine.faults import digest, read_schedule
from splitjax.models import pretrained
from splitjax.reports.over_seeds import HABITS
from splitjax.types import UserError

ADDED = ("partition",)
"""Facts of the data that an older program did not write down."""


def difference(theirs: dict, mine: dict) -> str | None:
  """The first field in which two runs differ; None if they are the same.

  Of the methods those count that both have: each trains for itself.

  Args:
    theirs: config and data, as config.json has them.
    mine: likewise.
  """
  one, two = _shared(*(_identity(t["config"] or {}) for t in (theirs, mine)))
  a, b = {**theirs, "config": one}, {**mine, "config": two}
  return None if a == b else _difference(a, b)


def alike(one: Config, two: Config) -> bool:
  """Whether two configs are the same run, wherever their files lie."""
  a, b = ({"config": c.to_dict(), "data": {}} for c in (one, two))
  return difference(a, b) is None


def joined(config: Config, theirs: dict) -> Config:
  """A config with the methods that the same run had before.

  Args:
    config: of a run.
    theirs: its config as a dict, of an earlier start.

  Raises:
    UserError: labels that do not go together.
  """
  mine, old = config.to_dict(), theirs["methods"]
  more = mine["methods"].keys() - old.keys()
  order = [*mine["methods"], *old] if more else old
  methods = {key: {**old, **mine["methods"]}[key] for key in order}
  return Config.from_dict({**mine, "methods": methods})


def _shared(one: dict, two: dict) -> tuple[dict, dict]:
  """Two configs with the methods alone that both have."""
  a, b = one.get("methods"), two.get("methods")
  if not (isinstance(a, dict) and isinstance(b, dict)):
    return one, two
  both = a.keys() & b.keys()
  return (
    {**one, "methods": {key: a[key] for key in both}},
    {**two, "methods": {key: b[key] for key in both}},
  )


def _identity(config: dict) -> dict:
  """A config's dict without what is the machine's: where files lie, devices.

  What the data are, and a checkpoint, is told by their digests. Fields that an
  older program did not know have their defaults.
  """
  seed = config.get("seed")
  try:
    config = Config.from_dict({**config, "seed": 0}).to_dict()
  except UserError:
    pass  # of another program: it will differ, and the difference is named
  data = {**config.get("data", {}), "dir": None, "device_budget_gb": None}
  if str(data.get("name")).startswith(npz.PREFIX):
    data["name"] = npz.PREFIX
  backbone = dict(config.get("backbone", {}))
  if backbone.get("pretrained") is not None:
    backbone["pretrained"] = "PATH"
  # When states are kept does not change them, nor when a run gives up, nor
  # what stands beside their numbers.
  for habit in HABITS:
    config.pop(habit, None)
  faults = dict(config.get("faults", {}))
  if faults.get("schedule") is not None:
    faults["schedule"] = "PATH"
  system = {**config.get("system", {}), "devices": None, "seeds_batched": False}
  if not system.get("deterministic"):
    system["clients_per_chunk"] = "auto"
  return {
    **config,
    "seed": seed,
    "data": data,
    "backbone": backbone,
    "faults": faults,
    "system": system,
  }


def _difference(theirs: Any, mine: Any, where: str = "") -> str:
  """Names the first field in which two trees differ."""
  if isinstance(theirs, dict) and isinstance(mine, dict):
    for name in sorted(theirs.keys() | mine.keys()):
      a, b = theirs.get(name), mine.get(name)
      if a != b:
        inner = (
          where
          if not where and name in ("config", "data")
          else (f"{where}.{name}" if where else name)
        )
        return _difference(a, b, inner)
  return f"{where} is {theirs!r} there and {mine!r} here"


def unread(config: Config, facts: dict, theirs: dict) -> dict:
  """Digests of a checkpoint and a schedule not read, all being trained.

  A file that is gone counts as the one that there was: nothing needs it.
  """
  out = {}
  path = config.backbone.options.get("pretrained")
  if path is not None and "pretrained" not in facts:
    if Path(path).exists():
      out["pretrained"] = pretrained.digest(path)
    elif "pretrained" in theirs:
      out["pretrained"] = theirs["pretrained"]
  path = config.faults.schedule
  if path is not None and "faults" not in facts:
    if Path(path).exists():
      size = config.num_clients, config.rounds
      out["faults"] = digest(read_schedule(config.faults, *size))
    elif "faults" in theirs:
      out["faults"] = theirs["faults"]
  return out
