"""Attacks on messages that a test makes, compiled once for equal shapes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from splitjax.evaluation.attacks import ATTACKS
from splitjax.evaluation.attacks.contract import Messages, Public, Truth
from splitjax.types import Batch

C = 5


KEY = jax.random.key(3)


def messages(sent, label, *, sample=None, size=None, image=None, real=None):
  """Messages of n samples, of which each occurs once unless `sample` says."""
  label = jnp.atleast_2d(jnp.asarray(label, jnp.int32))
  n = label.shape[1]
  if sample is None:
    sample = jnp.broadcast_to(jnp.arange(n), label.shape)
  real = jnp.ones(n, bool) if real is None else jnp.asarray(real)
  image = jnp.zeros((n, 2, 2, 1)) if image is None else image
  none = Batch(jnp.zeros((0, 2, 2, 1)), jnp.zeros(0, int), jnp.zeros(0, bool))
  truth = Truth(label, image, none, none)
  return Messages(sent, jnp.asarray(sample), size or n, real, truth)


def public(sent=None, label=(), *, image=None, head=None, classify=None):
  return Public(sent or {}, np.asarray(label), image, head, classify, C)


@functools.cache
def compiled(name, size, known, options):
  """An attack and its program, of functions and numbers that are no arrays."""
  attack = ATTACKS[name](**dict(options))

  def run(seen, arrays, key):
    whole = Public(*arrays, *known)
    return attack.run(seen._replace(size=size), whole, key)

  return attack, jax.jit(run)


def scores(name, seen, public, **options):
  own = tuple(public[3:]), tuple(options.items())
  attack, run = compiled(name, seen.size, *own)
  found = run(seen._replace(size=None), tuple(public[:3]), KEY)
  assert set(attack.numbers) <= set(found)
  return {k: float(x) if x.ndim == 0 else x for k, x in found.items()}
