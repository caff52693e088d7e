"""Files that are whole or not there at all."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np


def write_text(path: Path, text: str) -> None:
  """Writes beside, then renames: a reader never sees half a file."""
  write_bytes(path, lambda file: file.write(text.encode()))


def write_bytes(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
  """As `write_text`, of whatever `write` puts into the file it is given."""
  beside = path.with_name(path.name + ".partial")
  with beside.open("wb") as file:
    write(file)
    file.flush()
    os.fsync(file.fileno())  # a machine that loses power has the old or the new
  beside.replace(path)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
  """Writes name -> array (npz), whole or not at all; of none no file stays."""
  if not arrays:
    path.unlink(missing_ok=True)
    return
  path.parent.mkdir(parents=True, exist_ok=True)
  write_bytes(
    path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays)
  )


def write_json(path: Path, tree: Any) -> None:
  """Writes strict JSON (no NaN), whole or not at all."""
  text = json.dumps(tree, indent=1, ensure_ascii=False, allow_nan=False)
  write_text(path, text + "\n")
