"""States on disk, written completely or not at all, and compared when read.

A checkpoint is a folder named by its round: `state/` (orbax) and `record.json`
(notes, times, and the digest of the state). orbax restores some flipped bytes
without an error, so a digest of the state's leaves is computed before they are
written and compared after they are read.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from jax.sharding import SingleDeviceSharding

from splitjax import files, target
from splitjax.types import Tree, UserError

STATE, RECORD = "state", "record.json"

PARTIAL = ".partial"
"""The ending of an incomplete checkpoint's name."""

_KEYS = {"round", "places", "digest", "history"}
"""Entries without which a record cannot be used."""


class Damaged(Exception):
  """Raised for a state that is not the one that was written."""


def rounds_in(folder: Path) -> list[int]:
  """Returns the rounds of the complete checkpoints in a folder, ascending."""
  names = os.listdir(folder) if folder.exists() else []
  return sorted(int(name) for name in names if name.isdecimal())


def digest(tree: Tree) -> str:
  """Returns the SHA-256 of a tree's leaves, in hex digits.

  Leaves that are divided among several processes are gathered, so all processes
  must call this function.
  """
  found = hashlib.sha256()
  for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      leaf = jax.random.key_data(leaf)
    form = f"{jax.tree_util.keystr(path)} {leaf.dtype} {leaf.shape}"
    found.update(form.encode())
    found.update(multihost_utils.process_allgather(leaf, tiled=True).tobytes())
  return found.hexdigest()


def complete(partial: Path, record: dict[str, Any]) -> None:
  """Completes a checkpoint: adds the record to its written state."""
  place = partial.with_suffix("")
  shutil.rmtree(place, ignore_errors=True)
  files.write_json(partial / RECORD, record)
  partial.rename(place)


def read_step(
  place: Path, wanted: Callable[[Sequence[int]], Tree]
) -> tuple[Tree, dict[str, Any]]:
  """Reads a checkpoint's state and its record.

  `wanted` maps the numbers of clients in the saved cohorts, padding included,
  to shapes, dtypes and shardings (ShapeDtypeStructs) of the state.

  Raises:
    Damaged: the state is not the one that was written.
    OSError: a file cannot be read now, but may be undamaged.
  """
  record = read_record(place)
  if record["round"] != int(place.name):
    raise Damaged(f"it was written after round {record['round']}")
  shapes = wanted(record["places"])
  return read_state(place / STATE, shapes, record["digest"]), record


def read_record(place: Path) -> dict[str, Any]:
  """Reads a checkpoint's record, or raises Damaged."""
  try:
    record = json.loads((place / RECORD).read_bytes())
  except (FileNotFoundError, NotADirectoryError):
    raise Damaged(f"{RECORD} is missing") from None
  except ValueError:
    record = None
  if not (isinstance(record, dict) and record.keys() >= _KEYS):
    raise Damaged(f"{RECORD} is not what was written")
  return record


def read_round(
  folder: Path, round: int, wanted: Callable[[Sequence[int]], Tree]
) -> Tree:
  """Reads a checkpoint's state with `read_step`, or raises UserError."""
  rounds = rounds_in(folder)
  if round not in rounds:
    raise UserError(
      f"{folder} holds no checkpoint after round {round} (there are: {rounds})"
    )
  place = folder / str(round)
  try:
    return read_step(place, wanted)[0]
  except Damaged as damage:
    raise UserError(f"{place} is damaged ({damage}): load another") from None


def write_state(place: Path, tree: Tree) -> str:
  """Writes a tree to a folder, whole or not at all; returns its digest."""
  try:
    with ocp.StandardCheckpointer() as saver:
      saver.save(place.resolve(), tree, force=True)
    return digest(tree)
  except Exception as error:
    raise unwritten(place, error) from error


def unwritten(place: Path, error: Exception) -> UserError:
  """Makes the error for a state that could not be written."""
  return UserError(
    f"{place} could not be written ({_reason(error)}): make room on the disk,"
    " then the same command resumes from the newest checkpoint"
  )


def read_state(place: Path, shapes: Tree, written: str) -> Tree:
  """Reads a tree with the digest `written`, or raises Damaged."""
  try:
    with ocp.StandardCheckpointer() as saver:
      tree = saver.restore(place.resolve(), shapes)
  except (FileNotFoundError, NotADirectoryError):
    raise Damaged("files are missing") from None
  except (OSError, MemoryError, RuntimeError):  # it may be read another time
    raise
  except Exception as error:  # orbax's errors share no base class
    raise Damaged(_reason(error)) from error
  if digest(tree) != written:
    raise Damaged("its numbers are not those that were written")
  return tree


def _reason(error: Exception) -> str:
  """Returns an error's first line, or the end of that line if it is long."""
  line = (str(error).strip() or type(error).__name__).splitlines()[0]
  return line if len(line) <= 200 else f"... {line[-196:]}"


def on_first_device(tree: Tree) -> Tree:
  """Returns ShapeDtypeStructs of a tree on this process's first device."""
  return shapes(tree, SingleDeviceSharding(target.current().local[0]))


def shapes(tree: Tree, sharding: Any) -> Tree:
  """Returns ShapeDtypeStructs of a tree, all leaves with one sharding."""
  return jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree
  )
