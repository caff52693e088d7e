"""Lists, prepares and checks data sets.

python -m splitjax.data list
python -m splitjax.data prepare cifar10               downloads
python -m splitjax.data prepare cifar10 --from DIR    no network
python -m splitjax.data check cifar10
"""

import argparse
import sys
from collections.abc import Sequence

from tqdm import tqdm

from splitjax.data import check, own, sources, tfds_store
from splitjax.data.official import prepare
from splitjax.data.official.stores import STORES
from splitjax.types import UserError


def _where(name: str, data_dir: str | None) -> str:
  """Says where a data set is, in a word or a path."""
  if name.startswith(own.PREFIX):
    return "your own arrays, read as they are"
  store = sources.FACTS[name].store
  if store is None:
    return "bundled with scikit-learn"
  try:
    folder = tfds_store.find(store, data_dir)
    if folder is None:
      return f"not prepared in {tfds_store.root(data_dir)}"
    odd = " (modified files)" if tfds_store.note(folder) else ""
  except UserError as error:
    return f"unusable: {error}"
  return f"prepared in {folder}{odd}"


def _list(data_dir: str | None) -> None:
  """Prints name, classes, shape, sizes, download and place of all data sets."""
  row = "{:<16}{:>8}{:>9}{:>8}{:>8}{:>12}  {}"
  head = "name", "classes", "image", "train", "test", "download", "where"
  print(row.format(*head))
  for name, facts in sources.FACTS.items():
    shape = "x".join(map(str, facts.shape))
    counts = facts.classes, shape, facts.train, facts.test
    megabytes = "-"
    if facts.store:
      files = STORES[facts.store].forms[0].files.values()
      megabytes = f"{sum(file.size for file in files) / 1e6:.0f} MB"
    print(row.format(name, *counts, megabytes, _where(name, data_dir)))
  own_file = f"{own.PREFIX}PATH"
  print(row.format(own_file, *"-----", _where(own_file, data_dir)))


def _prepare(args: argparse.Namespace) -> None:
  """Prepares a data set from official files: downloaded, or in a folder."""
  name = sources.known(args.name)
  store = None if name.startswith(own.PREFIX) else sources.FACTS[name].store
  if store:
    folder = prepare.prepare(
      store, args.data_dir, args.folder, allow_modified=args.allow_modified
    )
    if note := tfds_store.note(folder):
      _complain(f"warning: {note}")
    if remark := STORES[store].remark:
      print(f"{name}: {remark}")
  print(f"{name}: {_where(name, args.data_dir)}")


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
    help="where prepared data are (TFDS_DATA_DIR or ~/tensorflow_datasets)",
  )
  commands = parser.add_subparsers(dest="command", required=True)
  commands.add_parser(
    "list", parents=[place], help="which there are, and where"
  )
  named = argparse.ArgumentParser(add_help=False)
  named.add_argument(
    "name",
    metavar="NAME",
    help=f"{', '.join(sources.SOURCES)}, or {own.PREFIX}PATH",
  )
  get = commands.add_parser(
    "prepare",
    parents=[named, place],
    help="write it in the form runs read",
    description="Writes a data set in the form that runs read, from its "
    "official files. They are downloaded and verified, or taken from a folder.",
  )
  get.add_argument(
    "--from",
    dest="folder",
    metavar="DIR",
    help="folder with the official files under their official names; without "
    "it they are downloaded into DATA_DIR/downloads",
  )
  get.add_argument(
    "--allow-modified",
    action="store_true",
    help="take files of --from that differ from the official ones; every "
    "report on the data will say so",
  )
  commands.add_parser(
    "check",
    parents=[named, place],
    help="compare it with what is known of it",
    description="Compares counts, shapes, types and class sizes of a data set "
    "with what is known of it, and says if it came from modified files.",
  )
  return parser


def main(argv: Sequence[str] | None = None) -> int:
  """Runs a command.

  Args:
    argv: the words after the program's name; None: those of the process.

  Returns:
    The exit code: 0, 2 after an error the user can mend, 130 if interrupted.
  """
  args = _parser().parse_args(argv)
  try:
    if args.command == "list":
      _list(args.data_dir)
    elif args.command == "prepare":
      _prepare(args)
    else:
      check.check(args.name, args.data_dir)
  except (UserError, OSError) as error:  # OSError: a full or read-only disk
    _complain(f"error: {error}")
    return 2
  except KeyboardInterrupt:
    _complain(
      "interrupted: nothing half-done is left; the same command starts again"
    )
    return 130
  return 0


def _complain(text: str) -> None:
  """Prints a line of error, above a bar that was at work."""
  tqdm.write(text, file=sys.stderr)


if __name__ == "__main__":
  sys.exit(main())
