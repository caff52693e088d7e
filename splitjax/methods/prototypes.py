"""Prototypes: class means of a client's features.

Features z [B, D] are the input of the head. Networks run in inference mode.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from splitjax import trees
from splitjax.data.feed import Samples
from splitjax.losses import masked_mean
from splitjax.models import network, sizes
from splitjax.models.network import Backbone
from splitjax.types import Batch, Net


class ClassStats(NamedTuple):
  """Statistics of a client's features; 0 for a class without samples."""

  mean: Array  #: [C, D], the prototypes
  square: Array  #: [C], E |z|^2
  samples: Array  #: [C] float, their number


class Prototypes(NamedTuple):
  """Prototypes of classes, and whether a class has one."""

  mean: Array  #: [C, D]
  known: Array  #: [C] bool


def none(backbone: Backbone) -> Prototypes:
  """Makes a table without prototypes."""
  c = backbone.classes
  mean = jnp.zeros((c, width(backbone)))
  return Prototypes(mean=mean, known=jnp.zeros(c, bool))


def width(backbone: Backbone) -> int:
  """Returns D, the length of the head's input."""
  return math.prod(sizes.outputs(backbone)[backbone.names()[-1]])


def features(backbone: Backbone, net: Net, batch: Batch) -> Array:
  """Computes the head's input [B, D] for a batch."""
  names = backbone.names()
  z, _ = network.run(backbone, net, batch.image, names, train=False)
  return z.reshape(len(z), -1).astype(float)


def logits(backbone: Backbone, net: Net, z: Array) -> Array:
  """Computes the head's logits [B, C] for features [B, D]."""
  return network.run(backbone, net, z, ("head",), train=False)[0]


def class_stats(backbone: Backbone, net: Net, samples: Samples) -> ClassStats:
  """Averages features and their squares by class, in a pass (FedPAC eq. 4)."""

  def add(total, inputs):
    batch = samples.batch(*inputs)
    z = features(backbone, net, batch)
    hot = jax.nn.one_hot(batch.label, backbone.classes) * batch.real[:, None]
    part = hot.T @ z, hot.T @ jnp.square(z).sum(axis=1), hot.sum(axis=0)
    return trees.add(total, part), None

  c = backbone.classes
  zeros = jnp.zeros((c, width(backbone))), jnp.zeros(c), jnp.zeros(c)
  total, square, count = jax.lax.scan(add, zeros, samples.in_order())[0]
  some = jnp.maximum(count, 1)
  mean = total / some[:, None]
  return ClassStats(mean=mean, square=square / some, samples=count)


def distance_to(
  anchor: Array, known: Array, z: Array, batch: Batch, *, per_feature: bool
) -> Array:
  """Computes the mean over a batch of 1[y known] |z - p_y|^2, [] float.

  p, the `anchor`, is [C, D], and z [B, ...] are features. The squared distance
  is divided by D if it is taken `per_feature`.
  """
  z = z.reshape(len(z), -1).astype(float)
  square = jnp.square(z - anchor[batch.label]).sum(axis=1)
  square = jnp.where(known[batch.label], square, 0.0)
  return masked_mean(square / (z.shape[1] if per_feature else 1), batch.real)
