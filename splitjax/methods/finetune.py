"""Adapt: plain SGD on a client's own data; HARMONY's inner loop and all +FT."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.methods.split_pass import local_loss
from splitjax.models import backbone as bb
from splitjax.models.backbone import Backbone
from splitjax.types import Array, Batch, Half, Segment


def plain_step(
  backbone: Backbone, client: Segment, batch: Batch, lr: float
) -> Segment:
  """One step of plain SGD on CE((h o phi)(x), y), HARMONY's inner step."""
  grads = jax.grad(local_loss, argnums=1)(
    backbone, client.params, client.stats, batch
  )
  on = batch.real.any()
  params = jax.tree.map(
    lambda p, g: p - jnp.where(on, lr, 0.0) * g, client.params, grads
  )
  return client._replace(params=params)


def tune(
  backbone: Backbone, inner_lr: float, inner_steps: int, refresh_stats: bool
) -> Callable:
  """Adapt((phi, h); D_n): M plain SGD steps on mini-batches of a client's data.

  HARMONY eq. 5, and the +FT of the baselines.

  Args:
    backbone: the network.
    inner_lr: alpha.
    inner_steps: M.
    refresh_stats: where there are running statistics, take them from D_n
      alone afterwards, see `refresh`.

  Returns:
    (client, samples, key) -> client, a Method's `personalise`.
  """

  def personalise(client: Half, samples, key: Array) -> Half:
    draw, again = jax.random.split(key)

    def inner(segment, t):
      # Its own epochs, however long those of the cohort's largest client are.
      own = jnp.maximum(-(-samples.shard.size // samples.plan.batch), 1)
      rows, real = samples.epoch(jax.random.fold_in(draw, t // own))
      place = t % own
      look = jax.random.fold_in(again, t)
      batch = samples.batch(rows[place], real[place], look)
      return plain_step(backbone, segment, batch, inner_lr), None

    segment, _ = jax.lax.scan(inner, client.segment, jnp.arange(inner_steps))
    if refresh_stats and jax.tree.leaves(segment.stats):
      segment = refresh(backbone, segment, samples, again)
    return client._replace(segment=segment)

  return personalise


def refresh(
  backbone: Backbone, client: Segment, samples, key: Array
) -> Segment:
  """A client's running statistics from its own data alone: one pass over D_n.

  mean = sum_b n_b mean_b / n and var = sum_b n_b var_b / n, over the batches b
  of the pass, with n_b samples, n in all. So the mean is that of D_n, whatever
  the batches; the variance is the biased one within batches, as in training,
  and lacks that of their means: one batch of all of D_n has it whole.

  What was there before stays in a layer only if none of the batches has two
  values per channel.
  """
  names = backbone.names(0, bb.depth_of(backbone, client))
  old = {name: client.stats[name] for name in names}
  zeros, ones = (jax.tree.map(f, old) for f in (jnp.zeros_like, jnp.ones_like))

  def look(sums, inputs):
    batch = samples.batch(*inputs)

    def write(stats):
      segment = client._replace(stats={**client.stats, **stats})
      return bb.run(
        backbone, segment, batch.image, names, train=True, real=batch.real
      )[1]

    # A layer writes (1 - s) old + s new: from zero s new, with slope 1 - s. It
    # has its s, and leaves out a batch (s = 0), by rules of its own.
    part, kept = jax.jvp(write, (zeros,), (ones,))
    share = jax.tree.map(lambda k: 1 - k, kept)
    return trees.add(sums, trees.scale(batch.real.sum(), (part, share))), None

  sums, _ = jax.lax.scan(look, (zeros, zeros), samples.epoch(key))
  stats = jax.tree.map(
    lambda old, part, share: jnp.where(
      share > 0, part / jnp.where(share > 0, share, 1), old
    ),
    old,
    *sums,
  )
  return client._replace(stats={**client.stats, **stats})
