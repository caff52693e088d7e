"""LOSSES: the task's losses, by name.

Every step that trains on labels takes the loss that the config names. An entry
makes the loss of a sample; that of a batch is the mean over its real samples,
so a sample's gradient does not depend on the others.

>>> import jax, jax.numpy as jnp, splitjax
>>> def hinge(classes, *, margin: float = 1.0):
...   def loss(logits, label):
...     own = jax.nn.one_hot(label, classes)
...     rest = jnp.where(own > 0, -jnp.inf, logits).max()
...     return jax.nn.relu(margin + rest - own @ logits)
...   return loss
>>> splitjax.LOSSES["hinge"] = hinge
>>> c = splitjax.default()
>>> c.loss.name = "hinge"
>>> c.loss.margin
1.0
>>> del splitjax.LOSSES["hinge"]
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import optax
from jax import Array

from splitjax.fields import BelowOne
from splitjax.losses import each_cross_entropy

_Loss = Callable[[Array, Array], Array]
"""(logits [C] float, label [] int32) -> the sample's loss [], nats."""


def cross_entropy(classes: int) -> _Loss:
  """Cross-entropy, -log p_y with p = softmax(logits)."""
  del classes
  return each_cross_entropy


def label_smoothing(classes: int, *, smoothing: BelowOne = 0.1) -> _Loss:
  """Cross-entropy with smoothed labels: (1 - s) 1_y + s / C instead of 1_y.

  Szegedy et al., Rethinking the Inception Architecture, CVPR 2016, Section 7.
  """

  def loss(logits: Array, label: Array) -> Array:
    target = optax.smooth_labels(jax.nn.one_hot(label, classes), smoothing)
    return optax.softmax_cross_entropy(logits.astype(float), target)

  return loss


LOSSES: dict[str, Callable[..., _Loss]] = {
  "cross_entropy": cross_entropy,
  "label_smoothing": label_smoothing,
}
"""Name -> (classes, *, options) -> Loss."""


def make_loss(name: str, classes: int, options: Mapping[str, Any]) -> _Loss:
  """Makes a function (logits [B, C], labels [B]) -> each sample's loss [B]."""
  factory = LOSSES[name]
  if factory is cross_entropy:
    return each_cross_entropy
  factory(classes, **options)  # an error before a program is traced
  return BatchLoss(factory, classes, tuple(options.items()))


@dataclasses.dataclass(frozen=True)
class BatchLoss:
  """The losses [B] of a batch; a record, so that equal networks are equal."""

  factory: Callable[..., _Loss]  #: an entry of LOSSES
  classes: int
  options: tuple[tuple[str, Any], ...]

  def __call__(self, logits: Array, label: Array) -> Array:
    """Computes each sample's loss."""
    loss = self.factory(self.classes, **dict(self.options))
    return jax.vmap(loss)(logits, label)
