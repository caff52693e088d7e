"""PGFedSplit's personal head: mixed with the common one, then trained.

Mixing and training use the mixed set of features (`mixed_set`), not images.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from splitjax import losses
from splitjax.data.feed import Samples
from splitjax.methods import optimizers, prototypes
from splitjax.methods.mixed_set import Mixed
from splitjax.methods.optimizers import Optimizer
from splitjax.models.backbones import Backbone
from splitjax.types import Array, Segment, Tree


def coefficient(
  backbone: Backbone, own: Tree, common: Tree, mixed: Mixed, penalty: Array
) -> Array:
  """Computes the mixing coefficient alpha, [] float.

  alpha minimises the objective of eq. 13 over [0, 1]. The objective is the mean
  over the mixed set of CE(alpha g_own + (1 - alpha) g_common, y) + penalty
  alpha^2 KL(p_own || p_common), at temperature 1. It is convex in alpha;
  `minimum_on_unit` minimises it.

  Args:
    backbone: the network; `own` and `common` are parameters of its head.
    own: the client's head, phi_i.
    common: the aggregated head.
    mixed: the mixed set.
    penalty: [] float, beta Delta_i.
  """

  def logits(head):
    segment = Segment({"head": head}, {"head": {}})
    return prototypes.logits(backbone, segment, mixed.z)

  mine, theirs = logits(own), logits(common)
  log_p, log_q = jax.nn.log_softmax(mine), jax.nn.log_softmax(theirs)
  apart = (jnp.exp(log_p) * (log_p - log_q)).sum(axis=1)
  apart = losses.masked_mean(apart, mixed.real)

  def loss(alpha):
    both = alpha * mine + (1 - alpha) * theirs
    fit = backbone.mean_loss(both, mixed.label, mixed.real)
    return fit + penalty * alpha**2 * apart

  return minimum_on_unit(loss)


def minimum_on_unit(loss: Callable[[Array], Array]) -> Array:
  """Finds the minimiser of a convex function on [0, 1], ends included.

  Each step halves the interval by the sign of the slope. A comparison of values
  would find the minimiser only to the square root of their rounding error.
  Returns [] float.
  """
  slope = jax.grad(loss)

  def step(ends, _):
    low, high = ends
    middle = (low + high) / 2
    falls = slope(middle) < 0
    return (jnp.where(falls, middle, low), jnp.where(falls, high, middle)), None

  zero, one = jnp.zeros(()), jnp.ones(())
  halvings = jnp.finfo(zero.dtype).nmant + 1  # to the last bit of alpha
  (low, high), _ = jax.lax.scan(step, (zero, one), length=halvings)
  inside = jnp.where(slope(one) <= 0, one, (low + high) / 2)
  return jnp.where(slope(zero) >= 0, zero, inside)


def head_stage(backbone: Backbone, optimizer: Optimizer, epochs: int):
  """Builds a Stage's `once`, which trains the head on the mixed set (eq. 6)."""

  def once(client, server, samples: Samples, key):
    mixed, batch = client.memory.mixed, samples.plan.batch
    size = len(mixed.label)
    steps = -(-size // batch)

    def loss(head, z, label, real):
      segment = Segment({"head": head}, {"head": {}})
      out = prototypes.logits(backbone, segment, z)
      return backbone.mean_loss(out, label, real)

    # A step on a batch of rows; a batch of padding alone moves nothing.
    def step(client, rows):
      real = (rows >= 0) & mixed.real[rows]
      head = client.segment.params["head"]
      value, grad = jax.value_and_grad(loss)(
        head, mixed.z[rows], mixed.label[rows], real
      )
      on = real.any()
      client = optimizers.descend(
        client, {"head": grad}, {}, optimizer, {"head": on}
      )
      return client, jnp.stack([jnp.where(on, value, 0.0), on.astype(float)])

    def epoch(client, key):
      # Separate keys for local features and Gaussian draws: the padding that
      # other clients need must not change this client's order.
      local = samples.in_order()[0].size
      keys = jax.random.split(key)
      draw = jnp.concatenate(
        [
          jax.random.uniform(keys[0], (local,)),
          jax.random.uniform(keys[1], (size - local,)),
        ]
      )
      draw = jnp.where(mixed.real, draw, 2.0)
      rows = jnp.pad(
        jnp.argsort(draw), (0, steps * batch - size), constant_values=-1
      )
      return jax.lax.scan(step, client, rows.reshape(steps, batch))

    keys = jax.random.split(key, epochs)
    client, told = jax.lax.scan(epoch, client, keys)
    total, taken = told.sum(axis=(0, 1))
    return client, server, {"head": total / jnp.maximum(taken, 1)}, {}

  return once
