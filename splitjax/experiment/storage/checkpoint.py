"""States on disk, written completely or not at all, and verified when read.

A checkpoint is a folder named by its round: `state/` (orbax), `record.json`
(facts of the run, the length and digest of its log, notes) and `manifest.json`,
which is written last and has a digest of every other file.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jax.sharding import SingleDeviceSharding

from splitjax import files
from splitjax.experiment.storage import fingerprint
from splitjax.experiment.storage.fingerprint import Damaged
from splitjax.files import read_bytes
from splitjax.models import target
from splitjax.types import Tree, UserError

STATE, RECORD, MANIFEST = "state", "record.json", "manifest.json"

PARTIAL = ".partial"
"""The ending of an incomplete checkpoint's name."""


def rounds_in(folder: Path) -> list[int]:
  """Returns the rounds of the complete checkpoints in a folder, ascending."""
  return sorted(int(p.name) for p in folder.glob("*") if p.name.isdecimal())


def complete(partial: Path, record: dict[str, Any]) -> None:
  """Completes a checkpoint: adds record and manifest to its written state."""
  place = partial.with_suffix("")
  shutil.rmtree(place, ignore_errors=True)
  files.write_json(partial / RECORD, {**record, "format": fingerprint.FORMAT})
  # The manifest is written last: with it the checkpoint is complete.
  files.write_json(partial / MANIFEST, fingerprint.of_files(partial))
  partial.rename(place)


def read_step(
  place: Path, wanted: Callable[[dict[str, Any]], Tree]
) -> tuple[Tree, dict[str, Any]]:
  """Verifies a checkpoint, then reads its state and its record.

  `wanted` maps the record to shapes, dtypes and shardings (ShapeDtypeStructs)
  of the state; it may raise UserError if the record is another run's.

  Raises:
    Damaged: the files are not those that were written.
    OSError: a file cannot be read now, but may be undamaged.
    UserError: another version wrote the checkpoint; or raised by `wanted`.
  """
  manifest = _json(place / MANIFEST)
  fingerprint.verify_files(place, manifest)
  record = read_record(place)
  if f"{record.get('round')}" != place.name:
    raise Damaged(f"it was written after round {record.get('round')}")
  fingerprint.check_format(place, record)
  return _restore(place / STATE, wanted(record)), record


def read_record(place: Path) -> dict[str, Any]:
  """Reads a checkpoint's record without verifying its digest.

  Raises Damaged if the record is missing or not a JSON object.
  """
  return _json(place / RECORD)


def read_round(
  folder: Path, round: int, wanted: Callable[[dict[str, Any]], Tree]
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


def write_state(place: Path, tree: Tree) -> dict[str, str]:
  """Writes a tree to a folder, whole or not at all; returns file digests."""
  try:
    with ocp.StandardCheckpointer() as saver:
      saver.save(place.resolve(), tree, force=True)
    return fingerprint.of_files(place)
  except Exception as error:
    raise unwritten(place, error) from error


def unwritten(place: Path, error: Exception) -> UserError:
  """Makes the error for a state that could not be written."""
  return UserError(
    f"{place} could not be written ({reason(error)}): make room on the disk,"
    " then the same command resumes from the newest checkpoint"
  )


def read_state(place: Path, shapes: Tree, digests: dict[str, str]) -> Tree:
  """Reads a tree that `write_state` wrote, or raises Damaged."""
  fingerprint.verify_files(place, digests)
  return _restore(place, shapes)


def _restore(place: Path, wanted: Tree) -> Tree:
  """Reads verified files; raises UserError if they hold another tree.

  Only arrays are compared: the files may lack a field without arrays, so that a
  later version can add such a field.
  """
  leaves = _by_path(wanted)
  with ocp.StandardCheckpointer() as saver:
    try:
      saved = saver.metadata(place.resolve()).item_metadata.tree
      _compare(_by_path(saved), leaves)
      same = jax.tree.unflatten(
        jax.tree.structure(saved), [leaves[path] for path in _by_path(saved)]
      )
      found = _by_path(saver.restore(place.resolve(), same))
    except (ValueError, KeyError, AttributeError) as error:
      raise UserError(
        f"{place} is intact but holds another state than this version has"
        f" ({reason(error)}): use the version that wrote it"
      ) from error
  return jax.tree.unflatten(
    jax.tree.structure(wanted), [found[path] for path in leaves]
  )


def _by_path(tree: Tree) -> dict[tuple[str, ...], Any]:
  """Maps paths to leaves; fields and dict keys look the same in a path."""
  found, _ = jax.tree_util.tree_flatten_with_path(tree)
  return {
    tuple(jax.tree_util.keystr((key,), simple=True) for key in path): leaf
    for path, leaf in found
  }


def _compare(saved: dict[tuple[str, ...], Any], wanted: dict) -> None:
  """Raises ValueError naming the first array whose dtype or shape differs."""
  for path in (*saved, *wanted):
    there, here = _form(saved.get(path)), _form(wanted.get(path))
    if there != here:
      raise ValueError(f"{'/'.join(path)} is {there}, here {here}")


def _form(x: Any) -> str:
  """Returns dtype and shape of an array, or of a PRNG key's data, as text."""
  if x is None:
    return "none"
  if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
    x = jax.eval_shape(jax.random.key_data, x)
  return f"{x.dtype} {list(x.shape)}"


def _json(path: Path) -> dict[str, Any]:
  """Reads a JSON object, or raises Damaged."""
  try:
    tree = json.loads(read_bytes(path))
  except (FileNotFoundError, NotADirectoryError):
    raise Damaged(f"{path.name} is missing") from None
  except (ValueError, RecursionError):
    raise Damaged(f"{path.name} is not what was written") from None
  if not (isinstance(tree, dict) and tree):
    raise Damaged(f"{path.name} is not what was written")
  return tree


def reason(error: Exception) -> str:
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
