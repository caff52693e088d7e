"""Lists, prepares and checks data sets.

python -m splitjax.data list
python -m splitjax.data prepare cifar10               downloads
python -m splitjax.data prepare cifar10 --from DIR    no network
python -m splitjax.data check cifar10
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from tqdm import tqdm

from splitjax.data import check, npz, sources, tfds_store
from splitjax.data.facts import FACTS
from splitjax.data.official import prepare
from splitjax.data.official.catalog import STORES
from splitjax.text import print_anywhere
from splitjax.types import UserError


def _status(name: str, data_dir: str | None) -> str:
  """Describes where a data set is, or why it is not usable."""
  if name.startswith(npz.PREFIX):
    return "your own arrays, read as they are"
  store = FACTS[name].store
  if store is None:
    return "bundled with scikit-learn"
  try:
    folder = tfds_store.find(store, data_dir)
    if folder is None:
      return f"not prepared in {tfds_store.root(data_dir)}"
    modified = " (modified files)" if tfds_store.note(folder) else ""
  except UserError as error:
    return f"unusable: {error}"
  return f"prepared in {folder}{modified}"


def _list(data_dir: str | None) -> None:
  """Prints a table of all data sets: sizes, size of the download, and place."""
  row = "{:<16}{:>8}{:>9}{:>8}{:>8}{:>12}  {}"
  head = "name", "classes", "image", "train", "test", "download", "where"
  print(row.format(*head))
  for name, facts in FACTS.items():
    shape = "x".join(map(str, facts.shape))
    counts = facts.classes, shape, facts.train or "-", facts.test or "-"
    megabytes = "-"
    if facts.store:
      files = STORES[facts.store].forms[0].files.values()
      sizes = [file.size for file in files if file.size]
      if len(sizes) == len(files):
        megabytes = f"{sum(sizes) / 1e6:.0f} MB"
    print(row.format(name, *counts, megabytes, _status(name, data_dir)))
  own_file = f"{npz.PREFIX}PATH"
  print(row.format(own_file, *"-----", _status(own_file, data_dir)))


def _prepare(args: argparse.Namespace) -> None:
  name = sources.known(args.name)
  store = None if name.startswith(npz.PREFIX) else FACTS[name].store
  before, after = "", ""
  if store:
    if args.folder is not None and tfds_store.find(store, args.data_dir):
      before, after = "already ", f"; {args.folder} was not read"
    folder = prepare.prepare(
      store, args.data_dir, args.folder, allow_modified=args.allow_modified
    )
    if note := tfds_store.note(folder):
      _print_error(f"warning: {note}")
    if remark := STORES[store].remark:
      print(f"{name}: {remark}")
  elif args.folder is not None or args.allow_modified:
    raise UserError(
      f"{name} needs no preparing ({_status(name, args.data_dir)}): leave out "
      "--from and --allow-modified"
    )
  elif name.startswith(npz.PREFIX):
    npz.load_npz(name)  # raises UserError where the file is missing or invalid
  print(f"{name}: {before}{_status(name, args.data_dir)}{after}")


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
    "list", parents=[place], help="all data sets, and where they are"
  )
  named = argparse.ArgumentParser(add_help=False)
  named.add_argument(
    "name",
    metavar="NAME",
    help=f"{', '.join(sources.SOURCES)}, or {npz.PREFIX}PATH",
  )
  get = commands.add_parser(
    "prepare",
    parents=[named, place],
    help="convert official files to the format that runs read",
  )
  get.add_argument(
    "--from",
    dest="folder",
    metavar="DIR",
    help="folder with the official files under their official names; by "
    "default they are downloaded into DATA_DIR/downloads",
  )
  get.add_argument(
    "--allow-modified",
    action="store_true",
    help="accept files of --from that differ from the official ones; every "
    "report on the data will say so",
  )
  commands.add_parser(
    "check",
    parents=[named, place],
    help="compare a data set with its known facts",
    description="Compares counts, shapes, types and class sizes of a data set "
    "with the known ones, and says whether it came from modified files. It "
    f"reads the copy in DATA_DIR/{tfds_store.COPIES} that runs memory-map, and "
    "makes that copy first where it is missing or stale.",
  )
  return parser


def main(argv: Sequence[str] | None = None) -> int:
  """Runs a command.

  Args:
    argv: the arguments; None: sys.argv[1:].

  Returns:
    The exit code: 0 after success, 2 after a user error, 130 if interrupted,
    143 if terminated (SIGTERM).
  """
  args = _parser().parse_args(argv)
  try:
    if args.command == "list":
      _list(args.data_dir)
    elif args.command == "prepare":
      _prepare(args)
    else:
      check.check_facts(args.name, args.data_dir)
  except (UserError, OSError) as error:  # OSError: a full or read-only disk
    _print_error(f"error: {error}")
    return 2
  except KeyboardInterrupt as error:
    cause = str(error) or "interrupted"
    _print_error(
      f"{cause}: no incomplete files are left; the same command starts again"
    )
    return 143 if cause == "terminated" else 130
  return 0


def _terminate(*_: object) -> NoReturn:
  """Handles SIGTERM with the same clean-up as KeyboardInterrupt."""
  signal.signal(signal.SIGTERM, signal.SIG_IGN)  # ignores a second one
  raise KeyboardInterrupt("terminated")


def _print_error(text: str) -> None:
  """Prints a line to stderr, above any progress bar."""
  tqdm.write(text, file=sys.stderr)


def run(argv: Sequence[str] | None = None) -> NoReturn:
  """Runs `main` and exits with its code; also cleans up after SIGTERM."""
  print_anywhere()
  if signal.getsignal(signal.SIGTERM) != signal.SIG_IGN:  # as supervisors may
    signal.signal(signal.SIGTERM, _terminate)
  sys.exit(main(argv))


if __name__ == "__main__":
  run()
