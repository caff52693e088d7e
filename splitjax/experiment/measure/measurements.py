"""Measurements of a trained method beyond its accuracy.

Each measurement returns numbers, which become lines of numbers.csv, and arrays,
which are stored as NAME.npz and drawn as NAME_KEY.png. To add one, write a
module with the two functions that MEASUREMENTS describes, and add it there.
"""

import functools
from pathlib import Path
from typing import Any

import numpy as np

from splitjax import files
from splitjax.experiment.measure import confusion, embeddings
from splitjax.experiment.measure.scores import End
from splitjax.experiment.storage import workdirs
from splitjax.reports.results import Settings
from splitjax.types import Number, UserError

Arrays = dict[str, np.ndarray]

MEASUREMENTS: dict[str, Any] = {
  "embeddings": embeddings,
  "confusion": confusion,
}
"""Name -> a module with

  on_end(End) -> list[Number], Arrays; both are empty if it is not wanted
  picture(Arrays, label, of) -> a figure or None

`label` is the method's label, and `of` names data set and seed, as in "digits,
seed 0"."""


def on_end(end: End) -> tuple[list[Number], dict[str, Arrays]]:
  """Measures a method; returns numbers, and file name -> its content."""
  numbers, arrays = list[Number](), dict[str, Arrays]()
  for name, module in MEASUREMENTS.items():
    found, content = module.on_end(end)
    numbers += found
    arrays[f"{name}.npz"] = content
  return numbers, arrays


def pictures(source: Path, settings: Settings, folder: Path) -> list[Path]:
  """Draws the stored arrays of each method of a run; returns the PNG files.

  Args:
    source: the folder of the run or of its evaluation.
    settings: the run's config.
    folder: where the figures are written.

  Raises:
    UserError: a file is damaged.
  """
  from splitjax.reports.figures import attempt  # imports matplotlib

  drawn = []
  of = f"{settings['data']['name']}, seed {settings['seed']}"
  for name, module in MEASUREMENTS.items():
    for key, spec in settings["methods"].items():
      path = workdirs.folder(source, key) / f"{name}.npz"
      if not path.exists():
        continue
      try:
        arrays = files.read_arrays(path)
      except (OSError, ValueError) as error:
        raise UserError(
          f"{path} is damaged ({error}): delete it, and the report leaves it"
          " out"
        ) from None
      make = functools.partial(
        module.picture, arrays, spec.get("label") or key, of
      )
      drawn += attempt(folder / f"{name}_{key}.png", make)
  return drawn
