"""Plain SGD on a client's own data: HARMONY's inner loop and every +FT row."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.methods.split_pass import local_loss
from splitjax.models import backbones
from splitjax.models.backbones import Backbone
from splitjax.types import Array, Batch, Half, Segment


class Tuning(NamedTuple):
  """Settings of personalisation, which precedes an evaluation.

  Attributes:
    inner_lr: alpha, the learning rate.
    inner_steps: M, the number of steps, each on a mini-batch from shuffled
      epochs over D_n.
    refresh_stats: whether to take running statistics from D_n alone at the
      end, see `refresh`.
    epochs: E, epochs over D_n instead of M steps; 0: M steps.
    moves: block name -> whether it moves; None: all.
  """

  inner_lr: float
  inner_steps: int
  refresh_stats: bool = False
  epochs: int = 0
  moves: Callable[[str], bool] | None = None


def sgd_step(
  backbone: Backbone,
  client: Segment,
  batch: Batch,
  lr: float,
  moves: Callable[[str], bool] | None = None,
) -> Segment:
  """Takes a step of plain SGD on CE((h o phi)(x), y) (HARMONY eq. 3).

  `moves` is as in Tuning.
  """
  grads = jax.grad(local_loss, argnums=1)(
    backbone, client.params, client.stats, batch
  )
  rate = jnp.where(batch.real.any(), lr, 0.0)  # padding changes nothing
  params = dict(client.params)
  for name, old in client.params.items():
    if moves is None or moves(name):
      params[name] = jax.tree.map(lambda p, g: p - rate * g, old, grads[name])
  return client._replace(params=params)


def personaliser(backbone: Backbone, tuning: Tuning) -> Callable:
  """Builds Adapt((phi, h); D_n): M plain SGD steps on a client's own data.

  HARMONY eq. 5, and the +FT of the baselines.

  Returns:
    A Method's `personalise`: (client, server, samples, key) -> client.
  """
  inner_lr, inner_steps, refresh_stats, epochs, moves = tuning

  def personalise(client: Half, server: Half, samples, key: Array) -> Half:
    del server
    epoch_key, batch_key = jax.random.split(key)
    # Epochs have the client's own number of batches, which may be smaller than
    # that of the largest client in its cohort.
    batches = jnp.maximum(samples.batches(), 1)

    def inner(segment, t):
      rows, real = samples.epoch(jax.random.fold_in(epoch_key, t // batches))
      own = jax.random.fold_in(batch_key, t)
      batch = samples.batch(rows[t % batches], real[t % batches], own)
      return sgd_step(backbone, segment, batch, inner_lr, moves), None

    def of_epoch(epoch, segment):
      rows, real = samples.epoch(jax.random.fold_in(epoch_key, epoch))
      own_key = jax.random.fold_in(batch_key, epoch)

      def next_step(i, segment):
        own = jax.random.fold_in(own_key, i)
        batch = samples.batch(rows[i], real[i], own)
        return sgd_step(backbone, segment, batch, inner_lr, moves)

      return jax.lax.fori_loop(0, batches, next_step, segment)

    if epochs:
      segment = jax.lax.fori_loop(0, epochs, of_epoch, client.segment)
    else:
      segment, _ = jax.lax.scan(inner, client.segment, jnp.arange(inner_steps))
    if refresh_stats and jax.tree.leaves(segment.stats):
      segment = refresh(backbone, segment, samples, batch_key)
    return client._replace(segment=segment)

  return personalise


def refresh(
  backbone: Backbone, client: Segment, samples, key: Array
) -> Segment:
  """Recomputes running statistics in one pass over D_n.

  mean = sum_b n_b mean_b / n and var = sum_b n_b var_b / n over the batches b
  of the pass, where b has n_b of the n samples. So mean is the exact mean over
  D_n. var is an average of the batches' biased variances, as in training; it
  lacks the variance between batch means unless one batch holds all of D_n.

  A layer keeps its old statistics if no batch has two values per channel.

  `client` is unbatched, `samples` are its own data (feed.Samples); `key` []
  draws the order of the pass.
  """
  names = backbone.names(0, backbones.depth_of(backbone, client))
  old = {name: client.stats[name] for name in names}
  zeros, ones = (jax.tree.map(f, old) for f in (jnp.zeros_like, jnp.ones_like))

  def accumulate(sums, inputs):
    batch = samples.for_draws(*inputs, key)

    def write(stats):
      segment = client._replace(stats={**client.stats, **stats})
      return backbones.run_batch(backbone, segment, batch.image, names, batch)[
        1
      ]

    # A layer writes (1 - s) old + s new and chooses s itself: 0 for a batch
    # that it skips. From old = 0 this is s new, with slope 1 - s in old.
    part, kept = jax.jvp(write, (zeros,), (ones,))
    share = jax.tree.map(lambda k: 1 - k, kept)
    return trees.add(sums, trees.scale(batch.real.sum(), (part, share))), None

  sums, _ = jax.lax.scan(accumulate, (zeros, zeros), samples.epoch(key))
  stats = jax.tree.map(
    lambda old, part, share: jnp.where(
      share > 0, part / jnp.where(share > 0, share, 1), old
    ),
    old,
    *sums,
  )
  return client._replace(stats={**client.stats, **stats})
