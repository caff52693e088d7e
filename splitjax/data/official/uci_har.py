"""UCI-HAR: windows of a smartphone's sensor signals while 30 people move.

Anguita et al., A Public Domain Dataset for Human Activity Recognition Using
Smartphones, ESANN 2013. The prepared data are the raw signals of the folder
"Inertial Signals", not the 561 features that the authors computed from them.
"""

import io
import zipfile

import numpy as np

from splitjax.data.facts import FACTS
from splitjax.data.official.formats import (
  OfficialSplit,
  Parsed,
  Paths,
  checked,
  reading,
)

INNER = "UCI HAR Dataset.zip"
"""The official archive; the repository also serves it inside another one."""

FOLDER, PEOPLE = "UCI HAR Dataset", list(FACTS["uci_har"].names)
SIGNALS = tuple(
  f"{kind}_{axis}"
  for kind in ("body_acc", "body_gyro", "total_acc")
  for axis in "xyz"
)
"""The channels in order, each along x, y and z: acceleration of the body in g,
angular velocity in rad/s, acceleration with gravity in g."""


def uci_har(paths: Paths) -> Parsed:
  """Reads UCI-HAR: series [128, 9] float32, each with an activity and a person.

  A window is 2.56 s at 50 Hz and overlaps the one before by a half. The six
  activities 1 to 6 of activity_labels.txt become 0 to 5, people 1 to 30 become
  0 to 29. No person is in both official splits.
  """
  (path,) = paths.values()
  with reading(path), zipfile.ZipFile(path) as archive:
    if INNER in archive.namelist():
      archive = zipfile.ZipFile(io.BytesIO(archive.read(INNER)))

    def table(name: str) -> np.ndarray:
      text = io.BytesIO(archive.read(f"{FOLDER}/{name}.txt"))
      return np.loadtxt(text, np.float64, ndmin=2)

    lines = archive.read(f"{FOLDER}/activity_labels.txt").decode().split()
    names, splits = lines[1::2], {}
    if lines[::2] != [str(i) for i in range(1, 7)]:
      raise ValueError("activity_labels.txt does not number six activities")
    for split in ("train", "test"):
      at = f"{split}/Inertial Signals"
      each = [table(f"{at}/{signal}_{split}") for signal in SIGNALS]
      series = np.stack(each, axis=-1).astype(np.float32)
      count = len(series)
      if series.shape[1:] != FACTS["uci_har"].shape:
        raise ValueError(f"{split} has windows {list(series.shape[1:])}")
      if not np.isfinite(series).all():
        raise ValueError(f"{split} has a signal that is no number")
      fields = {"label": ("y", len(names)), "subject": ("subject", len(PEOPLE))}
      labels = {
        field: checked(_whole(table(f"{split}/{file}_{split}")), count, most,
                       first=1) - 1
        for field, (file, most) in fields.items()
      }  # fmt: skip
      ids = [f"{split}_{row:05d}" for row in range(count)]
      splits[split] = OfficialSplit(series, labels, ids)
  return Parsed(splits, {"label": names, "subject": PEOPLE})


def _whole(column: np.ndarray) -> np.ndarray:
  """Returns a column [Z, 1] of whole numbers as [Z] int64."""
  if column.shape[1:] != (1,) or (column % 1).any():
    raise ValueError("has labels that are no whole numbers")
  return column[:, 0].astype(np.int64)
