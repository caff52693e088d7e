"""Lists and prepares data sets.

python -m splitjax.data list
python -m splitjax.data prepare cifar10
"""

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from splitjax.data import official, sources, store
from splitjax.data.store import Folder
from splitjax.files import print_anywhere
from splitjax.types import UserError


def _list(data_dir: Folder) -> None:
  """Prints the name, classes, inputs and folder of every data set."""
  row = "{:<16}{:>8}{:>10}  {}"
  print(row.format("name", "classes", "inputs", "where"))
  for name, (shape, classes) in sources.FORMS.items():
    sizes = "x".join(map(str, shape))
    print(row.format(name, classes, sizes, _state(name, data_dir)))
  texts = {
    f"{sources.NPZ}PATH": "an npz file or a folder of your own",
    f"{sources.TFDS}NAME": "prepared by TensorFlow Datasets",
  }
  for name, text in texts.items():
    print(row.format(name, "-", "-", text))


def _state(name: str, data_dir: Folder) -> str:
  """Says whether a data set is prepared, and where it lies."""
  folder = store.root(data_dir) / name
  if name not in official.OFFICIAL:
    return "needs no preparing"
  if not folder.exists():
    return f"not prepared in {folder.parent}"
  try:
    facts = store.read(folder)[1]
  except UserError as error:
    return f"unusable: {error}"
  return f"prepared in {folder}" + " (modified)" * ("note" in facts)


def _prepare(name: str, data_dir: Folder, *, allow_modified: bool) -> None:
  if name in official.OFFICIAL:
    folder = official.prepare(name, data_dir, allow_modified=allow_modified)
    note = store.read(folder)[1].get("note")
    for remark in (official.OFFICIAL[name].remark, note):
      if remark:
        print(f"{name}: {remark}")
  else:
    sources.load(name, data_dir=data_dir)  # raises UserError if it is invalid
  print(f"{name}: {_state(name, data_dir)}")


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    "python -m splitjax.data",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  folder = argparse.ArgumentParser(add_help=False)
  folder.add_argument(
    "--data_dir",
    metavar="DIR",
    help="folder of all prepared data (SPLITJAX_DATA or ~/splitjax_data); a run"
    " takes the same as --data_dir=DIR",
  )
  commands = parser.add_subparsers(dest="command", required=True)
  commands.add_parser("list", parents=[folder], help="all data sets")
  prepare = commands.add_parser(
    "prepare",
    parents=[folder],
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
