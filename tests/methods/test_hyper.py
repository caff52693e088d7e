"""Hyper-parameters as arguments: one program for many values, the right one."""

import collections
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

import splitjax
from splitjax.experiment import compile_cache, programs, training_setup
from splitjax.experiment import task as tasks
from splitjax.methods import hyper

A, B = 0.3, 2.5
FORMS = {
  "1 - a": lambda a, b, x: (1 - a) * x,
  "a b": lambda a, b, x: a * b * x + b / a,
  "powers": lambda a, b, x: a**2 * x ** (b - 1) + 2.0**b,
  "-a": lambda a, b, x: -a * x + abs(-b) - +a,
  "min": lambda a, b, x: min(a / b, 1.0) * x + max(a, b, 0.5),
  "where": lambda a, b, x: jnp.where(x > a, b, 0.0),
  "functions": lambda a, b, x: (
    jnp.maximum(x, a) + jnp.exp(-b) + jnp.clip(x, 0, b)
  ),
  "full": lambda a, b, x: jnp.full(3, a) + jnp.stack([a, b, a]),
  "numpy": lambda a, b, x: np.float64(2.0) * a * x + b * np.float64(3.0),
  "sums": lambda a, b, x: sum([a * x, b * x], jnp.zeros(3)),
  "scan": lambda a, b, x: jax.lax.scan(
    lambda c, _: (a * c + b, None), x, None, length=3
  )[0],
  "random": lambda a, b, x: jax.random.bernoulli(
    jax.random.key(0), a, (3,)
  ).astype(x.dtype),
}


def traced(form, given, at):
  """A form of arguments, traced with the values `given`, computed `at`."""
  trace = hyper.Trace(given)
  x = jnp.array([0.2, 0.5, 3.0])

  def program(arrays):
    found = hyper.numbers(trace, arrays)
    return form(found["a"], found["b"], x)

  step = jax.jit(program).lower(dict(given)).compile()
  return step(dict(at)), tuple(trace.conditions.values())


@pytest.mark.numeric
@pytest.mark.parametrize("name", FORMS)
def test_arithmetic_is_that_of_numbers(name):
  form = FORMS[name]
  with jax.enable_x64(True):
    for at in ({"a": A, "b": B}, {"a": 0.4, "b": 2.0}):
      got, conditions = traced(form, {"a": A, "b": B}, at)
      assert hyper.fits(conditions, at)
      want = form(at["a"], at["b"], jnp.array([0.2, 0.5, 3.0]))
      np.testing.assert_allclose(got, want, rtol=1e-12)


def test_comparisons_are_conditions():
  def form(a, b, x):
    if a == 0 or not 0 <= b <= 3 or b in (None, a):
      return x
    return (1 - a) * x if a > b - 2 else a * x

  values = {"a": A, "b": B}
  _, conditions = traced(form, values, values)
  texts = {c.of.text: c.outcome for c in conditions}
  assert texts == {
    "(a == 0)": False,
    "(b >= 0)": True,
    "(b <= 3)": True,
    "(a == b)": False,
    "(a > (b - 2))": False,
  }
  assert hyper.fits(conditions, {"a": 0.2, "b": 2.6})
  for other in ({"a": 0.0, "b": B}, {"a": A, "b": 3.5}, {"a": 0.9, "b": B}):
    assert not hyper.fits(conditions, other)
  _, conditions = traced(lambda a, b, x: max(b / a, 1.0) * x, values, values)
  assert not hyper.fits(conditions, {"a": 0.0, "b": B})


def test_what_needs_the_value_is_for_this_value_alone():
  def form(a, b, x):
    names = {0.3: "small"}
    return x * float(a) + (names[a] == "small") + int(b) + round(b)

  values = {"a": A, "b": B}
  got, conditions = traced(form, values, values)
  np.testing.assert_allclose(got, form(A, B, jnp.array([0.2, 0.5, 3.0])), 1e-6)
  assert hyper.fits(conditions, dict(values))
  assert not hyper.fits(conditions, {"a": A, "b": 2.4})
  assert f"{hyper.numbers(hyper.Trace(values), values)['a']:.2f}" == "0.30"


@pytest.fixture(name="world", autouse=True)
def clear(monkeypatch):
  monkeypatch.setattr(compile_cache, "_compiled", collections.OrderedDict())


def count():
  """Executables that are kept."""
  kept = [c.program for each in compile_cache._compiled.values() for c in each]
  return len({id(program) for program in kept})


def config(name="splitgp", lr=0.05, momentum=0.9, **options):
  draft = tiny.tiny(own=name)
  draft.methods.own.update(options)
  resolved = tiny.resolved(draft)
  changed = dataclasses.replace(resolved.optimizer, lr=lr, momentum=momentum)
  return dataclasses.replace(resolved, optimizer=changed)


def advanced(config, own=False):
  """The state after a round; own: by a program with constants."""
  task = tasks.build(config)
  federation = training_setup.make_federation(task, "own")
  state = programs.fresh_state(task, federation, tasks.fresh_network(task))
  if own:
    step = programs.make_round(task, federation)
  else:
    step = programs.compile_round(task, federation, state)
    programs.compile_evaluation(task, federation, state)
  return step(state, federation.shards)


def agree(one, two, **tolerance):
  for a, b in zip(*map(jax.tree.leaves, (one, two)), strict=True):
    if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
      continue
    np.testing.assert_allclose(a, b, **tolerance)


@pytest.mark.numeric
def test_one_program_serves_many_settings():
  with jax.enable_x64(True):
    advanced(config(lam=0.9))
    begun = count()
    for other in (
      config(lam=0.2, gamma=0.3),
      config(momentum=0.5),
      config(lam=0.0),
    ):
      got = advanced(other)
      assert count() == begun, other
      agree(got, advanced(other, own=True), rtol=1e-9, atol=1e-12)


def test_other_branches_are_other_programs():
  advanced(config(lam=0.9))
  begun = count()
  advanced(config("multi_exit"))  # lam = 0 is a number, too
  assert count() == begun
  advanced(config(momentum=0.0))
  assert count() > begun


def test_a_method_that_takes_no_arguments_has_constants(monkeypatch, capsys):
  local = splitjax.METHODS["local"]

  def stubborn(backbone, optimizer, *, floor: float = 0.1):
    jax.lax.max(jnp.ones(2), floor)
    return local(backbone, optimizer)

  monkeypatch.setitem(splitjax.METHODS, "stubborn", stubborn)
  kept = []
  for floor in (0.1, 0.1, 0.2):
    advanced(config("stubborn", floor=floor))
    kept.append(sum(map(len, compile_cache._compiled.values())))
  assert 0 < kept[0] == kept[1] < kept[2]
  said = capsys.readouterr().out
  assert "own: hyper-parameters are constants of its program" in said
