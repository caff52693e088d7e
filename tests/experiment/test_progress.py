"""What a run prints about its rounds and its machine."""

import platform
import sys
import time

from splitjax import experiment

# Patched: the file that names the processors.
from splitjax.experiment import console


def test_lines_where_there_is_no_terminal(monkeypatch, capsys):
  now = [0.0]
  monkeypatch.setattr(time, "monotonic", lambda: now[0])
  rounds = experiment.Progress("harmony", 10, 4)
  now[0] = 2.0
  rounds.round(5, {"loss": {"client": 2.0}})
  accuracy = {"own": {"0.0": 0.5, "0.4": 0.4, "0.8": 0.25}}
  rounds.round(6, {"loss": {"client": None}, "accuracy": accuracy})
  rounds.close()
  out, err = capsys.readouterr()
  # Two rounds in two seconds; four are left.
  assert out == (
    "harmony: round 6/10  1.00 rounds/s  4 s left  loss: client nan"
    "  own: ρ=0 50.0, ρ=0.8 25.0 %\n"
  )
  assert not err


def test_a_terminal_has_a_bar(monkeypatch, capsys):
  monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
  rounds = experiment.Progress("harmony", 2)
  rounds.round(1, {"loss": {}, "accuracy": {"own": {"0.0": 1.0}}})
  experiment.say("a line")
  rounds.round(2, {"loss": {}, "accuracy": {"own": {"0.0": 1.0}}})
  rounds.close()
  out, err = capsys.readouterr()
  assert "harmony" in err and "2/2" in err and out == "a line\n"


def test_the_hardware_names_the_processor(monkeypatch, tmp_path):
  monkeypatch.setattr(console, "CPUINFO", tmp_path / "cpuinfo")
  monkeypatch.setattr(platform, "processor", lambda: "arm")
  assert " CPU cores (arm), " in console.hardware()
  text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"
  (tmp_path / "cpuinfo").write_text(text * 2)
  assert " CPU cores (Some CPU @ 2 GHz), " in console.hardware()
