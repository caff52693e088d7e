"""MEASUREMENTS: name -> a module that measures a trained method.

  on_end(End) -> Finding

finds numbers and notes for the report, and arrays, which are stored as
NAME.npz. A module with arrays also has

  picture(arrays, label, of, maps) -> a figure or None

which draws them, as NAME_KEY.png: `label` is the method's, `of` names data set
and seed, as in "digits, seed 0", and `maps` is `splitjax.reports.figures.maps`.
To add a measurement, write a module and add it here; the columns of its numbers
are lines of `splitjax.reports.quantities`.
"""

from types import ModuleType

from splitjax.evaluation import cost, forgetting, privacy, rounds, scores, skew
from splitjax.evaluation.subject import Arrays, End, Finding
from splitjax.types import Number

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
  numbers = list[Number]()
  notes = list[str]()
  arrays = dict[str, Arrays]()
  for name, module in MEASUREMENTS.items():
    finding = module.on_end(end)
    numbers += finding.numbers
    notes += finding.notes
    arrays[f"{name}.npz"] = finding.arrays
  return Finding(numbers, notes=notes), arrays
