"""Mistakes on the command line: one line each, before anything is loaded."""

import re
from pathlib import Path

import jax
import pytest
import tiny
from launched import config_file, launch_here, python

import splitjax
from splitjax import (
  METHODS,
  PARTITIONS,
  cli,
  experiment,
)
from splitjax.methods.method import Method
from splitjax.parameters import pytree


@pytest.fixture
def config(tmp_path):
  return config_file(tmp_path, "local")


@pytest.mark.parametrize(
  ("arguments", "words"),
  [
    (["--config.roundz=3"], "roundz"),
    (["--config.backbone.depths=(1,9)"], "backbone"),
    (["--config.scale=small"], "--config.scale"),
    (["--config.rounds=3", "--sweep=rounds=1,2"], "rounds"),
    (["--config=nowhere.py"], "nowhere.py"),
    (["--seeds=0,x"], "--seeds"),
    (["--mode=evaluate"], "holds no run"),
    (["--seeds=0", "--config.seed=3"], "--seeds=0"),
    (["--seeds=0", "--sweep=seed=1,2"], "--seeds=0"),
    (["--mode=evaluate", "--sweep=seed=1"], "--sweep"),
    (["--mode=report", "--config.rounds=3"], "--config.rounds"),
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


FILE = """
import splitjax


def get_config():
  c = splitjax.default()
  c.{} = 1
  return c
"""


@pytest.mark.parametrize(
  ("arguments", "field"),
  [
    (
      ["--config=quickstart", "--config.optimizer.learning_rate=1"],
      "optimizer",
    ),
    (["--config=quickstart", "--config.rounds=0"], "rounds=0"),
    (["--config=quickstart", "--sweep=optimiser.lr=1,2"], "optimiser.lr"),
    (["--config=quickstart", "--seeds=0,0"], "--seeds=0"),
    (["--config=quikstart"], "--config"),
    (["--confg=quickstart"], "--confg"),
    (["--config={file}"], "optimizer.learning_rate"),
  ],
)
def test_a_wrong_field_does_not_import_jax(arguments, field, tmp_path):
  path = tmp_path / "mine.py"
  path.write_text(FILE.format("optimizer.learning_rate"))
  words = [word.format(file=path) for word in arguments]
  command = "-X", "importtime", "-m", "splitjax", "train"
  done = python(*command, *words, f"--workdir={tmp_path / 'w'}")
  (line,) = re.findall(r"^error: (.*)$", done.stderr, re.M)
  assert done.returncode == 2 and line.startswith(field)
  assert ("(mine.py, line 7)" in line) == ("{file}" in arguments[0])
  imported = re.findall(r"\| +([\w.]+)$", done.stderr, re.M)
  assert "splitjax.config.tree" in imported
  assert not {"jax", "flax", "numpy"} & {*imported}


@pytest.fixture
def bad(tmp_path):
  """A path for a config file."""
  return tmp_path / "bad.py"


BARE = "import splitjax\ndef f(labels, n, seed, *, k: int): ...\n"
SPEC = 'splitjax.spec({"mine": f}, "mine")'


@pytest.mark.parametrize(
  ("code", "said"),
  [
    ("def get_config():\n  1", "get_config() returns None"),
    ("x = 1", "has no function get_config()"),
    (f"{BARE}def get_config():\n  {SPEC}", "option k of f"),
  ],
)
def test_a_file_that_gives_no_config_is_one_line(code, said, bad, capsys):
  bad.write_text(code)
  flags = f"--config={bad}", "--mode=describe", "--config.rounds=3"
  assert launch_here(*flags) == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith("error: ") and said in line


def test_an_error_in_a_config_file_is_one_line(bad, capsys):
  bad.write_text("def get_config():\n  return [1][2]\n")
  flags = f"--config={bad}", "--mode=describe"
  assert launch_here(*flags) == 2
  (said,) = capsys.readouterr().err.splitlines()
  assert said.startswith("error: IndexError: ") and "(bad.py, line 2)" in said
  with pytest.raises(IndexError):
    launch_here(*flags, "--debug")


def fails(*_):
  raise ValueError("one\n and two")


@pytree
class FailingStep(Method):
  def step(self, client, server, context, batches, key):
    fails()


@pytest.mark.parametrize(
  ("registry", "own"), [(METHODS, FailingStep), (PARTITIONS, fails)]
)
def test_an_error_of_ones_own_is_one_line(registry, own, monkeypatch, capsys):
  monkeypatch.setitem(registry, "mine", own)
  c = tiny.tiny(own="mine" if registry is METHODS else "local")
  if registry is PARTITIONS:
    c.data.partition = splitjax.spec(PARTITIONS, "mine")
  describe = cli.Command("describe", splitjax.config.plan(c))
  assert cli.launch(describe) == 2
  (said,) = re.findall("^error: (.*)$", capsys.readouterr().err, re.M)
  line = fails.__code__.co_firstlineno + 1
  place = f"({Path(__file__).name}, line {line})"
  assert said.startswith(f"ValueError: one and two {place}")
  with pytest.raises(ValueError, match="one\n and two"):
    cli.launch(describe._replace(debug=True))
  # From Python, too, it is raised as it is.
  with pytest.raises(ValueError, match="one\n and two"):
    experiment.describe_run(tiny.resolved(c))


def test_only_training_uses_several_processes(monkeypatch, capsys):
  monkeypatch.setattr(jax, "process_count", lambda: 2)
  assert cli.launch(cli.Command("report")) == 2
  assert "--mode=report runs in one process" in capsys.readouterr().err
