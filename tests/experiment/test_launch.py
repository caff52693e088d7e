"""The command line: every mode. Mistakes: test_launch_mistakes."""

import functools
import json
import re

import jax
import numpy as np
import pytest
import tiny
from launched import config_file, launch, launch_here
from refusals import refused

import splitjax
from splitjax import (
  METHODS,
  UserError,
  cli,
  models,
)
from splitjax.experiment import machine


@pytest.fixture(scope="module")
def config(tmp_path_factory):
  return config_file(tmp_path_factory.mktemp("config"), "local")


@pytest.fixture(scope="module")
def trained(config, tmp_path_factory):
  """A run trained in a process of its own: folder and output."""
  workdir = tmp_path_factory.mktemp("trained") / "w"
  process = launch(config, workdir)
  out, err = process.communicate()
  assert process.returncode == 0, err
  assert "Traceback" not in err
  return workdir, out


def test_training_ends_with_the_table_and_where_everything_is(trained, config):
  workdir, out = trained
  lines = out.splitlines()
  assert re.fullmatch(r"devices: \d+ × .+", lines[0])
  assert lines[1] == "own: compiling"
  assert "own: round 4/4" in out and "accuracy" in out
  assert lines[-3:] == [
    f"workdir  {workdir}",
    f"report   {workdir}/report.md",
    f'load     splitjax.load("{workdir}", "own", config="{config}")',
  ]


def test_a_finished_run_is_reported_and_evaluated(trained, capsys):
  workdir, _ = trained
  assert launch_here("--mode=report", f"--workdir={workdir}") == 0
  assert f"report   {workdir}/report.md" in capsys.readouterr().out
  assert launch_here("--mode=evaluate", f"--workdir={workdir}") == 0
  assert f"{workdir}/evaluate/report.md" in capsys.readouterr().out
  assert (workdir / "evaluate/report.md").exists()


def test_an_override_reaches_the_run(config, capsys):
  assert 0 == launch_here(
    f"--config={config}",
    "--mode=describe",
    "--format=json",
    "--config.batch_size=5",
    "--config.rounds=7",
  )
  steps = json.loads(capsys.readouterr().out)["methods"]["own"]["local_steps"]
  assert steps == {"round": 4, "run": 28}  # 20 samples in batches of 5


def test_a_tilde_is_the_home_folder(config, tmp_path, monkeypatch, capsys):
  monkeypatch.setenv("HOME", str(tmp_path))
  (tmp_path / "own.py").write_text(config.read_text())
  (tmp_path / "w").mkdir()
  (tmp_path / "w" / "other").write_text("")
  for flags in (
    ["--config=~/own.py", "--workdir=~/w"],
    ["--mode=evaluate", "--workdir=~/w"],
    ["--mode=report", "~/w", "~/v"],
  ):
    assert launch_here(*flags) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{tmp_path}/w" in line
  for read in (
    lambda: splitjax.load("~/w", "a", config="~/own.py"),
    lambda: splitjax.report_again("~/w"),
    lambda: splitjax.run_seeds(tiny.tiny(), "~/w", [0]),
  ):
    with refused("--workdir"):
      read()
  with refused("config"):
    splitjax.load("~/w", "a", config="~/no.py")
  # Files that a config names may lie there, too.
  np.savez(tmp_path / "w.npz", x=np.ones(2))
  assert models.load("~/w.npz", "")["x"].sum() == 2
  monkeypatch.setattr(jax.config, "update", lambda *_: None)
  machine.keep_compiled("~/cache")
  assert (tmp_path / "cache").is_dir()


@pytest.mark.slow
def test_a_registered_method_is_reported(monkeypatch, tmp_path, capsys):
  # A method that is not part of splitjax, in a grid of one cell.
  monkeypatch.setitem(METHODS, "mine", METHODS["local"])
  c = tiny.tiny(own="mine")
  c.rounds = 1
  splitjax.vary(c, {"data.partition.k": (2,)})
  workdir = tmp_path / "w"
  cell = workdir / "k=2"
  train = cli.Command("train", splitjax.config.plan(c), workdir)
  assert cli.launch(train) == 0
  # Without its registration it is reported, but not evaluated.
  monkeypatch.delitem(METHODS, "mine")
  for place in (workdir, cell):
    assert launch_here("--mode=report", f"--workdir={place}") == 0
    assert splitjax.report_again(place).methods == {"own": "mine"}
  capsys.readouterr()
  assert launch_here("--mode=evaluate", f"--workdir={cell}") == 2
  said = capsys.readouterr().err
  assert "methods.own: unknown name 'mine'" in said and "--config=FILE" in said
  # With it the grid is reported, and its line loads the method.
  path = config_file(tmp_path, "mine")
  text = path.read_text().replace("get_config()", "get_config(words='')")
  register = 'import splitjax\nm = splitjax.METHODS\nm["mine"] = m["local"]\n'
  path.write_text(register + text)
  own = f"--config={path}:words"
  assert launch_here("--mode=report", f"--workdir={workdir}", own) == 0
  (line,) = re.findall(r"^load     (.*)$", capsys.readouterr().out, re.M)
  assert line == f'splitjax.load("{cell}", "own", config="{path}")'
  del METHODS["mine"]
  assert eval(line).config.methods["own"].name == "mine"
  with refused("config"):
    splitjax.load(cell, "own", config="nowhere.py")
  # So do the functions that read a workdir.
  for again in (
    splitjax.evaluate_again,
    functools.partial(splitjax.load, key="own"),
  ):
    del METHODS["mine"]
    with pytest.raises(UserError, match="in Python as config=FILE"):
      again(cell)
    assert again(cell, config=path)
