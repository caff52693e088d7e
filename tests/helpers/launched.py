"""The command line on a run of four rounds, in a process of its own."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """
import sys
sys.path.insert(0, {helpers!r})
import runs
def get_config():
  return runs.draft({name!r})
"""


def launch(path, workdir, *more, before=(), cache=ROOT / ".jax_cache"):
  """The command line, in a process of its own."""
  command = [sys.executable, "launch.py", f"--config={path}", *more]
  command += [f"--workdir={workdir}", f"--compilation_cache={cache}"]
  pipe = subprocess.PIPE
  return subprocess.Popen(
    [*before, *command], cwd=ROOT, stdout=pipe, stderr=pipe, text=True
  )


def config_file(folder, name):
  path = folder / "config_of_test.py"
  path.write_text(CONFIG.format(helpers=str(ROOT / "tests/helpers"), name=name))
  return path
