"""The wheel, unpacked and used from an empty directory."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MINE = """
from configs import settings
from splitjax import METHODS, spec, compare
def get_config(text="small"):
  c = settings.begin(text, "Mine")
  compare(c, {"mine": spec(METHODS, "local")})
  return c
"""


@pytest.fixture(scope="module", name="site")
def unpacked_wheel(tmp_path_factory):
  """A folder with what the wheel installs."""
  folder = tmp_path_factory.mktemp("wheel")
  made = subprocess.run(
    [
      sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--quiet",
      "--wheel-dir", str(folder),
    ],
    capture_output=True,
    text=True,
  )  # fmt: skip
  if made.returncode:
    pytest.skip("no wheel can be built, perhaps without a network")
  (path,) = folder.glob("*.whl")
  with zipfile.ZipFile(path) as file:
    file.extractall(folder / "site")
  return folder / "site"


@pytest.fixture(name="command")
def in_an_empty_folder(site, tmp_path):
  def run(*arguments):
    return subprocess.run(
      [sys.executable, "-m", "splitjax", *arguments],
      cwd=tmp_path,
      env={**os.environ, "PYTHONPATH": str(site)},
      capture_output=True,
      text=True,
    )

  return run


@pytest.mark.slow
def test_configs_by_name_and_ones_own(command, tmp_path):
  told = command("describe", "--config=quickstart", "--config.roundz=3")
  assert "unknown field 'roundz'; did you mean 'rounds'?" in told.stderr
  (tmp_path / "mine.py").write_text(MINE)
  told = command("describe", "--config=mine.py:small")
  assert told.returncode == 0, told.stderr
  assert "Method mine (local)" in told.stdout
  # A folder of configs of one's own does not stand in the way.
  (tmp_path / "configs").mkdir()
  (tmp_path / "configs" / "__init__.py").write_text("")
  told = command("describe", "--config=harmony_figure2:small,nobody")
  assert "'nobody' is none of paper, small" in told.stderr


def command_line(*arguments):
  return subprocess.run(
    [sys.executable, "-m", "splitjax", *arguments],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )


def test_what_is_no_command_or_config_is_one_line():
  told = command_line("fly")
  assert told.returncode == 1
  assert told.stderr == (
    "error: 'fly' is no command of splitjax; choose from train, evaluate,"
    " report, describe, export, data\n"
  )
  told = command_line("describe", "--config", "quikstart")
  assert "did you mean 'quickstart'? (the nearest of" in told.stderr
  assert len(told.stderr.splitlines()) == 1
