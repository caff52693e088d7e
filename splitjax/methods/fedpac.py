"""FedPAC: alignment of features, mixed heads (Xu et al., ICLR 2023)."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from optax.projections import projection_simplex

from splitjax import trees, wire
from splitjax.fields import Count
from splitjax.methods import nets, prototypes
from splitjax.methods.fedavg import HEAD_PASSES
from splitjax.methods.method import is_body, is_head
from splitjax.methods.prototypes import Aligned, Prototypes
from splitjax.parameters import pytree
from splitjax.types import Stage

_SMALLEST = 1e-3
"""Head weights smaller than this are set to 0, as in the authors' code."""

STEPS = 1000
"""Number of steps of `minimise`; a test compares its result with scipy's."""


class Estimates(NamedTuple):
  """Memory of a client, computed with the body that it received."""

  h: Array  #: [C, D], pi_l mu_l, share and mean feature of each class l
  v: Array  #: [] float, the variance of the head's estimate


@pytree
class FedPAC(Aligned):
  """A head epoch, then body epochs with aligned features (Algorithm 1).

  In the first round the body descends CE alone. A class without a global
  prototype has the client's own in its place. Bodies are averaged. The next
  head of client i is sum_j a_ij head_j with a_i from `head_weights`.
  """

  #: epochs of the head in each round; the body's are local_epochs
  head_epochs: Count = 1

  def keeps(self, path):
    return is_head(path) or super().keeps(path)

  def sends(self, path):
    # Heads travel too, although nobody takes their mean.
    return not super().keeps(path)

  def first_client(self, net, size):
    h = prototypes.none(self.backbone).mean
    memory = Estimates(h=h, v=jnp.zeros(()))
    return super().first_client(net, size)._replace(memory=memory)

  def receive(self, client, server, samples, round, key):
    mean, present = server.memory
    half, copy, _ = super().receive(client, server, samples, round, key)
    # Its statistics, and v = (sum_l pi_l E|f|^2 - |pi_l mu_l|^2) / n.
    mu, square, count = prototypes.class_stats(self.backbone, half.net, samples)
    n = jnp.maximum(count.sum(), 1)
    pi = count / n
    h = pi[:, None] * mu
    v = ((pi * square).sum() - jnp.square(h).sum()) / n
    mean = jnp.where(present[:, None], mean, mu)
    present = (present | (count > 0)) & (round > 0)
    anchors = Prototypes(mean=mean, present=present)
    return half._replace(memory=Estimates(h=h, v=v)), copy, anchors

  def stages(self):
    return (
      Stage(step=self.head_step, epochs=self.head_epochs, passes=HEAD_PASSES),
      Stage(step=functools.partial(self.step_in, is_body)),
    )

  def head_step(self, half, copy, context, batches, key):
    """Descends CE alone in the head, at the body's learning rate.

    The authors' code has 0.1 here; papers that compare name one rate for all.
    """
    no_anchors = None
    return self.step_in(is_head, half, copy, no_anchors, batches, key)

  def send(self, half, copy, context, samples, weight, key):
    classes = (samples.shard.counts > 0).sum()
    wire.record("up/statistics", 4 * (half.memory.h.shape[1] * classes + 1))
    return super().send(half, copy, context, samples, weight, key)

  def merge(self, server, shares, clients, counted):
    server, (cohort,) = super().merge(server, shares, clients, counted)
    (on,) = counted
    heads = cohort.net.params["head"]
    weights = head_weights(cohort.memory.h, cohort.memory.v, on)
    mixed = nets.combine(weights, heads)
    # A product with the weights 0 and 1 may round: who is absent stays exact.
    params = cohort.net.params | {"head": trees.where(on, mixed, heads)}
    net = cohort.net._replace(params=params)
    return server, (cohort._replace(net=net),)


def head_weights(h: Array, v: Array, on: Array) -> Array:
  """Computes the weights [N, N] by which clients combine heads (eq. 10-11).

  Row i is a_i = argmin over the simplex of a^T (diag(V) + D_i) a with D_i[j, l]
  = <h_i - h_j, h_i - h_l>. Weights below SMALLEST become 0. A client keeps its
  head if it is not `on` [N] or has no finite solution.
  """
  flat = h.reshape(len(h), -1)
  squares = jnp.square(flat).sum(axis=1)
  finite = on & (jnp.abs(v) < nets.LARGEST) & (squares < nets.LARGEST)
  flat = jnp.where(finite[:, None], flat, 0.0)
  v = jnp.diag(jnp.where(finite, v, 0.0))

  def weights(i):
    gaps = flat[i] - flat
    d = jnp.matmul(gaps, gaps.T, precision=jax.lax.Precision.HIGHEST)
    a = minimise(v + d, finite)
    a = jnp.where(a < _SMALLEST, 0.0, a)
    a = a / a.sum()
    alone = jnp.arange(len(v)) == i
    return jnp.where(jnp.isfinite(a).all() & finite[i], a, alone)

  return jax.lax.map(weights, jnp.arange(len(v)))


def minimise(q: Array, allowed: Array) -> Array:
  """Minimises a^T Q a over the simplex {a >= 0, sum a = 1}.

  Q [N, N] is symmetric and positive semidefinite. Coordinates that are not
  `allowed` [N] are 0. Returns a [N]. This is accelerated projected gradient.
  """
  q = jnp.where(allowed[:, None] & allowed, q, 0.0)
  # The largest row sum bounds the largest eigenvalue: the gradient's Lipschitz
  # constant.
  lipschitz = 2 * jnp.maximum(jnp.abs(q).sum(axis=1).max(), 1e-12)

  def step(carry, _):
    a, y, t = carry
    # The projection gives -inf the weight 0.
    moved = jnp.where(allowed, y - 2 * (q @ y) / lipschitz, -jnp.inf)
    new = projection_simplex(moved)
    # Momentum starts again where it points uphill (O'Donoghue and Candes).
    t = jnp.where((y - new) @ (new - a) > 0, 1.0, t)
    t_next = (1 + jnp.sqrt(1 + 4 * t * t)) / 2
    return (new, new + (t - 1) / t_next * (new - a), t_next), None

  start = allowed / jnp.maximum(allowed.sum(), 1)
  return jax.lax.scan(step, (start, start, jnp.ones(())), length=STEPS)[0][0]
