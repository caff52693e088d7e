"""The command line, in a process of its own or in this one."""

import copy
import subprocess
import sys
from pathlib import Path

from splitjax import cli

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """
import sys
sys.path.insert(0, {helpers!r})
import runs, undrawn
undrawn.draw_nothing()
def get_config():
  return runs.draft({name!r})
"""


def launch(path, workdir, *more, before=(), cache=ROOT / ".jax_cache"):
  """Starts launch.py in a process of its own."""
  command = [sys.executable, "launch.py", f"--config={path}", *more]
  command += [f"--workdir={workdir}", f"--compilation_cache={cache}"]
  pipe = subprocess.PIPE
  return subprocess.Popen(
    [*before, *command], cwd=ROOT, stdout=pipe, stderr=pipe, text=True
  )


def python(*arguments):
  """Runs Python in a process of its own, to its end."""
  command = [sys.executable, *arguments]
  return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def parsed(*arguments) -> cli.Command:
  """Parses the arguments of launch.py."""
  return cli.parse(["launch.py", *map(str, arguments)])


def command(mode, evaluation="evaluate", **parts) -> cli.Command:
  """A command whose parts are made in Python."""
  flags = copy.deepcopy(cli.FLAGS)
  flags(["launch.py", f"--mode={mode}", f"--evaluation={evaluation}"])
  return cli.Command(flags, **parts)


def launch_here(*arguments) -> int:
  """Parses flags and carries them out in this process; the exit status."""
  try:
    command = parsed(*arguments)
  except Exception as error:
    return cli.fail(error, debug="--debug" in arguments)
  return cli.launch(command)


def config_file(folder, name):
  """Writes a config file of `runs.draft(name)`; its path."""
  path = folder / "config_of_test.py"
  path.write_text(CONFIG.format(helpers=str(ROOT / "tests/helpers"), name=name))
  return path
