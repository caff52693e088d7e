"""MergeSFL: the features of all clients are one batch of the server's."""

import jax
import jax.numpy as jnp

from splitjax import losses, trees, wire
from splitjax.methods import base
from splitjax.methods import optimizer as optimizers
from splitjax.methods.optimizer import Optimizer
from splitjax.methods.splitfed import Mean, split_method
from splitjax.models import backbone as bb
from splitjax.models.backbone import Backbone
from splitjax.types import Array, Batch, Half, Ledger, Method
from splitjax.wire import WireDtype


def merge_sfl(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  slowest: float = 1.0,
  scaled: bool = True,
  wire_dtype: WireDtype = "float32",
  mean: Mean = "uniform",
) -> Method:
  """MergeSFL: features merged, one server step on their mean loss.

  Every local step takes the next batch of all clients: the server descends on
  sum_i sum_b l / sum_i b_i, and client i on the gradient that comes back times
  sum_j b_j / b_i, which is that of its own mean loss.

  Args:
    backbone: the network.
    optimizer: of both halves.
    slowest: batch-size regulation, b_i in proportion to speed. Speeds are
      spaced evenly from this share of the batch, for the first client, to 1,
      for the last; a slow client skips the rest of each of its batches. 1:
      none, as in the public code. The choice of clients by their labels is no
      part of this.
    scaled: whether the gradient is scaled back so; False: as it comes.
    wire_dtype: width of the features on the wire.
    mean: what a participant counts in the average of part-1; the public code:
      uniform.

  References:
    Liao et al., MergeSFL: Split Federated Learning with Feature Merging and
      Batch Size Regulation, ICDE 2024.
  """
  base.check("slowest", slowest, 0 < slowest <= 1, "in (0, 1]")

  def step(clients, server, batches, keys):
    del keys
    batch = batches[0]
    if slowest < 1:
      batch = jax.vmap(_regulated)(batch, clients.memory)
    z, pull_fronts, stats = _fronts(backbone, clients, batch)
    shape, dtype = z.shape, z.dtype
    # Whose features are not finite would spoil everybody's step.
    fine = batch.real & jnp.isfinite(z).all(axis=tuple(range(2, z.ndim)))
    z = trees.where(fine.ravel(), _flat(z), jnp.zeros_like(_flat(z)))
    z = wire.cast(z, wire_dtype)
    loss, pull, (after, each) = _back(backbone, server, z, batch.label, fine)
    theta, dz = pull(jnp.ones_like(loss))
    size = fine.sum(axis=1)
    if scaled:
      factor = size.sum() / jnp.maximum(size, 1)
      dz = dz * jnp.repeat(factor, fine.shape[1]).reshape(
        -1, *(1,) * (z.ndim - 1)
      )
    own = pull_fronts(dz.reshape(shape).astype(dtype))[0]
    new = jax.vmap(lambda c, g, s: optimizers.descend(c, g, s, optimizer))(
      clients, own, stats
    )
    server = optimizers.descend(server, theta, after, optimizer)
    told = {"server": jax.vmap(losses.masked_mean)(each, fine)}
    return new, server, told, _bills(z, size, wire_dtype)

  made = split_method(backbone, optimizer, step, topology="merged", mean=mean)
  if slowest == 1:
    return made

  def init(key, fleet, full):
    state = made.init(key, fleet, full)
    (clients,), (cohort,) = state.clients, fleet.cohorts
    speed = jnp.linspace(slowest, 1.0, fleet.num_clients)
    speed = speed[jnp.array(cohort.places)]
    return state._replace(clients=(clients._replace(memory=speed),))

  return made._replace(init=init)


def _regulated(batch: Batch, speed: Array) -> Batch:
  """The first `speed` [] of a batch; one sample at least."""
  size = batch.real.shape[0]
  most = jnp.maximum(jnp.round(speed * size), 1)
  return batch._replace(real=batch.real & (jnp.arange(size) < most))


def _fronts(backbone: Backbone, clients: Half, batch: Batch):
  """All clients' forward passes: features [N, B, ...], pull, statistics."""
  names = backbone.names(0, backbone.cuts[0])

  def one(params, stats, batch):
    segment = clients.segment._replace(params=params, stats=stats)
    return bb.run(
      backbone, segment, batch.image, names, train=True, real=batch.real
    )

  def every(params):
    return jax.vmap(one)(params, clients.segment.stats, batch)

  return jax.vjp(every, clients.segment.params, has_aux=True)


def _back(
  backbone: Backbone, server: Half, z: Array, label: Array, real: Array
):
  """The server's pass on merged features: mean loss, pull, (stats, [N, B])."""
  names = (*backbone.names(backbone.cuts[0]), "head")

  def back(params, z):
    segment = server.segment._replace(params=params)
    logits, stats = bb.run(
      backbone, segment, z, names, train=True, real=real.ravel()
    )
    each = losses.each_cross_entropy(logits, label.ravel())
    mean = losses.masked_mean(each, real.ravel())
    return mean, (stats, each.reshape(real.shape))

  return jax.vjp(back, server.segment.params, z, has_aux=True)


def _flat(x: Array) -> Array:
  """[N, B, ...] -> [N * B, ...]."""
  return x.reshape(-1, *x.shape[2:])


def _bills(z: Array, size: Array, dtype: WireDtype) -> Ledger:
  """Messages [N] of clients with `size` [N] samples; features z [M, ...]."""
  numbers = trees.size(z) // len(z) * size
  width = jnp.dtype(dtype).itemsize
  return wire.merge(
    wire.price("up/features", width * numbers),
    wire.price("up/labels", 4 * size),
    wire.price("down/feature_gradient", 4 * numbers),
  )
