"""Compiled programs are shared where they are the same, and only there."""

import gc
import math
import weakref

import chex
import jax
import optax
import pytest
import tiny
from selected import timeless

import splitjax
from splitjax import METHODS, experiment, target
from splitjax.experiment import ROOM, Programs, compile_to_fit, size_of


@pytest.fixture
def none_kept():
  """The test begins with no programs."""
  experiment.kept_programs.clear()


def programs_of(name="splitgp", **fields):
  """The round of a method, and what its evaluation needs."""
  return Programs(tiny.subject(name, **fields)).compile().compiled()


def test_a_sweep_compiles_once():
  """Seeds, learning rates and weights of losses are data of a program."""
  decays = {"optimizer__weight_decay": 1e-3}
  programs = programs_of(**decays)
  for other in (
    {**decays, "seed": 1, "title": "another"},
    {"optimizer__weight_decay": 1e-4, "optimizer__lr": 0.01},
    {**decays, "methods__own__lam": 0.9, "methods__own__gamma": 0.1},
  ):
    pairs = zip(programs, programs_of(**other), strict=True)
    assert all(a is b for a, b in pairs), other
  without = programs_of(optimizer__weight_decay=0.0)
  assert without[0] is not programs[0], "what is switched off has no number"


def test_a_rule_that_is_defined_anew_is_the_new_one(monkeypatch):
  """A notebook's cell is edited and run again, under the same name."""

  def trained(rule):
    monkeypatch.setitem(splitjax.OPTIMIZERS, "mine", rule)
    method = Programs(tiny.subject("splitgp", optimizer__name="mine"))
    state, _ = method.round(method.begin())
    return jax.device_get(state.server.net.params)

  moved = trained(lambda momentum: optax.identity())
  stayed = trained(lambda momentum: optax.scale(0.0))
  again = trained(lambda momentum: optax.scale(0.0))
  with pytest.raises(AssertionError):
    chex.assert_trees_all_close(moved, stayed)
  chex.assert_trees_all_equal(stayed, again)


def test_a_method_registered_anew_is_another(monkeypatch):
  first = programs_of("local")[0]
  monkeypatch.setitem(METHODS, "local", METHODS["fedavg"])
  assert programs_of("local")[0] is not first


def test_no_data_are_kept_alive(none_kept):
  subject = tiny.subject("local")
  task = subject.task
  state = Programs(subject).begin()
  Programs(subject).round(state)
  leaves = [task.image, subject.shards[0].rows, state.server.net]
  alive = [weakref.ref(leaf) for leaf in jax.tree.leaves(leaves)]
  del task, subject, state, leaves
  gc.collect()
  assert not any(leaf() is not None for leaf in alive)


def test_the_program_that_was_not_used_for_longest_goes(none_kept):
  kept = experiment.kept_programs
  functions = [jax.jit(lambda x, i=i: x + i) for i in range(65)]
  for function in functions[:64]:
    experiment.compile_once(function, 1.0)
  first, second, *_ = kept
  experiment.compile_once(functions[0], 1.0)
  experiment.compile_once(functions[64], 1.0)
  assert len(kept) == 64 and first in kept and second not in kept


def test_a_program_is_another_under_other_settings():
  function, name = jax.jit(lambda x: 2 * x), "jax_disable_most_optimizations"
  first = experiment.compile_once(function, 1.0)
  assert experiment.compile_once(function, 2.0) is first
  assert experiment.compile_once(function, 2) is not first
  before = jax.config.read(name)
  jax.config.update(name, not before)
  try:
    assert experiment.compile_once(function, 1.0) is not first
  finally:
    jax.config.update(name, before)


def test_the_bytes_of_a_program_by_hand():
  class Counted:
    argument_size_in_bytes, temp_size_in_bytes = 100, 20
    output_size_in_bytes, alias_size_in_bytes = 60, 50
    generated_code_size_in_bytes = 1

  class Program:
    memory_analysis = staticmethod(lambda: Counted)

  # Donated arguments are outputs: they are there once.
  assert size_of(Program) == 100 + 20 + (60 - 50) + 1


@pytest.fixture
def gpu():
  """This CPU as a GPU with room for so many bytes."""
  here = target.current()._replace(platform="gpu")

  def of(room):
    return target.aimed_at(here._replace(memory=math.ceil(room / ROOM)))

  return of


def side_by_side(chunk="auto"):
  """A subject with so many of six clients at once."""
  system = {"system__devices": 1, "system__clients_per_chunk": chunk}
  return tiny.subject("local", rounds=1, **system)


def test_chunks_are_halved_until_what_is_compiled_fits(gpu, capsys):
  assert experiment.clients_side_by_side(side_by_side()) == 1, "on a CPU"
  with gpu(10**12):
    programs = compile_to_fit(side_by_side())
    assert experiment.clients_side_by_side(programs.subject) == 6
  most = max(map(size_of, programs.compiled()))
  with gpu(most - 1):
    fewer = compile_to_fit(side_by_side())
    stated = compile_to_fit(side_by_side(6))
  assert experiment.clients_side_by_side(fewer.subject) == 3
  assert fewer.task.config.system.clients_per_chunk == "auto"
  said = capsys.readouterr().out.splitlines()
  (told,) = [line for line in said if "side by side" in line]
  assert told.startswith("own: compiled for 6 clients side by side, a prog")
  assert told.endswith(" GB of a device; takes 3")
  # A number that is stated is not changed.
  assert experiment.clients_side_by_side(stated.subject) == 6


def test_a_compiler_that_runs_out_of_memory_counts_as_too_large(
  gpu, monkeypatch
):
  asked = []

  def compile(self):
    asked.append(experiment.clients_side_by_side(self.subject))
    if asked[-1] == 1:  # one client alone has no other choice
      return self
    raise jax.errors.JaxRuntimeError(f"{said}: out of HBM")

  monkeypatch.setattr(Programs, "compile", compile)
  with gpu(10**12):
    said = "RESOURCE_EXHAUSTED"
    made = compile_to_fit(side_by_side())
    assert experiment.clients_side_by_side(made.subject) == 1
    assert asked == [6, 3, 1]
    said = "INTERNAL"
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
      compile_to_fit(side_by_side())


@pytest.mark.slow
def test_a_run_trains_as_many_clients_as_fit(gpu, tmp_path):
  with gpu(10**4):
    few = experiment.run(side_by_side().task.config, tmp_path / "few")
  with gpu(10**12):
    one = experiment.run(side_by_side(1).task.config, tmp_path / "one")
  assert timeless(few) == timeless(one)
