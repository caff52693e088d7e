"""Lists, prepares and checks data sets."""

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from splitjax.data import prepare, sources, tfds_store
from splitjax.types import UserError


def _where(name: str, data_dir: str | None) -> str:
  """Says where a data set is, in a word or a path."""
  if name not in prepare.STORES:
    return "bundled with scikit-learn"
  try:
    folder = tfds_store.find(name, data_dir)
  except UserError:
    return f"unreadable (not array_record) in {tfds_store.root(data_dir)}"
  if folder is None:
    return f"not prepared in {tfds_store.root(data_dir)}"
  return f"prepared in {folder}"


def _list(data_dir: str | None) -> None:
  """Prints name, classes, shape, sizes and place of every data set."""
  row = "{:<16}{:>8}{:>10}{:>9}{:>9}  {}"
  print(row.format("name", "classes", "image", "train", "test", "where"))
  for name in sources.SOURCES:
    facts = sources.FACTS[name]
    shape = "x".join(map(str, facts.shape))
    counts = facts.classes, shape, facts.train, facts.test
    print(row.format(name, *counts, _where(name, data_dir)))


def _prepare(name: str, folder: str | None, data_dir: str | None) -> None:
  """Prepares a data set from official files: downloaded, or in a folder."""
  if sources.known(name) in prepare.STORES:
    prepare.prepare(name, data_dir, folder)
  print(f"{name}: {_where(name, data_dir)}")


def _check(name: str, data_dir: str | None) -> None:
  """Compares a data set with what is known of it."""
  data, facts = sources.load(name, data_dir=data_dir), sources.FACTS[name]
  for split, samples in (("train", facts.train), ("test", facts.test)):
    image = getattr(data, f"{split}_image")
    label = getattr(data, f"{split}_label")
    what = f"{name} {split}"
    _same(f"{what} images", image.shape, (samples, *facts.shape))
    _same(f"{what} pixels", str(image.dtype), "uint8")
    _same(f"{what} labels", label.shape, (samples,))
    classes, counts = np.unique(label, return_counts=True)
    _same(f"{what} classes", classes.tolist(), list(range(facts.classes)))
    spread = f"{counts.min()} to {counts.max()}"
    if facts.balanced:
      each = samples // facts.classes
      _same(f"{what} samples per class", spread, f"{each} to {each}")
    print(f"{what}: {samples} samples, {spread} per class: as expected")


def _same(what: str, found: object, expected: object) -> None:
  if found != expected:
    raise UserError(
      f"{what}: expected {expected}, found {found}; delete the prepared data "
      "and prepare them again"
    )


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    "python -m splitjax.data", description=__doc__
  )
  place = argparse.ArgumentParser(add_help=False)
  place.add_argument(
    "--data_dir",
    help="where prepared data are (TFDS_DATA_DIR or ~/tensorflow_datasets)",
  )
  commands = parser.add_subparsers(dest="command", required=True)
  commands.add_parser(
    "list", parents=[place], help="which there are, and where"
  )
  named = argparse.ArgumentParser(add_help=False)
  named.add_argument("name", metavar="NAME", help=", ".join(sources.SOURCES))
  get = commands.add_parser(
    "prepare", parents=[named, place], help="write it in the form runs read"
  )
  get.add_argument(
    "--from",
    dest="folder",
    metavar="DIR",
    help="folder with the official files; without it they are downloaded",
  )
  commands.add_parser(
    "check", parents=[named, place], help="compare it with what is known of it"
  )
  return parser


def main(argv: Sequence[str] | None = None) -> int:
  """Runs a command.

  Args:
    argv: the words after the program's name; None: those of the process.

  Returns:
    The exit code: 0, or 2 after an error the user can mend.
  """
  args = _parser().parse_args(argv)
  try:
    if args.command == "list":
      _list(args.data_dir)
    elif args.command == "prepare":
      _prepare(args.name, args.folder, args.data_dir)
    else:
      _check(args.name, args.data_dir)
  except (UserError, OSError) as error:  # OSError: a full or read-only disk
    print(f"error: {error}", file=sys.stderr)
    return 2
  return 0


if __name__ == "__main__":
  sys.exit(main())
