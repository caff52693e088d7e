"""The command `splitjax`, also `python -m splitjax`.

  splitjax train --config=quickstart --workdir=runs/quickstart
  splitjax describe --config=harmony_figure2:small
  splitjax evaluate|report --workdir=DIR
  splitjax report DIR DIR... [--workdir=DIR]   one table over finished runs
  splitjax data list|prepare

The flags are those of launch.py (`splitjax train --help`). A config is a file,
or the name of one that comes with splitjax.
"""

import sys

from splitjax import flags
from splitjax.text import print_anywhere

HELP = ("-h", "-help", "--help", "help")


def main() -> None:
  """Runs the subcommand, or else what the flag --mode says (default: train)."""
  print_anywhere()
  program, *rest = sys.argv
  word = rest[0] if rest else "--help"
  if word == "data":
    from splitjax.data.__main__ import run as data

    data(rest[1:])
  if word in HELP:
    print(__doc__.strip())
    return
  if {*HELP[:-1]} & {*rest}:
    # absl would describe the flags of the started module only.
    print(f"{__doc__.strip()}\n\n{flags.usage()}")
    return
  if word in flags.MODES:
    if again := [a for a in rest[1:] if a.lstrip("-").startswith("mode=")]:
      flags.fail(f"{again[0]}: the command is {word} already; leave it out")
    sys.argv = [program, f"--mode={word}", *rest[1:]]
  elif not word.startswith("-"):
    known = ", ".join([*flags.MODES, "data"])
    flags.fail(f"{word!r} is no command of splitjax; choose from {known}")
  flags.run()


if __name__ == "__main__":
  main()
