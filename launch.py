"""The command `splitjax` from a checkout: python launch.py --config=..."""

from absl import flags as absl_flags

from splitjax import flags
from splitjax.flags import command, main, parse

absl_flags.adopt_module_key_flags(flags)  # for --help

if __name__ == "__main__":
  flags.run()

__all__ = ["command", "main", "parse"]
