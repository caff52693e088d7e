"""Hyper-parameters as arguments: one program for many values, the right one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

import splitjax
from splitjax import experiment, methods
from splitjax.experiment import Trainer, make_round

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


def lowered(form, values):
  """A form of arguments, traced with these values."""

  def program(arrays):
    found = methods.numbers(values, arrays)
    return form(found["a"], found["b"], jnp.array([0.2, 0.5, 3.0]))

  return jax.jit(program).lower(dict(values))


@pytest.mark.numeric
@pytest.mark.parametrize("name", FORMS)
def test_arithmetic_is_that_of_numbers(name):
  form, one, other = FORMS[name], {"a": A, "b": B}, {"a": 0.4, "b": 2.0}
  with jax.enable_x64(True):
    traced = lowered(form, one)
    assert traced.as_text() == lowered(form, other).as_text()
    program = traced.compile()
    for at in (one, other):
      want = form(at["a"], at["b"], jnp.array([0.2, 0.5, 3.0]))
      np.testing.assert_allclose(program(dict(at)), want, rtol=1e-12)


def text(form, **values):
  """The text of a form, traced with these values."""
  return lowered(form, values).as_text()


def test_another_branch_is_another_text():
  def form(a, b, x):
    if a == 0 or not 0 <= b <= 3 or b in (None, a):
      return x
    return (1 - a) * x if a > b - 2 else a * x

  usual = text(form, a=A, b=B)
  assert text(form, a=0.2, b=2.6) == usual
  for other in ({"a": 0.0, "b": B}, {"a": A, "b": 3.5}, {"a": 0.9, "b": B}):
    assert text(form, **other) != usual
  with pytest.raises(ZeroDivisionError):
    text(lambda a, b, x: max(b / a, 1.0) * x, a=0.0, b=B)


def test_a_value_that_is_needed_is_in_the_text():
  def form(a, b, x):
    names = {0.3: "small"}
    return x * float(a) + (names[a] == "small") + int(b) + round(b)

  values = {"a": A, "b": B}
  got = lowered(form, values).compile()(dict(values))
  np.testing.assert_allclose(got, form(A, B, jnp.array([0.2, 0.5, 3.0])), 1e-6)
  assert text(form, a=A, b=3.4) != text(form, **values)
  assert f"{methods.numbers(values, values)['a']:.2f}" == "0.30"


@pytest.fixture(autouse=True)
def clear():
  experiment.kept_programs.clear()


def count():
  """Executables that are kept."""
  return len(experiment.kept_programs)


def config(name="splitgp", lr=0.05, seed=0, **options):
  draft = tiny.tiny(own=name)
  draft.backbone.depths, draft.optimizer.lr, draft.seed = (1,), lr, seed
  draft.methods.own.update(options)
  return tiny.resolved(draft)


def advanced(config, own=False):
  """The state after a round; own: by a program with constants."""
  task = experiment.build(config)
  setup = experiment.make_setup(task, "own")
  state = Trainer(setup).init(experiment.fresh_network(task))
  if own:
    return make_round(setup)(state, setup.shards)
  trainer = Trainer(setup)
  trainer.compile(state)
  return trainer.step(state)


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
    other = config(lam=0.2, gamma=0.3, lr=0.01, seed=4)
    got = advanced(other)
    assert count() == begun
    agree(got, advanced(other, own=True), rtol=1e-9, atol=1e-12)
    advanced(config("multi_exit"))  # lam = 0 is a number, too
    assert count() == begun


@pytest.mark.slow
def test_a_method_that_takes_no_arguments_has_constants(monkeypatch, capsys):
  made = splitjax.METHODS["splitgp"]

  def stubborn(backbone, optimizer, *, floor: float = 0.1):
    jax.lax.max(jnp.ones(2), floor)
    return made(backbone, optimizer, lam=floor)

  monkeypatch.setitem(splitjax.METHODS, "stubborn", stubborn)
  kept = []
  for floor in (0.1, 0.1, 0.2):
    advanced(config("stubborn", floor=floor))
    kept.append(count())
  assert 0 < kept[0] == kept[1] < kept[2]
  said = capsys.readouterr().out
  assert said.count("own: hyper-parameters are constants of its program") == 1
