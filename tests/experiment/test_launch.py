"""The command line: every mode, and mistakes."""

import json
import platform
import re
import sys
import time
from pathlib import Path

import jax
import pytest
import tiny
from launched import command, config_file, launch, launch_here, python
from refusals import refused

import splitjax
from splitjax import METHODS, PARTITIONS, UserError, cli, experiment

# Patched: the file that names the processors.
from splitjax.experiment import machine
from splitjax.methods.method import Method
from splitjax.parameters import pytree


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
  assert steps == 4  # 20 samples in batches of 5


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
    assert f"{tmp_path}/w" in capsys.readouterr().err
  with refused("--workdir"):
    splitjax.load("~/w", "a", config="~/own.py")


@pytest.mark.slow
def test_a_registered_method_is_reported(monkeypatch, tmp_path, capsys):
  """One that is not part of splitjax, in a grid of one cell."""
  monkeypatch.setitem(METHODS, "mine", METHODS["local"])
  c = tiny.tiny(own="mine")
  c.rounds = 1
  splitjax.vary(c, {"data.partition.k": (2,)})
  workdir = tmp_path / "w"
  cell = workdir / "k=2"
  train = command("train", plan=splitjax.config.plan(c), workdir=workdir)
  assert cli.launch(train) == 0
  # Without its registration it is reported, but not evaluated.
  monkeypatch.delitem(METHODS, "mine")
  (run,) = splitjax.report_again(workdir).runs
  assert run.methods == {"own": "mine"}
  with pytest.raises(UserError, match="in Python as config=FILE"):
    splitjax.evaluate_again(cell)
  # With it the grid is reported, and its line loads the method.
  path = config_file(tmp_path, "mine")
  register = 'import splitjax\nm = splitjax.METHODS\nm["mine"] = m["local"]\n'
  path.write_text(register + path.read_text())
  capsys.readouterr()
  flags = f"--workdir={workdir}", f"--config={path}"
  assert launch_here("--mode=report", *flags) == 0
  (line,) = re.findall(r"^load     (.*)$", capsys.readouterr().out, re.M)
  assert line == f'splitjax.load("{cell}", "own", config="{path}")'
  del METHODS["mine"]
  assert eval(line).config.methods["own"].name == "mine"
  del METHODS["mine"]
  assert splitjax.evaluate_again(cell, config=path).rows == ["own"]


# Mistakes: one line each, before anything is loaded.


FILE = """
import splitjax


def get_config():
  c = splitjax.default()
  c.optimizer.learning_rate = 1
  return c
"""

WRONG = """
--config=quickstart --config.optimizer.learning_rate=1 -> optimizer
--config=quickstart --config.rounds=0 -> rounds=0
--config=quickstart --sweep=optimiser.lr=1,2 -> optimiser.lr
--config=quickstart --seeds=0,0 -> sweep.seed
--config=quikstart -> --config
--confg=quickstart -> --confg
--config=FILE -> optimizer.learning_rate
""".strip().splitlines()


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_field_does_not_import_jax(line, tmp_path):
  words, _, field = line.partition(" -> ")
  path = tmp_path / "mine.py"
  path.write_text(FILE)
  words = words.replace("FILE", str(path)).split()
  start = "-X", "importtime", "-m", "splitjax", "train"
  done = python(*start, *words, f"--workdir={tmp_path / 'w'}")
  (said,) = re.findall(r"^error: (.*)$", done.stderr, re.M)
  assert done.returncode == 2 and said.startswith(field)
  assert not (tmp_path / "w").exists()
  assert ("(mine.py, line 7)" in said) == ("FILE" in line)
  imported = re.findall(r"\| +([\w.]+)$", done.stderr, re.M)
  assert "splitjax.config.config" in imported
  assert not {"jax", "flax", "numpy"} & {*imported}


def fails(*_):
  raise ValueError("one\n and two")


@pytree
class FailingStep(Method):
  def step(self, client, server, context, batches, key):
    fails()


@pytest.mark.parametrize(
  ("registry", "own", "field"),
  [
    (METHODS, FailingStep, "methods.own"),
    (PARTITIONS, fails, "data.partition=mine"),
  ],
)
def test_an_error_of_ones_own_is_one_line(
  registry, own, field, monkeypatch, capsys
):
  monkeypatch.setitem(registry, "mine", own)
  c = tiny.tiny(own="mine" if registry is METHODS else "local")
  if registry is PARTITIONS:
    c.data.partition = splitjax.spec(PARTITIONS, "mine")
  plan = splitjax.config.plan(c)
  describe = command("describe", plan=plan)
  assert cli.launch(describe) == 2
  (said,) = re.findall("^error: (.*)$", capsys.readouterr().err, re.M)
  line = fails.__code__.co_firstlineno + 1
  place = f"({Path(__file__).name}, line {line})"
  assert said.startswith(f"{field}: ValueError: one and two {place}")
  describe.flags.debug = True
  with pytest.raises(ValueError, match="one\n and two"):
    cli.launch(describe)
  # From Python, too, it is raised as it is.
  with pytest.raises(ValueError, match="one\n and two"):
    experiment.describe_run(tiny.resolved(c))


def test_only_training_uses_several_processes(monkeypatch, capsys):
  monkeypatch.setattr(jax, "process_count", lambda: 2)
  assert cli.launch(command("report")) == 2
  assert "--mode=report runs in one process" in capsys.readouterr().err


# What is printed.


def test_lines_where_there_is_no_terminal(monkeypatch, capsys):
  now = [0.0]
  monkeypatch.setattr(time, "monotonic", lambda: now[0])
  rounds = experiment.Progress("own", "HARMONY", 10, 4)
  now[0] = 2.0
  rounds.round(5, {"loss": {"client": 2.0}})
  accuracy = {"own+FT": {"0.0": 0.5, "0.4": 0.4, "0.8": 0.25}}
  rounds.round(6, {"loss": {"client": None}, "accuracy": accuracy})
  rounds.close()
  out, err = capsys.readouterr()
  # Two rounds in two seconds; four are left.
  assert out == (
    "HARMONY: round 6/10  1.00 rounds/s  4 s left  loss: client nan"
    "  HARMONY+FT: ρ=0 50.0, ρ=0.8 25.0 %\n"
  )
  assert not err


def test_a_terminal_has_a_bar(monkeypatch, capsys):
  monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
  rounds = experiment.Progress("own", "harmony", 2)
  rounds.round(1, {"loss": {}, "accuracy": {"own": {"0.0": 1.0}}})
  experiment.say("a line")
  rounds.round(2, {"loss": {}, "accuracy": {"own": {"0.0": 1.0}}})
  rounds.close()
  out, err = capsys.readouterr()
  assert "harmony" in err and "2/2" in err and "\na line\n" in out


def test_the_hardware_names_the_processor(monkeypatch, tmp_path):
  monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
  monkeypatch.setattr(platform, "processor", lambda: "arm")
  assert " CPU cores (arm), " in machine.hardware()
  text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"
  (tmp_path / "cpuinfo").write_text(text * 2)
  assert " CPU cores (Some CPU @ 2 GHz), " in machine.hardware()
