"""Batches of public samples, and the logits of networks for these samples.

Public samples have no labels (`data.public`); the server and every client see
all of them. They are the last P inputs on the device, P = `backbone.public`.
"""

import jax
import jax.numpy as jnp

from splitjax.data.feed import Samples, standardise
from splitjax.methods import aggregations
from splitjax.models import backbones
from splitjax.models.backbones import Backbone
from splitjax.types import Aggregation, Array, Batch, Half, Segment, Sums, Tree

AT_ONCE = 128
"""Public samples that a network answers at a time."""


def public_batch(
  backbone: Backbone, samples: Samples, rows: Array, real: Array, key: Tree = ()
) -> Batch:
  """Makes a batch of public samples, whose labels are all 0.

  The images are standardised as in training, but not augmented.

  Args:
    backbone: the network.
    samples: the samples of any client, since all hold the public ones.
    rows: [B] int32, 0 to P - 1.
    real: [B] bool, False on padding.
    key: [] key of random layers; () if no layer is random.
  """
  image = samples.shard.image
  image = image[image.shape[0] - backbone.public + rows]
  image = standardise(image, samples.plan.mean, samples.plan.std)
  return Batch(image, jnp.zeros_like(rows), real, key)


def in_batches(order: Array, size: int) -> tuple[Array, Array]:
  """Cuts an order of samples [M] into batches [T, B].

  B is `size`, or M if M is smaller. Padding comes last and repeats the first
  samples; the second array returned, [T, B] bool, is False there.
  """
  count = len(order)
  size = min(size, count)
  places = jnp.arange(-(-count // size) * size).reshape(-1, size)
  return order[places % count], places < count


def answers(
  backbone: Backbone, client: Segment, samples: Samples, rows: Array
) -> Array:
  """Computes a whole network's logits [M, C] of public samples `rows` [M].

  The network is in inference mode.
  """
  names = (*backbone.names(), "head")

  def some(inputs):
    batch = public_batch(backbone, samples, *inputs)
    return backbones.run(backbone, client, batch.image, names, train=False)[0]

  each = jax.lax.map(some, in_batches(rows, AT_ONCE))
  return each.reshape(-1, backbone.classes)[: len(rows)].astype(float)


def training_logits(
  backbone: Backbone, segment: Segment, params: Tree, batch: Batch
) -> tuple[Array, Tree]:
  """Runs a whole network in training mode on a batch.

  Returns logits [B, C] and the new running statistics. Parameters come from
  `params` and not from `segment`, so a caller can differentiate by `params`.
  """
  names = (*backbone.names(), "head")
  segment = segment._replace(params=params)
  return backbones.run_batch(backbone, segment, batch.image, names, batch)


def with_logits(rule: Aggregation) -> Aggregation:
  """Extends an aggregation: it also sums the participants' logits, unweighted.

  A participant stores its logits as `memory.logits` in its copy of the server.
  """

  def contribute(client: Half, server: Half, weight: Array) -> Sums:
    one = (weight > 0).astype(float)
    own = aggregations.weighted(one, server.memory.logits)
    sums = rule.contribute(client, server, weight)
    return sums._replace(extra={**sums.extra, "logits": own, "answered": one})

  return rule._replace(contribute=contribute)


def mean_logits(sums: Sums, old: Array) -> Array:
  """Returns the mean logits of the participants; `old` if there are none."""
  return aggregations.mean(sums.extra["logits"], sums.extra["answered"], old)
