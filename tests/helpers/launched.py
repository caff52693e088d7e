"""The command line, in a process of its own or in this one."""

import subprocess
import sys
from pathlib import Path

from absl.testing import flagsaver

import launch as launch_py
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


def launch_here(*arguments) -> int:
  """Parses flags and carries them out in this process; the exit status."""
  argv = ["launch.py", *map(str, arguments)]
  before = sys.argv
  with flagsaver.flagsaver():
    sys.argv = argv  # ml_collections looks for overrides there
    try:
      launch_py.parse(argv)
      return cli.launch(launch_py.command())
    except SystemExit as end:
      return int(end.code)
    finally:
      sys.argv = before


def config_file(folder, name):
  """Writes a config file of `runs.draft(name)`; its path."""
  path = folder / "config_of_test.py"
  path.write_text(CONFIG.format(helpers=str(ROOT / "tests/helpers"), name=name))
  return path
