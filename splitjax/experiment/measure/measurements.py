"""Measurements of a trained method beyond its accuracy.

Each measurement adds numbers to the rows of a `scores.End` and returns arrays,
which are stored as NAME.npz and drawn as NAME_KEY.png. To add one, write a
module with the two functions that MEASUREMENTS describes, and add it there.
"""

from pathlib import Path
from typing import Any

import numpy as np

from splitjax import files
from splitjax.config.schema import Config
from splitjax.experiment.measure import (
  confusion,
  costs,
  embeddings,
  privacy,
)
from splitjax.experiment.measure.scores import End
from splitjax.experiment.storage import workdirs
from splitjax.reports.figures.style import save
from splitjax.types import UserError

Arrays = dict[str, np.ndarray]

MEASUREMENTS: dict[str, Any] = {
  "privacy": privacy,
  "cost": costs,
  "embeddings": embeddings,
  "confusion": confusion,
}
"""Name -> a module with

  on_end(End) -> Arrays, {} if there are none
  picture(Arrays, label, of) -> a figure or None

`label` is the method's label, and `of` names data set and seed, as in "digits,
seed 0". `picture` is missing where no arrays are stored."""


def on_end(end: End) -> dict[str, Arrays]:
  """Measures a method; returns file name -> content of the file."""
  found = {name: each.on_end(end) for name, each in MEASUREMENTS.items()}
  drawn = (k for k, each in MEASUREMENTS.items() if hasattr(each, "picture"))
  return {f"{name}.npz": found[name] for name in drawn}


def pictures(workdir: Path, config: Config) -> list[Path]:
  """Draws the stored arrays of each method; returns the PNG files.

  Raises:
    UserError: a file is damaged.
  """
  drawn, of = [], f"{config.data.name}, seed {config.seed}"
  for name, each in MEASUREMENTS.items():
    for key, spec in config.methods.items():
      path = workdirs.folder(workdir, key) / f"{name}.npz"
      if not path.exists():
        continue
      try:
        arrays = files.read_arrays(path)
      except (OSError, ValueError) as error:
        raise UserError(
          f"{path} is damaged ({error}): delete it, and the report leaves it"
          " out"
        ) from None
      if figure := each.picture(arrays, spec.label or key, of):
        drawn.append(save(figure, workdir / f"{name}_{key}.png"))
  return drawn
