"""MergeSFL: Feature Merging, Batch Size Regulation (Liao et al., ICDE 2024)."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from splitjax import losses, trees, wire
from splitjax.methods.splitfed import SplitFed
from splitjax.models import network
from splitjax.parameters import pytree


@pytree
class MergeSFL(SplitFed):
  """Every local step takes the next batch of each client.

  The server descends the mean loss of the merged batches, sum_i sum_b l / sum_i
  b_i. Client i scales the gradient that it gets back by sum_j b_j / b_i; it is
  then the gradient of the client's own mean loss. All clients have equally
  large batches and are equally likely, as in the public code; the paper also
  adapts batch sizes to the clients' speeds and chooses clients by their labels.
  """

  #: whether a client's batch has B / N samples, at least one. A merged batch
  #: then has about B samples, and the server takes as many steps in a round as
  #: it does in SplitFed v2. Hydra's section 5 speaks of "more frequent updates
  #: (due to micro-batches)"; its public code merges N batches of B samples,
  #: which is the default here.
  micro_batches: bool = False

  topology: ClassVar[str] = "merged"

  def batch_size(self, clients, batch):
    return max(round(batch / clients), 1) if self.micro_batches else batch

  def step(self, half, copy, context, batches, key):
    """Takes the halves, batches and keys of n clients, stacked."""
    (batch,) = batches

    # Clients: forward passes. Non-finite features would spoil the common step,
    # so their samples count as padding.
    def forward(params):
      nets = half.net._replace(params=params)
      return jax.vmap(self.features)(nets, batch)

    z, pull, stats = jax.vjp(forward, half.net.params, has_aux=True)
    fine = batch.real & jnp.isfinite(z).all(axis=tuple(range(2, z.ndim)))
    z = trees.where(fine, z, jnp.zeros_like(z))
    sent = batch._replace(real=fine)
    z = wire.send_stacked(self.wire, "up/features", z, sent)
    wire.send_labels(fine)

    # Server: one pass on the merged features; the mean is over all samples.
    far = self.merged_back(copy.net, z, sent)
    share = fine.astype(far.output.dtype) / jnp.maximum(fine.sum(), 1)
    theta, dz = far.pull(share)
    dz = wire.send_stacked(self.wire, "down/feature_gradient", dz, sent)

    # Clients: the gradient, scaled to that of each client's own mean loss.
    factor = fine.sum() / jnp.maximum(fine.sum(axis=1), 1)
    dz = dz * factor.reshape(-1, *(1,) * (z.ndim - 1))
    (phi,) = pull(dz.astype(z.dtype))

    # Optimiser steps of all halves.
    half = jax.vmap(self.optimizer.step)(half, phi, stats)
    copy = self.optimizer.at_server.step(copy, theta, far.stats)
    mean_loss = jax.vmap(losses.masked_mean)(far.output, fine)
    return half, copy, {"server": mean_loss}

  def merged_back(self, net, z, batch):
    """Runs theta on features z [n, B, ...]; the output is the losses [n, B]."""
    backbone, label = self.backbone, batch.label.ravel()
    names = (*backbone.names(backbone.cuts[0]), "head")
    real, key = batch.real.ravel(), batch.key[0]
    batch = batch._replace(label=label, real=real, key=key)

    def forward(net, z):
      rows = z.reshape(-1, *z.shape[2:])
      logits, stats = network.run_batch(backbone, net, rows, names, batch)
      return backbone.loss(logits, label).reshape(z.shape[:2]), stats

    return self.behind(net, z, names, forward)
