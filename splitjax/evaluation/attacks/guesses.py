"""Directions of gradients, and scores of guesses: accuracy, majority, AUC."""

import jax
import jax.numpy as jnp

from splitjax.types import Array


def direction(x: Array) -> Array:
  """Scales rows [n, ...] to [n, D] float of length 1; a zero row stays zero.

  Tiny rows are scaled too: a sample that a network is sure of has tiny
  gradients.
  """
  x = x.reshape(len(x), -1).astype(float)
  most = jnp.abs(x).max(axis=-1, keepdims=True)
  x = x / jnp.where(most > 0, most, 1.0)
  length = jnp.linalg.norm(x, axis=-1, keepdims=True)
  return x / jnp.where(length > 0, length, 1.0)


def accuracy(guess: Array, label: Array, real: Array) -> Array:
  """Share [] float of the real samples for which the guess [n] is right."""
  right = jnp.where(real, guess == label, False)
  return right.sum() / jnp.maximum(real.sum(), 1)


def majority(label: Array, real: Array, classes: int) -> tuple[Array, Array]:
  """Finds the most frequent class [] int32 and its share of samples [] float.

  The share is the accuracy of a guess that is always this class.
  """
  count = (jax.nn.one_hot(label, classes) * real[:, None]).sum(axis=0)
  share = count.max() / jnp.maximum(count.sum(), 1)
  return count.argmax().astype(jnp.int32), share


def auc(score: Array, positive: Array, negative: Array) -> Array:
  """Area under the ROC curve of a score.

  The probability that a positive sample has a larger score than a negative one,
  plus half the probability that both are equal (Mann and Whitney).

  Args:
    score: [n] float.
    positive: [n] bool.
    negative: [n] bool; padding is neither.

  Returns:
    [] float; NaN without a positive or without a negative sample.
  """
  over = score[:, None] - score[None, :]
  wins = (over > 0) + 0.5 * (over == 0)
  pairs = positive[:, None] & negative[None, :]
  return (wins * pairs).sum() / pairs.sum()


def auc_by_chance(positive: Array, negative: Array) -> Array:
  """Mean of max(area, 1 - area) for a score that tells nothing.

  This is 1/2 + sd sqrt(2 / pi) with sd^2 = (p + n + 1) / (12 p n), if the area
  is normally distributed. The area is Mann and Whitney's U / (p n), and sd^2 is
  its variance without ties. For a handful of samples the normal distribution is
  a coarse approximation.

  Args:
    positive: [n] bool, true p times.
    negative: [n] bool, true n times.

  Returns:
    [] float; NaN without a positive or without a negative sample.
  """
  p, n = positive.sum(), negative.sum()
  deviation = jnp.sqrt((p + n + 1) / (12.0 * p * n))
  chance = 0.5 + deviation * jnp.sqrt(2 / jnp.pi)
  return jnp.where(p * n > 0, chance, jnp.nan)
