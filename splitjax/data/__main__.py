"""Lists and prepares data sets.

python -m splitjax.data list
python -m splitjax.data prepare cifar10
"""

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from splitjax.data import official, sources, store
from splitjax.data.store import Place
from splitjax.files import print_anywhere
from splitjax.types import UserError

_OF = {"cifar100_coarse": "cifar100", "femnist": "emnist_byclass"}
"""Data set -> the prepared one that it is read from."""


def _list(data_dir: Place) -> None:
  """Prints the name, classes, inputs and place of every data set."""
  row = "{:<16}{:>8}{:>10}  {}"
  print(row.format("name", "classes", "inputs", "where"))
  for name in sources.SOURCES:
    classes, sizes, where = "-", "-", _where(name, data_dir)
    if form := sources.FORMS.get(name):
      classes, sizes = str(form.classes), "x".join(map(str, form.shape))
    print(row.format(name, classes, sizes, where))
  for name, where in (
    (f"{sources.NPZ}PATH", "an npz file or a folder of your own"),
    (f"{sources.TFDS}NAME", "prepared by TensorFlow Datasets"),
  ):
    print(row.format(name, "-", "-", where))


def _where(name: str, data_dir: Place) -> str:
  """Says where a data set lies."""
  folder = store.root(data_dir) / _OF.get(name, name)
  if folder.name not in official.OFFICIAL:
    return "needs no preparing"
  try:
    facts = store.read(folder)[1] if folder.exists() else None
  except UserError as error:
    return f"unusable: {error}"
  if facts is None:
    return f"not prepared in {folder.parent}"
  return f"prepared in {folder}" + " (modified)" * bool(facts.get("note"))


def _prepare(name: str, data_dir: Place, *, allow_modified: bool) -> None:
  name = sources.known(name)
  if (base := _OF.get(name, name)) in official.OFFICIAL:
    folder = official.prepare(base, data_dir, allow_modified=allow_modified)
    _, facts = store.read(folder)
    for remark in (official.OFFICIAL[base].remark, facts.get("note")):
      if remark:
        print(f"{name}: {remark}")
  else:
    sources.load(name, data_dir=data_dir)  # raises UserError if it is invalid
  print(f"{name}: {_where(name, data_dir)}")


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    "python -m splitjax.data",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  place = argparse.ArgumentParser(add_help=False)
  place.add_argument(
    "--data_dir",
    metavar="DIR",
    help="folder of all prepared data (SPLITJAX_DATA or ~/splitjax_data); a run"
    " takes the same as --data_dir=DIR",
  )
  commands = parser.add_subparsers(dest="command", required=True)
  commands.add_parser("list", parents=[place], help="all data sets")
  prepare = commands.add_parser(
    "prepare",
    parents=[place],
    help="convert official files to the arrays that runs read; files are"
    " downloaded into DIR/downloads/NAME unless they lie there already",
  )
  prepare.add_argument("name", metavar="NAME", help=", ".join(sources.SOURCES))
  prepare.add_argument(
    "--allow-modified",
    action="store_true",
    help="accept files in DIR/downloads/NAME that differ from the official"
    " ones; every report on the data will say so",
  )
  return parser


def main(argv: Sequence[str] | None = None) -> int:
  """Runs a command; returns 0, 2 after a user error, 130 if interrupted."""
  args = _parser().parse_args(argv)
  try:
    if args.command == "list":
      _list(args.data_dir)
    else:
      _prepare(args.name, args.data_dir, allow_modified=args.allow_modified)
  except (UserError, OSError) as error:  # OSError: a full or read-only disk
    print(f"error: {error}", file=sys.stderr)
    return 2
  except KeyboardInterrupt:
    print("interrupted: the same command starts again", file=sys.stderr)
    return 130
  return 0


def run(argv: Sequence[str] | None = None) -> NoReturn:
  """Runs `main` and exits with its code."""
  print_anywhere()
  sys.exit(main(argv))


if __name__ == "__main__":
  run()
