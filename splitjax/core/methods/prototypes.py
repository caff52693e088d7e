"""Prototypes: class means of a client's features.

Features z [B, D] are the input of the head. Networks run in inference mode.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from splitjax import trees
from splitjax.core.records import Net
from splitjax.data.feed import Samples
from splitjax.losses import masked_mean
from splitjax.models import backbones, shapes
from splitjax.models.backbones import Backbone
from splitjax.types import Batch


class ClassStats(NamedTuple):
  """Statistics of a client's features by class.

  Attributes:
    mean: [C, D] float, the prototypes; 0 for a class without samples.
    square: [C] float, E |z|^2 of each class; 0 for a class without samples.
    samples: [C] float, the number of samples of each class.
  """

  mean: Array
  square: Array
  samples: Array


class Prototypes(NamedTuple):
  """Prototypes of classes.

  Attributes:
    mean: [C, D] float.
    known: [C] bool, whether a class has a prototype.
  """

  mean: Array
  known: Array


def none(backbone: Backbone) -> Prototypes:
  """Makes a table without prototypes."""
  classes = backbone.classes
  return Prototypes(
    mean=jnp.zeros((classes, width(backbone))), known=jnp.zeros(classes, bool)
  )


def width(backbone: Backbone) -> int:
  """Returns D, the length of the head's input."""
  return math.prod(shapes.outputs(backbone)[backbone.names()[-1]])


def features(backbone: Backbone, client: Net, batch: Batch) -> Array:
  """Computes the head's input [B, D] for a batch."""
  z, _ = backbones.run(
    backbone,
    client,
    batch.image,
    backbone.names(),
    train=False,
    real=batch.real,
    key=batch.key,
  )
  return z.reshape(len(z), -1).astype(float)


def logits(backbone: Backbone, client: Net, z: Array) -> Array:
  """Computes the head's logits [B, C] for features [B, D]."""
  return backbones.run(backbone, client, z, ("head",), train=False)[0]


def class_stats(
  backbone: Backbone, client: Net, samples: Samples
) -> ClassStats:
  """Averages a client's features and their squares by class, in one pass.

  p_l is the mean of z over the N_l samples of class l (FedPAC eq. 4, PGFedSplit
  eq. 2).
  """

  def add(total, inputs):
    batch = samples.batch(*inputs)
    z = features(backbone, client, batch)
    hot = jax.nn.one_hot(batch.label, backbone.classes) * batch.real[:, None]
    part = hot.T @ z, hot.T @ jnp.square(z).sum(axis=1), hot.sum(axis=0)
    return trees.add(total, part), None

  c = backbone.classes
  zeros = jnp.zeros((c, width(backbone))), jnp.zeros(c), jnp.zeros(c)
  total, square, count = jax.lax.scan(add, zeros, samples.in_order())[0]
  some = jnp.maximum(count, 1)
  return ClassStats(
    mean=total / some[:, None], square=square / some, samples=count
  )


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
