"""The wheel, installed and used from an empty directory."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from splitjax import cli

ROOT = Path(__file__).resolve().parents[2]
OWN = """
import beside
import numpy as np
from configs import settings
from sklearn.datasets import load_digits

import splitjax
from splitjax import BACKBONES, METHODS


def mine(shape, classes, *, depths: tuple[int, ...] = (1,)):
  return BACKBONES["toy"](shape, classes, depths=depths)


BACKBONES["mine"] = mine
pixels, label = load_digits(return_X_y=True)
image = (15 * pixels.reshape(-1, 8, 8)).astype("uint8")
np.savez("own.npz", train_image=image[:900], train_label=label[:900],
         test_image=image[900:1000], test_label=label[900:1000])


def get_config():
  c = settings.begin("small", "Mine")
  c.backbone = splitjax.default(backbone="mine").backbone
  c.data.name, c.num_clients, c.rounds = "npz:own.npz", 3, 2
  splitjax.compare(c, {"splitgp": splitjax.spec(METHODS, "splitgp")})
  return c
"""


@pytest.fixture(scope="module", name="command")
def installed_wheel(tmp_path_factory):
  """Runs the installed command in an empty folder, which it returns with it."""
  folder = tmp_path_factory.mktemp("wheel")
  sources = folder / "sources"
  listed = ["git", "-C", str(ROOT), "ls-files", "-z"]
  found = subprocess.run(listed, check=True, capture_output=True, text=True)
  for name in found.stdout.split("\0"):
    if (ROOT / name).is_file():
      (sources / name).parent.mkdir(parents=True, exist_ok=True)
      shutil.copy(ROOT / name, sources / name)
  pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
  build = [*pip, "wheel", "--no-deps", "--wheel-dir", "dist", "."]
  done = subprocess.run(build, cwd=sources, capture_output=True, text=True)
  if done.returncode and "No matching distribution" in done.stderr:
    pytest.skip("setuptools cannot be had: no network")
  assert done.returncode == 0, done.stderr
  (wheel,) = (sources / "dist").glob("*.whl")
  check = [sys.executable, "-m", "twine", "check", "--strict", str(wheel)]
  checked = subprocess.run(check, capture_output=True, text=True)
  assert checked.returncode == 0, checked.stdout + checked.stderr
  # An environment with the libraries of this one, and the wheel.
  venv.create(folder / "env", with_pip=False)
  python = folder / "env/bin/python"
  (site,) = (folder / "env").glob("lib/python*/site-packages")
  (site / "libraries.pth").write_text(sysconfig.get_path("purelib"))
  install = ["install", "--no-deps", "--no-index", str(wheel)]
  subprocess.run([*pip, "--python", str(python), *install], check=True)
  empty = folder / "empty"
  empty.mkdir()

  def run(*arguments):
    return subprocess.run(
      [folder / "env/bin/splitjax", *arguments],
      cwd=empty,
      env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
      capture_output=True,
      text=True,
    )

  return run, empty


@pytest.mark.slow
def test_from_the_wheel_to_a_run(command):
  """By config name; own network and data."""
  run, folder = command
  # A folder of configs of one's own does not stand in the way.
  (folder / "configs").mkdir()
  (folder / "configs" / "__init__.py").write_text("")
  short = "--config.rounds=1", "--config.local_epochs=1"
  told = run("train", "--config=quickstart:splitfed_v1", "--workdir=q", *short)
  assert told.returncode == 0, told.stderr
  assert told.stdout.endswith('load     splitjax.load("q", "splitfed_v1")\n')
  # One of somebody else, which is no package, neither.
  (folder / "configs" / "__init__.py").unlink()
  (folder / "own.py").write_text(OWN)
  (folder / "beside.py").write_text("")
  told = run("train", "--config=own.py", "--workdir=own")
  assert told.returncode == 0, told.stderr
  line = 'load     splitjax.load("own", "splitgp", config="own.py")'
  assert told.stdout.splitlines()[-1] == line
  assert (folder / "own/report.md").exists()


def test_help_lists_the_flags(capsys, monkeypatch):
  # As the console script calls it, whose own module is another.
  monkeypatch.setattr(sys, "argv", ["splitjax", "describe", "--help"])
  with pytest.raises(SystemExit):
    cli.run()
  said = capsys.readouterr().out
  for flag in ("config", "workdir", "cpu_devices"):
    assert f"  --{flag}: " in said or f"  --[no]{flag}: " in said
  assert "splitjax data prepare" in said
