"""Prepares data sets: python -m splitjax.data prepare cifar10."""

import argparse
import sys
from collections.abc import Sequence

from splitjax.data import store
from splitjax.data.official import OFFICIAL, prepare
from splitjax.types import UserError


def main(argv: Sequence[str] | None = None) -> int:
  """Prepares a data set; returns 0, 2 after an error, 130 if interrupted."""
  parser = argparse.ArgumentParser("python -m splitjax.data")
  add = parser.add_argument
  text = (
    "convert official files, of DIR/downloads/NAME or downloaded, to arrays"
  )
  add("command", choices=["prepare"], help=text)
  add("name", metavar="NAME", choices=[*OFFICIAL])
  text = "folder of all prepared data (SPLITJAX_DATA or ~/splitjax_data)"
  add("--data_dir", metavar="DIR", help=text)
  text = "accept files that are not the official ones; every report will say so"
  add("--allow-modified", action="store_true", help=text)
  args = parser.parse_args(argv)
  name = args.name
  try:
    folder = prepare(name, args.data_dir, allow_modified=args.allow_modified)
    note = store.read(name, folder).note
    print(f"{name}: prepared in {folder}{note and f' ({note})'}")
  except (UserError, OSError) as error:
    print(f"error: {error}", file=sys.stderr)
    return 2
  except KeyboardInterrupt:
    print("interrupted: the same command starts again", file=sys.stderr)
    return 130
  return 0


if __name__ == "__main__":
  sys.exit(main())
