"""MEASUREMENTS: name -> a module that measures a trained method.

Each has the function

  on_end(End) -> Finding

whose numbers become lines of numbers.csv, whose notes stand in the report, and
whose arrays are stored as NAME.npz. A module with arrays also has

  picture(arrays, label, of, maps) -> a figure or None

which draws them, as NAME_KEY.png: `label` is the method's label, `of` names
data set and seed, as in "digits, seed 0", and `maps` is the module
`splitjax.reports.figures.maps`. To add a measurement, write a module and add it
here; the columns of its numbers are lines of `splitjax.reports.quantities`.
"""

from types import ModuleType

from splitjax.evaluation import cost, forgetting, privacy, rounds, scores, skew
from splitjax.evaluation.subject import Arrays, End, Finding

MEASUREMENTS: dict[str, ModuleType] = {
  "scores": scores,
  "embeddings": skew,
  "confusion": forgetting,
  "cost": cost,
  "privacy": privacy,
  "rounds": rounds,
}


def measure(end: End) -> tuple[Finding, dict[str, Arrays]]:
  """Measures a method; returns all numbers and notes, and arrays by file name.

  The arrays of what was not measured are empty.
  """
  found = {name: module.on_end(end) for name, module in MEASUREMENTS.items()}
  together = Finding(
    numbers=[number for each in found.values() for number in each.numbers],
    notes=[note for each in found.values() for note in each.notes],
  )
  return together, {f"{name}.npz": x.arrays for name, x in found.items()}


def drawn() -> dict[str, ModuleType]:
  """Returns the measurements that draw their arrays."""
  return {k: x for k, x in MEASUREMENTS.items() if hasattr(x, "picture")}
