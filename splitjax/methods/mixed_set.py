"""PGFedSplit's mixed set: local features and draws from class Gaussians."""

import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from splitjax.data.feed import Samples
from splitjax.methods import prototypes
from splitjax.models.backbones import Backbone
from splitjax.types import Array, Segment

Sigma = Literal["diagonal", "full"]


class Mixed(NamedTuple):
  """Local and synthetic features of one client in a round.

  Attributes:
    z: [M, D], the features.
    label: [M] int32.
    real: [M] bool, False on padding.
    anchor: [C, D], global prototypes.
    known: [C] bool, whether a class has a global prototype.
  """

  z: Array
  label: Array
  real: Array
  anchor: Array
  known: Array


def mixed_set(
  backbone: Backbone,
  client: Segment,
  samples: Samples,
  clock: Any,
  r: float,
  sigma: Sigma,
  key: Array,
) -> Mixed:
  """Joins a client's features with draws from Gaussians (eq. 15-17).

  There are ceil(r / (1 - r) N_i) draws. A draw gets the label l with
  probability q_il, the fraction of the client's samples that are of class l.
  The draw itself is from N(p_l, gamma_il^2 Sigma_l). gamma_il is sqrt(q_il)
  divided by its mean over the client's classes; gamma and Sigma are choices of
  ours. Draws of a class without a global prototype are left out.

  Args:
    backbone: the network.
    client: the client's network, with the body of this round.
    samples: the client's data.
    clock: the server's memory, with mean, known and spread.
    r: share of draws in the mixed set.
    sigma: the form of clock.spread, see `dispersion`.
    key: [] PRNG key of the draws.
  """
  # Local features.
  rows, real = samples.in_order()

  def batch_features(inputs):
    batch = samples.batch(*inputs)
    return prototypes.features(backbone, client, batch), batch.label

  z, label = jax.lax.map(batch_features, (rows, real))
  z, label, real = z.reshape(-1, z.shape[-1]), label.ravel(), real.ravel()

  # Draws from the Gaussians, as many as the largest client needs.
  ratio = r / (1 - r)
  count = math.ceil(round(ratio * samples.shard.rows.shape[0], 9))
  if count:
    label_key, noise_key = jax.random.split(key)
    held = samples.shard.counts.astype(float)
    drawn = jax.random.categorical(label_key, jnp.log(held), shape=(count,))
    root = jnp.sqrt(held)  # sqrt(q) up to a factor
    classes = jnp.maximum((held > 0).sum(), 1)
    gamma = root * classes / jnp.maximum(root.sum(), 1e-9)
    noise = deviation(clock.spread, drawn, noise_key, sigma)
    made = clock.mean[drawn] + gamma[drawn][:, None] * noise
    mine = jnp.arange(count) < jnp.ceil(ratio * samples.shard.size - 1e-6)
    z = jnp.concatenate([z, made])
    label = jnp.concatenate([label, drawn.astype(label.dtype)])
    real = jnp.concatenate([real, mine & clock.known[drawn]])
  return Mixed(z, label, real, clock.mean, clock.known)


def deviation(spread: Array, label: Array, key: Array, sigma: Sigma) -> Array:
  """Draws from N(0, Sigma_label): labels [M] -> [M, D]."""
  if sigma == "diagonal":
    noise = jax.random.normal(key, (len(label), spread.shape[-1]))
    return spread[label] * noise
  # Sigma = sum_k s_k s_k^T: a combination of the rows with normal weights.
  weight = jax.random.normal(key, (len(label), len(spread)))
  return jnp.einsum("mk,kmd->md", weight, spread[:, label])


def dispersion(
  mean: Array,
  samples: Array,
  old: Array,
  known: Array,
  old_spread: Array,
  sigma: Sigma,
) -> tuple[Array, Array, Array]:
  """Computes global prototypes and the clients' dispersion around them.

  p_l is the unweighted mean of p_il over the clients i that hold class l (eq.
  4). Sigma_l = sum_i N_il / N_l (p_il - p_l) (p_il - p_l)^T; weighting by the
  class counts N_il is a choice of ours.

  Args:
    mean: [N, C, D], the clients' prototypes.
    samples: [N, C] float, their class counts; 0 for clients that took no part.
    old: [C, D], the prototypes so far. If no client holds a class, its
      prototype and dispersion stay as they are.
    known: [C] bool, whether a class has a prototype so far.
    old_spread: the dispersion so far.
    sigma: "diagonal" or "full".

  Returns:
    p [C, D]; known [C]; and the dispersion. "diagonal": the square root of
    Sigma's diagonal, [C, D]; "full": rows s_i, [N, C, D], with Sigma_l = sum_i
    s_il s_il^T.
  """
  held = samples > 0
  some = held.any(axis=0)
  total = jnp.where(held[..., None], mean, 0.0).sum(axis=0)
  new = total / jnp.maximum(held.sum(axis=0), 1)[:, None]
  new = jnp.where(some[:, None], new, old)
  share = samples / jnp.maximum(samples.sum(axis=0), 1)
  rows = jnp.sqrt(share)[..., None] * jnp.where(
    held[..., None], mean - new, 0.0
  )
  if sigma == "full":
    spread = jnp.where(some[None, :, None], rows, old_spread)
  else:
    diagonal = jnp.sqrt(jnp.square(rows).sum(axis=0))
    spread = jnp.where(some[:, None], diagonal, old_spread)
  return new, known | some, spread
