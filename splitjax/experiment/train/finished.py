"""Finished methods on disk: saved, tidied up, opened again for more rounds.

Besides the report, a workdir has `methods/KEY/` for every method: `state/` (the
state after the last round), `personal/` (personalised clients), `exits.npz`
(the outputs of both exits for every test sample), `numbers.csv` (see
`splitjax.reports.numbers`), `embeddings.npz` and `confusion.npz` if wanted, and
`about.json`, which is written last: where it exists, the rest is complete.
While a method trains, its folder has `checkpoints/ROUND/`.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from splitjax import files, machine
from splitjax.experiment.storage import checkpoint, workdirs
from splitjax.reports import numbers
from splitjax.types import Net, State


def save(
  workdir: Path,
  key: str,
  state: State,
  personal: tuple[Net, ...],
  about: dict,
  *,
  table: pd.DataFrame,
  arrays: Mapping[str, Mapping[str, np.ndarray]] | None = None,
) -> None:
  """Saves a finished method; deletes its checkpoints unless they are kept.

  Each process saves its part of the state; the first process saves everything
  else and writes `about` last. `state` includes padding clients; `personal` has
  the personalised networks of every cohort, () if there are none. Checkpoints
  are kept if about["checkpoints"] is true. `table` has the method's numbers,
  and `arrays` maps names of further files to their content.
  """
  place = workdirs.folder(workdir, key)
  if machine.is_first_process():
    place.mkdir(parents=True, exist_ok=True)
    (place / workdirs.ABOUT).unlink(missing_ok=True)
  trees = {"state": state} | ({"personal": personal} if personal else {})
  digests = {
    name: checkpoint.write_state(place / name, tree)
    for name, tree in trees.items()
  }
  if machine.is_first_process():
    numbers.write(table, place)
    for name, content in (arrays or {}).items():
      files.write_arrays(place / name, content)
    files.write_json(place / workdirs.ABOUT, {**about, "digests": digests})
    tidy(workdir, key)


def reopen(workdir: Path, key: str) -> None:
  """Copies a finished method's state to a checkpoint, to train it further.

  Nothing happens if the method is not finished.
  """
  if (about := workdirs.read_about(workdir, key)) is None:
    return
  folder, number = workdirs.folder(workdir, key), about["record"]["round"]
  partial = folder / workdirs.CHECKPOINTS / f"{number}{checkpoint.PARTIAL}"
  shutil.rmtree(partial, ignore_errors=True)
  shutil.copytree(folder / "state", partial / checkpoint.STATE)
  digest = about["digests"]["state"]
  checkpoint.complete(partial, {**about["record"], "digest": digest})


def tidy(workdir: Path, key: str) -> None:
  """Deletes the checkpoints of a finished method, unless they are kept."""
  about = workdirs.read_about(workdir, key)
  if about is not None and not about["checkpoints"]:
    place = workdirs.folder(workdir, key) / workdirs.CHECKPOINTS
    shutil.rmtree(place, ignore_errors=True)
