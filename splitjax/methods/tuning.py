"""Adapt: plain SGD on a client's own data; HARMONY's inner loop and all +FT."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from splitjax import backbone as bb
from splitjax import trees
from splitjax.backbone import Backbone
from splitjax.protocol import local_loss
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
    refresh_stats: where there are running statistics, renew them by one pass
      over D_n afterwards.

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
  """Renews a client's running statistics by one pass over its data."""
  names = backbone.names(0, bb.depth_of(backbone, client))

  def look(stats, inputs):
    batch = samples.batch(*inputs)
    segment = client._replace(stats={**client.stats, **stats})
    _, new = bb.run(
      backbone, segment, batch.image, names, train=True, real=batch.real
    )
    return trees.where(batch.real.any(), new, stats), None

  own = {name: client.stats[name] for name in names}
  stats, _ = jax.lax.scan(look, own, samples.epoch(key))
  return client._replace(stats={**client.stats, **stats})
