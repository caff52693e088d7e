"""Programs on disk: what is found without tracing, and what is not."""

import collections
import functools
import os

import jax
import numpy as np
import pytest
import runs
import tiny

from splitjax import METHODS
from splitjax.engine import distributed
from splitjax.experiment import compiled, program_store, programs, runner
from splitjax.experiment import federation as federations
from splitjax.experiment import task as tasks


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
  """Where programs are kept; the process begins with none."""
  monkeypatch.setattr(distributed, "_compiled_folder", tmp_path / "cache")
  begin(monkeypatch)
  return tmp_path / "cache" / program_store.FOLDER


def begin(monkeypatch):
  """What a new process knows: nothing."""
  monkeypatch.setattr(compiled, "_compiled", collections.OrderedDict())


def forbid(monkeypatch):
  """Nothing may be traced or compiled from here on."""

  def no(*arguments, **options):
    raise AssertionError("it was traced")

  monkeypatch.setattr(compiled, "_compile", no)


def config(name="splitgp", **options):
  c = tiny.tiny(own=name)
  for key, value in options.items():
    c.methods.own[key] = value
  return c


def played(c):
  """The state after one round, on the host."""
  task = tasks.build(tiny.resolved(c))
  federation = federations.make_federation(task, "own")
  state = programs.fresh_state(task, federation, tasks.fresh_network(task))
  step = programs.compile_round(task, federation, state)
  state, _ = step(state, federation.shards)
  return jax.tree.leaves(jax.device_get((state.clients, state.server)))


def test_methods_that_share_a_program_may_come_in_any_order(monkeypatch):
  # Each process finds programs of others, of hyper-parameters of other names.
  # The last of them stores what it takes from the one used longest ago.
  last = ["fedbabu", "local", "fedbabu", "fedper"]
  for names in (["fedbabu"], ["local"], last):
    for name in names:
      entropies(name)
    begin(monkeypatch)
  assert entropies("fedper") == entropies("fedper")


def entropies(name):
  """Entropies of the last result row of a method's first state."""
  task = tasks.build(tiny.resolved(config(name)))
  federation = federations.make_federation(task, "own")
  state = programs.fresh_state(task, federation, tasks.fresh_network(task))
  *_, row = programs.evaluate_rows(task, federation, state)
  return row.test.entropy.tolist()


def test_another_process_traces_nothing_and_computes_the_same(monkeypatch):
  c = config(lam=0.3)
  first = played(c)
  other = played(config(lam=0.6))
  begin(monkeypatch)
  forbid(monkeypatch)
  for a, b in zip(first, played(c), strict=True):
    np.testing.assert_array_equal(a, b)
  # Another value with the same branches is the same program, not the same run.
  again = played(config(lam=0.6))
  for a, b in zip(other, again, strict=True):
    np.testing.assert_array_equal(a, b)
  assert any((a != b).any() for a, b in zip(first, again, strict=True))
  with pytest.raises(AssertionError, match="it was traced"):
    played(config(lam=1.0))  # takes another branch


def test_a_resumed_run_compiles_nothing(tmp_path, monkeypatch, capsys):
  resolved, place = runs.config("local"), tmp_path / "w"
  whole = runner.run(resolved, tmp_path / "whole")
  begin(monkeypatch)
  runs.stopped(resolved, place, 2)
  begin(monkeypatch)
  forbid(monkeypatch)
  capsys.readouterr()
  found = runner.run(resolved, place)
  assert runs.lines(place) == runs.lines(tmp_path / "whole")
  assert found["rows"][0]["summary"] == whole["rows"][0]["summary"]
  said = capsys.readouterr().out
  assert "compiling" not in said
  assert "compiled for own at an earlier start" in said


def test_a_damaged_program_is_compiled_again(folder, monkeypatch, capsys):
  c = config("local")
  first = played(c)
  for path in folder.iterdir():
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
  (path, *_) = folder.iterdir()
  path.write_bytes(path.read_bytes()[:20])
  begin(monkeypatch)
  for a, b in zip(first, played(c), strict=True):
    np.testing.assert_array_equal(a, b)
  said = capsys.readouterr().out
  assert said.count("cannot be used and is deleted") == len(
    list(folder.iterdir())
  )
  assert "its content has changed" in said


def test_programs_of_own_methods_are_not_stored(folder, monkeypatch):
  @functools.wraps(METHODS["local"])  # takes its name and module
  def own(backbone, optimizer):
    return METHODS["local"](backbone, optimizer)

  monkeypatch.setitem(METHODS, "own_local", own)
  played(config("own_local"))
  assert not folder.exists()


def test_other_sources_are_other_programs(tmp_path, monkeypatch):
  monkeypatch.setattr(program_store, "PACKAGE", tmp_path)
  source, keys = tmp_path / "a.py", set()
  for text in ("x = 1\n", "x = 2\n"):
    source.write_text(text)
    os.utime(source, (0, 0))
    program_store._environment.cache_clear()
    keys.add(program_store.key_of(("round", 1)))
  program_store._environment.cache_clear()
  assert len(keys) == 2 and None not in keys
  # This process still runs what the file was when it began.
  os.utime(source)
  assert program_store.key_of(("round", 1)) is None


def test_the_oldest_programs_go(folder, monkeypatch):
  played(config("local"))
  count = len(list(folder.iterdir()))
  monkeypatch.setattr(program_store, "LIMIT", 1)
  played(config("fedavg"))
  assert count > 0 and not list(folder.iterdir())


def test_a_folder_that_cannot_be_written_does_not_end_a_run(
  folder, monkeypatch, capsys
):
  program_store._cannot.cache_clear()
  folder.parent.mkdir()
  folder.write_text("a file")
  assert played(config("local"))
  assert "programs are not stored for the next start" in capsys.readouterr().out
