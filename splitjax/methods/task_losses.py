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
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from splitjax.fields import NOT_NEGATIVE, SHARE
from splitjax.losses import each_cross_entropy
from splitjax.types import UserError

Loss = Callable[[Array, Array], Array]
"""(logits [C] float, label [] int32) -> the sample's loss [], nats."""


def of_classes(weights: tuple[float, ...], classes: int) -> Array:
  """Checks class weights and returns them, [C] float."""
  if len(weights) != classes or min(weights) < 0 or max(weights) == 0:
    must = f"{classes} numbers, one for each class, at least 0 each and one"
    raise UserError(f"option loss.weights={weights} must be {must} above 0")
  return jnp.array(weights, float)


def cross_entropy(classes: int) -> Loss:
  """Cross-entropy, -log p_y with p = softmax(logits)."""
  del classes
  return each_cross_entropy


def label_smoothing(
  classes: int, *, smoothing: Annotated[float, SHARE] = 0.1
) -> Loss:
  """Cross-entropy with smoothed labels: (1 - s) 1_y + s / C instead of 1_y.

  Szegedy et al., Rethinking the Inception Architecture, CVPR 2016, Section 7.
  """

  def loss(logits: Array, label: Array) -> Array:
    target = optax.smooth_labels(jax.nn.one_hot(label, classes), smoothing)
    return optax.softmax_cross_entropy(logits.astype(float), target)

  return loss


def class_weights(classes: int, *, weights: tuple[float, ...] = ()) -> Loss:
  """Cross-entropy times a weight of the label's class, -w_y log p_y.

  The loss of a batch is the mean over samples. PyTorch divides by the sum of
  their weights, so that a batch of rare classes weighs no more than others.
  """
  table = of_classes(weights, classes)

  def loss(logits: Array, label: Array) -> Array:
    return table[label] * each_cross_entropy(logits, label)

  return loss


def focal(
  classes: int,
  *,
  gamma: Annotated[float, NOT_NEGATIVE] = 2.0,
  weights: tuple[float, ...] = (),
) -> Loss:
  """Focal loss, -alpha_y (1 - p_y)^gamma log p_y; gamma = 0: cross-entropy.

  Lin et al., Focal Loss for Dense Object Detection, ICCV 2017, eq. 5. `weights`
  are alpha; (): 1 for every class.
  """
  table = of_classes(weights, classes) if weights else jnp.ones(classes)

  def loss(logits: Array, label: Array) -> Array:
    fit = each_cross_entropy(logits, label)
    # 1 - p_y, away from 0, where a power below 1 has no finite gradient.
    rest = jnp.maximum(-jnp.expm1(-fit), jnp.finfo(fit.dtype).tiny)
    return table[label] * rest**gamma * fit

  return loss


LOSSES: dict[str, Callable[..., Loss]] = {
  "cross_entropy": cross_entropy,
  "label_smoothing": label_smoothing,
  "class_weights": class_weights,
  "focal": focal,
}
"""Name -> (classes, *, options) -> Loss."""


def make_loss(name: str, classes: int, options: Mapping[str, Any]) -> Loss:
  """Makes a function (logits [B, C], labels [B]) -> each sample's loss [B]."""
  factory = LOSSES[name]
  if factory is cross_entropy:
    return each_cross_entropy
  factory(classes, **options)  # an error before a program is traced
  return BatchLoss(factory, classes, tuple(options.items()))


@dataclasses.dataclass(frozen=True)
class BatchLoss:
  """The losses of a batch: logits [B, C], label [B] -> [B].

  A record and no closure, so that networks of equal configs are equal.
  """

  factory: Callable[..., Loss]  #: an entry of LOSSES
  classes: int
  options: tuple[tuple[str, Any], ...]

  def __call__(self, logits: Array, label: Array) -> Array:
    """Computes each sample's loss."""
    loss = self.factory(self.classes, **dict(self.options))
    return jax.vmap(loss)(logits, label)
