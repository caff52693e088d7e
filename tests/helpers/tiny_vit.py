"""A vision transformer that compiles in seconds: width 12, 5 tokens."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from splitjax import models
from splitjax.models import vit_s16

SHAPE, CLASSES = (8, 8, 3), 5
TINY = {"width": 1 / 32, "length": 4, "resolution": 8, "patch": 4}


def tiny(**given):
  """The network, with other options where given."""
  return vit_s16(SHAPE, CLASSES, **{**TINY, "depths": (1, 2, 3), **given})


_init = jax.jit(models.init, static_argnums=0)


def draw(net):
  """Its fresh parameters, of a checkpoint where it starts from one."""
  full = _init(dataclasses.replace(net, start="he"), jax.random.key(0))
  return full if net.start == "he" else net.start.into(full)


def fresh(**given):
  """Both, drawn once in each precision."""
  return _fresh(jnp.result_type(float), **given)


@functools.cache
def _fresh(width, /, **given):
  del width  # a key of the cache
  net = tiny(**given)
  return net, draw(net)


def rough(tree, scale=0.3):
  """Every parameter moved: nothing is 0 or 1, and attention is not flat."""
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda x: x + scale * rng.normal(size=x.shape).astype(x.dtype), tree
  )


def images(*shape, seed=1):
  """Normal numbers, in the present default float."""
  x = np.random.default_rng(seed).normal(size=shape)
  return x.astype(jnp.result_type(float))
