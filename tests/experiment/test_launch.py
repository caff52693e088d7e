"""The command line: every mode, and every mistake in one line."""

import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import tiny
from launched import ROOT, launch, launch_here, parsed
from marks import slow

import splitjax
from splitjax import (
  BACKBONES,
  METHODS,
  PARTITIONS,
  Config,
  UserError,
  commands,
  files,
)
from splitjax.engine import prepare
from splitjax.experiment import grid
from splitjax.experiment.describe import describe
from splitjax.experiment.setup import network
from splitjax.experiment.storage import workdirs
from splitjax.methods import base
from splitjax.models import pretrained
from splitjax.types import Stage

CONFIG = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests/helpers")!r})
import tiny, undrawn
undrawn.draw_nothing()
def get_config():
  c = tiny.tiny(local="local")
  c.rounds = 1
  return c
"""
pytestmark = [
  # ml_collections loads config files with a method that importlib deprecates.
  pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
  path = tmp_path_factory.mktemp("config") / "tiny_local.py"
  path.write_text(CONFIG)
  return path


@pytest.fixture(scope="module")
def trained(config, tmp_path_factory):
  """A run trained in a process of its own: folder, output and cache."""
  folder = tmp_path_factory.mktemp("trained")
  process = launch(config, folder / "w", cache=folder / "cache")
  out, err = process.communicate()
  assert process.returncode == 0, err
  assert "Traceback" not in err
  return folder / "w", out, folder / "cache"


def test_training_ends_with_the_table_and_where_everything_is(trained, config):
  workdir, out, _ = trained
  lines = out.splitlines()
  assert re.fullmatch(r"devices: \d+ × .+", lines[0])
  assert lines[1] == "local: compiling"
  assert "local: round 1/1" in out and "accuracy" in out
  assert lines[-3:] == [
    f"workdir  {workdir}",
    f"report   {workdir}/report.md",
    f'load     splitjax.load("{workdir}", "local", config="{config}")',
  ]


@pytest.mark.usefixtures("traced_once")
def test_a_finished_run_is_reported_evaluated_and_exported(trained, capsys):
  workdir = trained[0]
  assert launch_here("--mode=report", f"--workdir={workdir}") == 0
  assert f"report   {workdir}/report.md" in capsys.readouterr().out
  assert launch_here("--mode=evaluate", f"--workdir={workdir}") == 0
  assert f"{workdir}/evaluate/report.md" in capsys.readouterr().out
  assert (workdir / "evaluate/report.md").exists()
  export = ("--mode=export", f"--workdir={workdir}", "--client=5")
  assert launch_here(*export) == 0
  folder = workdir / "export" / "local" / "client5"
  assert str(folder) in capsys.readouterr().out.splitlines()
  names = {path.name for path in folder.iterdir()}
  assert names == {"client.bin", "card.json", "README.md"}


LOGS = """
import logging, sys
from absl import app, logging as absl_logging
import launch
from splitjax import commands

def log(command):
  logging.getLogger("jax._src.xla_bridge").warning("a GPU may be present")
  logging.getLogger("fontTools").info("a glyph")
  absl_logging.error("a thread of orbax")
  return 0

commands.launch = log
argv = ["launch.py", "--mode=report", *sys.argv[1:]]
app.run(launch.main, argv, flags_parser=launch.parse)
"""
"""launch.py, with log lines of libraries instead of a command."""


@pytest.mark.parametrize("more", [[], *slow(["--verbosity=0"])])
def test_orbax_is_silent_and_jax_is_not(more):
  done = subprocess.run(
    [sys.executable, "-c", LOGS, "--compilation_cache=", *more],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0 and "a GPU may be present" in done.stderr
  assert ("a thread of orbax" in done.stderr) == bool(more)
  assert ("a glyph" in done.stderr) == bool(more)


@pytest.mark.slow
def test_a_second_start_compiles_nothing(trained, config, tmp_path):
  cache = trained[2]
  before = {path.name for path in cache.iterdir() if path.suffix != ".tmp"}
  assert before
  process = launch(config, tmp_path / "w", cache=cache)
  _, err = process.communicate()
  assert process.returncode == 0, err
  # Small programs are kept only if they happened to take a tenth of a second.
  new = {path.name for path in cache.iterdir()} - before
  assert not [n for n in new if re.search("(step|evaluate).*-cache$", n)]


def test_an_override_reaches_the_run(config, capsys):
  assert 0 == launch_here(
    f"--config={config}",
    "--mode=describe",
    "--format=json",
    "--config.batch_size=5",
    "--config.rounds=7",
  )
  steps = json.loads(capsys.readouterr().out)["methods"]["local"]["local_steps"]
  assert steps == {"round": 4, "run": 28}  # 20 samples in batches of 5


@pytest.mark.parametrize(
  ("arguments", "words"),
  [
    (["--config.roundz=3"], "did you mean 'rounds'"),
    (["--config.lr=3"], "did you mean 'mean_optimizer.lr' or 'optimizer.lr'"),
    (["--config.optimzer.lr=3"], "did you mean 'optimizer.lr'"),
    (["--config.optimizer.lr=x"], "optimizer.lr='x' must be a number"),
    (["--config.methods.local.name=locl"], "did you mean 'local'"),
    (["--config.rounds=3", "--sweep=rounds=1,2"], "the field is swept"),
    (["--sweep=optimizer.lrs=1"], "did you mean 'optimizer.lr'"),
    (["--seeds=2147483648"], "--seeds=2147483648 must be"),
    (["--config=nowhere.py"], "nowhere.py"),
    (["--config.rounds=ten"], "ten"),
    (["--config.rounds=0"], "rounds=0 must be at least 1"),
    (["--config.scale=small"], "choose it as --config=FILE:small"),
    (["--config.backbone.depths=(1,9)"], "cannot be cut at 9"),
    (["--seeds=0,x"], "--seeds"),
    (["--mode=evaluate"], "holds no run"),
    (["--mode=report"], "holds no run"),
    (["--mode=describe", "--overwrite"], "--overwrite has no meaning"),
    (["--client=3"], "--client has no meaning with --mode=train"),
    (["--mode=export"], "--mode=export needs --client"),
    (["--mode=export", "--client=3"], "holds no run"),
  ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
  config, tmp_path, capsys, arguments, words
):
  workdir = tmp_path / "w"
  flags = [f"--config={config}", f"--workdir={workdir}", *arguments]
  assert launch_here(*flags) != 0
  lines = capsys.readouterr().err.splitlines()
  assert len(lines) == 1 and lines[0].startswith("error: ")
  assert words in lines[0]
  assert not workdir.exists()


WORDS = ("--config.seed", "7", "--config.tensorboard", "--noconfig.optimizer")
"""A value behind a space, and flags alone."""


def test_overrides_in_every_form_of_a_flag(config):
  given = [f"--config={config}", *WORDS, "--config.seed=8", "--mode=describe"]
  command = parsed(*given)
  assert command.mode == "describe" and command.overridden == {
    "seed": "8", "tensorboard": "True", "optimizer": "False",
  }  # fmt: skip


def test_an_override_needs_a_config(capsys):
  assert launch_here("--mode=report", "--config.rounds=3") == 2
  assert "--config.rounds needs --config=FILE" in capsys.readouterr().err


def test_a_tilde_is_the_home_folder(config, tmp_path, monkeypatch, capsys):
  monkeypatch.setenv("HOME", str(tmp_path))
  (tmp_path / "own.py").write_text(config.read_text())
  (tmp_path / "w").mkdir()
  (tmp_path / "w" / "other").write_text("")
  for flags in (
    ["--config=~/own.py", "--workdir=~/w"],
    ["--mode=report", "--workdir=~/w"],
    ["--mode=evaluate", "--workdir=~/w"],
    ["--mode=export", "--workdir=~/w", "--client=1"],
    ["--mode=report", "~/w", "~/v"],
  ):
    assert launch_here(*flags) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{tmp_path}/w" in line
  for read in (
    lambda: splitjax.load("~/w", "a", config="~/own.py"),
    lambda: splitjax.attack("~/w", "a"),
    lambda: splitjax.report_again("~/w"),
    lambda: splitjax.evaluate_again("~/w"),
    lambda: splitjax.export_client("~/w", 1),
    lambda: splitjax.run(tiny.tiny(), "~/w"),
    lambda: splitjax.run_seeds(tiny.tiny(), "~/w", [0]),
  ):
    with pytest.raises(UserError, match=f"{tmp_path}/w"):
      read()
  with pytest.raises(UserError, match=f"{tmp_path}/no.py"):
    splitjax.load("~/w", "a", config="~/no.py")


def test_files_of_a_config_may_lie_in_the_home_folder(tmp_path, monkeypatch):
  monkeypatch.setenv("HOME", str(tmp_path))
  head = "client,memory,latency,compute,bandwidth"
  rows = [f"{n},4,20,5,10" for n in range(6)]
  (tmp_path / "p.csv").write_text("\n".join([head, *rows]))
  c = tiny.tiny()
  c.fleet.profiles = "~/p.csv"
  net = network.make_backbone(Config.from_dict(c), (8, 8, 1), 10)
  assert network.make_devices(Config.from_dict(c), net)["latency"] == [20.0] * 6
  np.savez(tmp_path / "w.npz", x=np.ones(2))
  assert pretrained.load("~/w.npz", "")["x"].sum() == 2
  monkeypatch.setattr(jax.config, "update", lambda *_: None)
  prepare.keep_compiled("~/cache")
  assert (tmp_path / "cache").is_dir()


@pytest.mark.parametrize(
  ("arguments", "words"),
  [([], "needs --config"), (["--mode=report"], "needs --workdir=FOLDER")],
)
def test_a_missing_flag_is_named(arguments, words, capsys):
  assert launch_here(*arguments) == 2
  assert words in capsys.readouterr().err


SLOW = "orbax matplotlib scipy sklearn tensorflow tensorflow_datasets PIL"
"""Libraries that an error in a flag or a config does not need."""


@pytest.mark.parametrize(
  ("words", "override", "said"),
  [
    (":fedavg", "optimizer.server_lr=0.1", "none of fedavg trains a network"),
    *slow(
      ("", "rounds=-1", "rounds=-1 must be at least 1"),
      ("", "data.partition.num_shards=3", "data.partition.num_shards = 3: 20 "),
      ("", "backbone.depths=(1,99)", "backbone.depths=(1, 99): cnn8 cannot be"),
    ),
  ],
)
def test_an_error_imports_no_library_that_only_training_needs(
  tmp_path, words, override, said
):
  command = [sys.executable, "-X", "importtime", "launch.py"]
  command += [f"--config=configs/quickstart.py{words}", f"--config.{override}"]
  command += [f"--workdir={tmp_path / 'w'}", "--compilation_cache="]
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
  assert done.returncode == 2
  (line,) = re.findall(r"^error: (.*)$", done.stderr, re.M)
  assert said in line
  imported = re.findall(r"\| +([\w.]+)$", done.stderr, re.M)
  assert "splitjax.config.schema" in imported
  assert not {name.split(".")[0] for name in imported} & set(SLOW.split())
  assert "splitjax.experiment.train.loop" not in imported


BARE = "import splitjax\ndef f(labels, n, seed, *, k: int): ...\n"
SPEC = 'splitjax.spec({"mine": f}, "mine")'


@pytest.mark.parametrize(
  ("code", "said"),
  [
    ("def get_config():\n  1", "get_config() returns None; it must return the"),
    ("def get_config():\n  return 5", "get_config() returns 5; it must return"),
    ("x = 1", "has no function get_config(): write one"),
    (f"{BARE}def get_config():\n  {SPEC}", "option k of f needs a default"),
  ],
)
@pytest.mark.parametrize("more", [[], ["--config.rounds=3"]])
def test_a_file_that_gives_no_config_is_one_line(
  code, said, more, tmp_path, capsys, monkeypatch
):
  # ml_collections executes each file in the module of the last.
  monkeypatch.delitem(sys.modules, "config_config", raising=False)
  path = tmp_path / "bad.py"
  path.write_text(code)
  assert launch_here(f"--config={path}", "--mode=describe", *more) == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith("error: ") and said in line


def fails(*_):
  raise ValueError("one\n and two")


def failing_step(backbone, optimizer):
  return base.method(backbone, optimizer, (Stage(fails),))


def failing_network(shape, classes, *, depths: tuple[int, ...] = (1, 2)):
  return fails()


@pytest.mark.parametrize(
  ("registry", "own"),
  [
    (METHODS, fails),
    (METHODS, failing_step),
    (BACKBONES, failing_network),
    (PARTITIONS, fails),
  ],
)
def test_an_error_of_ones_own_is_one_line(registry, own, monkeypatch, capsys):
  monkeypatch.setitem(registry, "mine", own)
  c = tiny.tiny(own="mine" if registry is METHODS else "local")
  if registry is BACKBONES:
    c.backbone = splitjax.spec(BACKBONES, "mine")
  if registry is PARTITIONS:
    c.data.partition = splitjax.spec(PARTITIONS, "mine")
  assert commands.launch(commands.Command("describe", c.to_dict())) == 2
  (said,) = re.findall("^error: (.*)$", capsys.readouterr().err, re.M)
  line = fails.__code__.co_firstlineno + 1
  assert said == (
    f"ValueError: one and two (test_launch.py, line {line}); --debug shows the"
    " whole traceback"
  )
  with pytest.raises(ValueError, match="one\n and two"):
    commands.launch(commands.Command("describe", c.to_dict(), debug=True))
  # From Python, too, it is raised as it is.
  with pytest.raises(ValueError, match="one\n and two"):
    describe.describe(tiny.resolved(c))


@pytest.mark.parametrize(
  ("code", "kind", "text"),
  [
    ("[1][2]", IndexError, "list index out of range"),
    ("None.rounds", AttributeError, "'NoneType' object has no attribute 'roun"),
    ("1 + 'a'", TypeError, "unsupported operand type"),
    ("int('a')", ValueError, "invalid literal for int"),
  ],
)
def test_an_error_in_a_config_file_is_one_line(
  code, kind, text, tmp_path, capsys, monkeypatch
):
  monkeypatch.delitem(sys.modules, "config_config", raising=False)
  path = tmp_path / "bad.py"
  path.write_text(f"def get_config():\n  return {code}\n")
  assert launch_here(f"--config={path}", "--mode=describe") == 2
  (said,) = capsys.readouterr().err.splitlines()
  assert said.startswith(f"error: {kind.__name__}: {text}")
  assert said.endswith(" (bad.py, line 2); --debug shows the whole traceback")
  with pytest.raises(kind, match=text):
    launch_here(f"--config={path}", "--mode=describe", "--debug")


def test_an_error_in_flags_does_not_import_jax(tmp_path):
  path = tmp_path / "bad.py"
  path.write_text("def get_config():\n  pass\n")
  command = [sys.executable, "-X", "importtime", "-m", "splitjax", "train"]
  for given, said in (
    (path, "returns None"),
    ("quikstart", "did you mean 'quickstart'"),
    ("nowhere.py", "cannot be read"),
  ):
    done = subprocess.run(
      [*command, f"--config={given}"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2 and said in done.stderr
    assert "splitjax.config.shipped" in done.stderr
    assert not re.search(r"\| +(jax|flax)$", done.stderr, re.M)


@pytest.mark.parametrize("kind", ["in a file", "0777", "0775", "private"])
def test_a_cache_folder_that_cannot_be_used_is_a_warning(
  kind, tmp_path, capsys, monkeypatch
):
  """Programs in it are executed, so nobody else may write to it."""
  path = tmp_path / "place" / "x"
  if kind == "in a file":
    path.parent.write_text("")
  else:
    path.mkdir(parents=True)
    path.chmod(0o755 if kind == "private" else int(kind, 8))
  chosen = {}
  monkeypatch.setattr(jax.config, "update", chosen.__setitem__)
  prepare.keep_compiled(path)
  used = kind == "private"
  assert chosen["jax_enable_compilation_cache"] == used
  assert ("jax_compilation_cache_dir" in chosen) == used
  said = capsys.readouterr().err
  assert said == "" if used else f"--compilation_cache={path}: " in said


OWN = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests/helpers")!r})
import splitjax
splitjax.METHODS["mine"] = splitjax.METHODS["local"]
import tiny, undrawn
undrawn.draw_nothing()
def get_config(words=""):
  return tiny.tiny(own="mine")
"""


@pytest.mark.usefixtures("traced_once")
def test_a_registered_method_is_reported_and_exported(
  monkeypatch, tmp_path, capsys
):
  # Train a method that is not part of splitjax, in a grid of one cell.
  monkeypatch.setitem(METHODS, "mine", METHODS["local"])
  c = tiny.tiny(own="mine")
  c.rounds = 1
  splitjax.vary(c, {"data.partition.k": (2,)})
  config, workdir = c.to_dict(), tmp_path / "w"
  cell = workdir / "k=2"
  assert commands.launch(commands.Command("train", config, str(workdir))) == 0
  # Without its registration every mode asks for the config file.
  monkeypatch.delitem(METHODS, "mine")
  words = "method 'mine' is not known: give the config file that registers it"
  for mode, place, more in (
    ("report", workdir, {}),
    ("report", cell, {}),
    ("export", cell, {"client": 1}),
    ("evaluate", cell, {}),
  ):
    capsys.readouterr()
    assert (
      commands.launch(commands.Command(mode, None, str(place), **more)) == 2
    )
    assert words in capsys.readouterr().err
  # With the config file it is reported and exported.
  path = tmp_path / "own.py"
  path.write_text(OWN)
  own = f"--config={path}:words"
  assert launch_here("--mode=report", f"--workdir={workdir}", own) == 0
  export = ("--mode=export", f"--workdir={cell}", "--client=1", own)
  assert launch_here(*export) == 0
  assert (cell / "export" / "own" / "client1" / "client.bin").exists()
  # The line that training ends with loads it in a program that knows nothing.
  del METHODS["mine"]
  (line,) = re.findall(r"^load     (.*)$", capsys.readouterr().out, re.M)
  assert line == f'splitjax.load("{cell}", "own", config="{path}")'
  with pytest.raises(UserError, match="method 'mine' is not known"):
    splitjax.load(cell, "own")
  assert eval(line).config.methods["own"].name == "mine"
  with pytest.raises(UserError, match="config='nowhere.py': no such file"):
    splitjax.load(cell, "own", config="nowhere.py")
  # So do the other functions that read a workdir.
  for again in (
    splitjax.report_again,
    splitjax.evaluate_again,
    functools.partial(splitjax.export_client, client=1),
  ):
    del METHODS["mine"]
    with pytest.raises(UserError, match="in Python as config=FILE"):
      again(cell)
    assert again(cell, config=path)


def test_a_corrupt_cell_is_named(tmp_path, capsys):
  tree = {"title": "", "fields": ["x"], "cells": [{"name": "x=1", "values": 1}]}
  files.write_json(tmp_path / grid.GRID, tree)
  report = commands.Command("report", None, str(tmp_path))
  assert commands.launch(report) == 2
  assert "no cell is finished" in capsys.readouterr().err
  Path(tmp_path / "x=1").mkdir()
  (tmp_path / "x=1" / workdirs.CONFIG).write_text("{")
  assert commands.launch(report) == 2
  assert "damaged" in capsys.readouterr().err
