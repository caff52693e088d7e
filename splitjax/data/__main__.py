"""Lists and prepares data sets.

python -m splitjax.data list
python -m splitjax.data prepare cifar10
"""

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from splitjax.data import sources, store
from splitjax.data.official import OFFICIAL, prepare
from splitjax.files import print_anywhere
from splitjax.types import UserError


def _state(name: str, data_dir: str | None) -> str:
  """Says whether an official data set is prepared, and where it lies."""
  folder = store.root(data_dir) / name
  if not folder.exists():
    return f"not prepared in {folder.parent}"
  note = store.read(folder)[1].get("note", "")
  return f"prepared in {folder}{note and f' ({note})'}"


def _list(data_dir: str | None) -> None:
  """Prints the name, classes, inputs and folder of every data set."""
  row = "{:<16}{:>8}{:>10}  {}"
  print(row.format("name", "classes", "inputs", "where"))
  for name, (shape, classes) in sources.FORMS.items():
    state = _state(name, data_dir) if name in OFFICIAL else "is bundled"
    print(row.format(name, classes, "x".join(map(str, shape)), state))
  print(row.format("npz:PATH", "-", "-", "a file or a folder of your own"))
  print(row.format("tfds:NAME", "-", "-", "prepared by TensorFlow Datasets"))


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    "python -m splitjax.data",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  folder = argparse.ArgumentParser(add_help=False)
  text = "folder of all prepared data (SPLITJAX_DATA or ~/splitjax_data)"
  folder.add_argument("--data_dir", metavar="DIR", help=text)
  commands = parser.add_subparsers(dest="command", required=True)
  commands.add_parser("list", parents=[folder], help="all data sets")
  text = (
    "convert official files to the arrays that runs read; files are downloaded"
    " into DIR/downloads/NAME unless they lie there already"
  )
  preparing = commands.add_parser("prepare", parents=[folder], help=text)
  preparing.add_argument("name", metavar="NAME", choices=[*OFFICIAL])
  text = (
    "accept files that differ from the official ones; every report on the data"
    " will say so"
  )
  preparing.add_argument("--allow-modified", action="store_true", help=text)
  return parser


def main(argv: Sequence[str] | None = None) -> int:
  """Runs a command; returns 0, 2 after a user error, 130 if interrupted."""
  args = _parser().parse_args(argv)
  try:
    if args.command == "list":
      _list(args.data_dir)
    else:
      prepare(args.name, args.data_dir, allow_modified=args.allow_modified)
      print(f"{args.name}: {_state(args.name, args.data_dir)}")
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
