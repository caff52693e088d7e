"""The command line as a user types it, in a process of its own."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

import splitjax
from splitjax import METHODS, Config, cli
from splitjax import files as file_io
from splitjax.experiment import grid
from splitjax.experiment.storage import workdir as workdirs

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """
import sys
sys.path.insert(0, {tests!r})
import tiny
def get_config():
  return tiny.tiny(local="local")
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory):
  path = tmp_path_factory.mktemp("config") / "tiny_local.py"
  path.write_text(CONFIG.format(tests=str(ROOT / "tests")))
  return path


def launch(*arguments):
  return subprocess.run(
    [
      sys.executable,
      "launch.py",
      f"--compilation_cache={ROOT / '.jax_cache'}",
      *map(str, arguments),
    ],
    cwd=ROOT,
    capture_output=True,
    text=True,
    env={**os.environ, "PYTHONUTF8": "1"},
  )


def test_train_report_evaluate_and_export(config, tmp_path):
  workdir = tmp_path / "run"
  done = launch(f"--config={config}", f"--workdir={workdir}")
  assert done.returncode == 0, done.stderr
  assert "local: round 2/2" in done.stdout and "accuracy" in done.stdout
  assert "Traceback" not in done.stderr
  assert f"tensorboard --logdir={workdir}/tensorboard" in done.stdout
  assert done.stdout.splitlines()[-1].endswith("report.md has it in full.")
  again = launch("--mode=report", f"--workdir={workdir}")
  assert again.returncode == 0, again.stderr
  assert again.stdout.splitlines()[-1].endswith("report.md has it in full.")
  looked = launch("--mode=evaluate", f"--workdir={workdir}")
  assert looked.returncode == 0, looked.stderr
  assert (workdir / "evaluate" / "report.md").exists()
  taken = launch("--mode=export", f"--workdir={workdir}", "--client=5")
  assert taken.returncode == 0, taken.stderr
  folder = workdir / "export" / "local" / "client5"
  assert str(folder) in taken.stdout.splitlines()
  files = {path.name for path in folder.iterdir()}
  assert files == {"client.bin", "card.json", "README.md"}


def test_an_override_reaches_the_run(config):
  done = launch(
    f"--config={config}",
    "--mode=describe",
    "--format=json",
    "--config.batch_size=5",
    "--config.rounds=7",
  )
  assert done.returncode == 0, done.stderr
  steps = json.loads(done.stdout)["methods"]["local"]["local_steps"]
  assert steps == {"round": 4, "run": 28}  # 20 samples in batches of 5


@pytest.mark.parametrize(
  ("arguments", "words"),
  [
    (["--config.roundz=3"], "did you mean 'rounds'"),
    (["--config.optimzer.lr=3"], "did you mean 'optimizer.lr'"),
    (["--config.optimizer.lr=x"], "--config.optimizer.lr=x must be a number"),
    (["--config.rounds=3", "--sweep=rounds=1,2"], "the field is swept"),
    (["--seeds=2147483648"], "--seeds=2147483648 must be"),
    (["--config=nowhere.py"], "nowhere.py"),
    (["--config.rounds=ten"], "ten"),
    (["--config.rounds=0"], "rounds=0"),
    (["--config.backbone.depths=(1,9)"], "cannot be cut at 9"),
    (["--seeds=0,x"], "--seeds"),
    (["--mode=evaluate"], "holds no run"),
    (["--mode=describe", "--overwrite"], "--overwrite has no meaning"),
    (["--client=3"], "--client has no meaning with --mode=train"),
    (["--mode=export", "--client=3"], "holds no run"),
    (["--mode=export", "--client=three"], "three"),
  ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
  config, tmp_path, arguments, words
):
  workdir = tmp_path / "w"
  done = launch(f"--config={config}", f"--workdir={workdir}", *arguments)
  assert done.returncode != 0
  assert "Traceback" not in done.stderr
  said = [line for line in done.stderr.splitlines() if line.strip()]
  assert len(said) == 1 and said[0].startswith("error: ")
  assert words in said[0]
  assert not workdir.exists()


@pytest.mark.parametrize(
  ("name", "argument"),
  [
    ("quickstart", ()),
    ("fmnist_small", ()),
  ],
)
def test_shipped_configs_resolve(name, argument):
  spec = importlib.util.spec_from_file_location(
    name, ROOT / "configs" / f"{name}.py"
  )
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  resolved = Config.from_dict(module.get_config(*argument).to_dict())
  assert resolved.title


def test_compiled_programs_are_kept(config, tmp_path):
  cache = tmp_path / "cache"
  arguments = (f"--config={config}", f"--compilation_cache={cache}")
  done = launch(*arguments, f"--workdir={tmp_path / 'one'}")
  assert done.returncode == 0, done.stderr
  kept = {path.name for path in cache.iterdir() if path.suffix != ".tmp"}
  assert kept
  done = launch(*arguments, f"--workdir={tmp_path / 'two'}")
  assert done.returncode == 0, done.stderr
  again = {path.name for path in cache.iterdir()}
  # Small ones are kept if they happened to take a tenth of a second.
  new = {n for n in again - kept if n.endswith("-cache")}
  assert not [n for n in new if "step" in n or "evaluate" in n]
  none = launch(
    f"--config={config}", "--compilation_cache=", f"--workdir={tmp_path / '3'}"
  )
  assert none.returncode == 0, none.stderr


def test_a_cache_that_cannot_be_is_no_matter(tmp_path):
  path = tmp_path / "file"
  path.write_text("")
  done = launch(
    "--mode=report", f"--workdir={tmp_path}", f"--compilation_cache={path}/x"
  )
  assert done.returncode == 2
  assert f"--compilation_cache={path}/x" in done.stderr
  assert "holds no run" in done.stderr


OWN = """
import sys
sys.path.insert(0, {tests!r})
import splitjax
splitjax.METHODS["mine"] = splitjax.METHODS["local"]
import tiny
def get_config():
  return tiny.tiny(own="mine")
"""


def test_a_method_of_one_s_own_is_reported_and_exported(
  monkeypatch, tmp_path, capsys
):
  monkeypatch.setitem(METHODS, "mine", METHODS["local"])
  workdir, given = tmp_path / "w", tiny.tiny(own="mine")
  given.rounds = 1
  splitjax.vary(given, {"data.partition.k": (2,)})
  tree, cell, workdir = given.to_dict(), workdir / "k=2", str(workdir)
  assert cli.launch(cli.Command("train", tree, workdir)) == 0
  monkeypatch.delitem(METHODS, "mine")
  words = "method 'mine' is not known: give the config file that registers it"
  for mode, place, more in (
    ("report", workdir, {}),
    ("report", str(cell), {}),
    ("export", str(cell), {"client": 1}),
    ("evaluate", str(cell), {}),
  ):
    capsys.readouterr()
    assert cli.launch(cli.Command(mode, None, place, **more)) == 2
    said = capsys.readouterr()
    assert f"{words} as --config=FILE" in said.err
    assert "left out" not in said.out and "nothing" not in said.err
  path = tmp_path / "own.py"
  path.write_text(OWN.format(tests=str(ROOT / "tests")))
  own = f"--config={path}"
  done = launch("--mode=report", f"--workdir={workdir}", own)
  assert done.returncode == 0, done.stderr
  monkeypatch.setitem(METHODS, "mine", METHODS["local"])
  assert cli.launch(cli.Command("export", tree, str(cell), client=1)) == 0
  assert (cell / "export" / "own" / "client1" / "client.bin").exists()


def test_a_grid_names_what_is_wrong_with_a_cell(tmp_path, capsys):
  tree = {"title": "", "fields": ["x"], "cells": [{"name": "x=1"}]}
  file_io.write_json(tmp_path / grid.GRID, tree)
  assert cli.launch(cli.Command("report", None, str(tmp_path))) == 2
  said = capsys.readouterr()
  assert "left out: " in said.out and "nothing is finished" in said.err
  (tmp_path / "x=1").mkdir()
  (tmp_path / "x=1" / workdirs.CONFIG).write_text("{")
  assert cli.launch(cli.Command("report", None, str(tmp_path))) == 2
  said = capsys.readouterr()
  assert "is damaged" in said.err and "left out" not in said.out
