"""MergeSFL: the server trains on one batch of all clients' features.

Liao et al., MergeSFL: Split Federated Learning with Feature Merging and Batch
Size Regulation, ICDE 2024.
"""

import functools

import jax
import jax.numpy as jnp

from splitjax import losses, trees, wire
from splitjax.methods import optimizers
from splitjax.methods.optimizers import Optimizer
from splitjax.methods.splitfed import Mean, split_method
from splitjax.models import backbones
from splitjax.models.backbones import Backbone
from splitjax.types import Array, Batch, Half, Ledger, Method


def merge_sfl(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  micro_batches: bool = False,
  mean: Mean = "uniform",
) -> Method:
  """MergeSFL: the server merges all clients' features and takes one step.

  Every local step takes the next batch of each client. The server descends the
  mean loss of the merged batches, sum_i sum_b l / sum_i b_i. Client i scales
  the gradient that it gets back by sum_j b_j / b_i; it is then the gradient of
  the client's own mean loss. All clients have equally large batches and are
  equally likely, as in the public code; the paper also adapts batch sizes to
  the clients' speeds and chooses clients by their labels.

  Args:
    backbone: the network.
    optimizer: optimiser of both halves.
    micro_batches: whether a client's batch has B / N samples, at least one. A
      merged batch then has about B samples, and the server takes as many steps
      in a round as it does in SplitFed v2. Hydra's section 5 speaks of "more
      frequent updates (due to micro-batches)"; its public code merges N batches
      of B samples, which is the default here.
    mean: the weight of a participant in the average of part-1; uniform in the
      public code.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10, depths=(2,))
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = merge_sfl(net, sgd, micro_batches=True)
    >>> method.traits.answers
    ('server',)
  """

  def step(clients, server, batches, keys):
    del keys
    batch = batches[0]

    # Clients: forward passes. Non-finite features would spoil the common step,
    # so their samples count as padding.
    z, pull_clients, stats = _client_forward(backbone, clients, batch)
    fine = batch.real & jnp.isfinite(z).all(axis=tuple(range(2, z.ndim)))
    z = trees.where(fine, z, jnp.zeros_like(z))
    sent = batch._replace(real=fine)
    z, up = _send(backbone, "up/features", z, sent)

    # Server: one pass on the merged features.
    loss, pull, (server_stats, each) = _server_forward(
      backbone, server, _flat(z), batch.label, fine, batch.key[0]
    )
    theta, dz = pull(jnp.ones_like(loss))
    dz, down = _send(
      backbone, "down/feature_gradient", dz.reshape(z.shape), sent
    )

    # Clients: the gradient, scaled to that of each client's own mean loss.
    size = fine.sum(axis=1)
    factor = size.sum() / jnp.maximum(size, 1)
    dz = dz * factor.reshape(-1, *(1,) * (z.ndim - 1))
    phi = pull_clients(dz.astype(z.dtype))[0]

    # Optimiser steps of all halves.
    descend = jax.vmap(lambda c, g, s: optimizers.descend(c, g, s, optimizer))
    clients = descend(clients, phi, stats)
    server = optimizers.descend(server, theta, server_stats, optimizer)
    mean_loss = {"server": jax.vmap(losses.masked_mean)(each, fine)}
    ledger = wire.merge(up, jax.vmap(wire.labels)(fine), down)
    return clients, server, mean_loss, ledger

  def micro_batch(count, size):
    return max(round(size / count), 1)

  made = split_method(backbone, optimizer, step, topology="merged", mean=mean)
  return made._replace(batch=micro_batch if micro_batches else None)


def _client_forward(backbone: Backbone, clients: Half, batch: Batch):
  """Computes all clients' features [N, B, ...], their vjp, and statistics."""
  names = backbone.names(0, backbone.cuts[0])

  def one(params, stats, batch):
    segment = clients.segment._replace(params=params, stats=stats)
    return backbones.run_batch(backbone, segment, batch.image, names, batch)

  def forward(params):
    return jax.vmap(one)(params, clients.segment.stats, batch)

  return jax.vjp(forward, clients.segment.params, has_aux=True)


def _server_forward(
  backbone: Backbone,
  server: Half,
  z: Array,
  label: Array,
  real: Array,
  key: Array,
):
  """Runs the server's forward pass on z [N * B, ...].

  Returns the mean loss, its vjp, and (statistics, losses [N, B]).
  """
  names = (*backbone.names(backbone.cuts[0]), "head")

  def forward(params, z):
    segment = server.segment._replace(params=params)
    logits, stats = backbones.run(
      backbone, segment, z, names, train=True, real=real.ravel(), key=key
    )
    each = backbone.loss(logits, label.ravel())
    mean = losses.masked_mean(each, real.ravel())
    return mean, (stats, each.reshape(real.shape))

  return jax.vjp(forward, server.segment.params, z, has_aux=True)


def _flat(x: Array) -> Array:
  """Merges the leading axes: [N, B, ...] -> [N * B, ...]."""
  return x.reshape(-1, *x.shape[2:])


def _send(
  backbone: Backbone, name: str, x: Array, batch: Batch
) -> tuple[Array, Ledger]:
  """Sends x [N, B, ...] client by client; ledger entries are [N]."""
  return jax.vmap(functools.partial(wire.send, backbone.wire, name))(x, batch)
