"""SuperSFL's aggregation: clients and server share parameters (eq. 6-8).

Al Asif et al., 2026; the letters are those of `splitjax.methods.supersfl`.
"""

from typing import NamedTuple

import jax.numpy as jnp

from splitjax import trees
from splitjax.methods import aggregations
from splitjax.models import backbones
from splitjax.models.backbones import Backbone
from splitjax.models.block import own_norm
from splitjax.types import Aggregation, Array, Half, Sums

EPSILON = 1e-8
"""Epsilon of eq. 3 and 6; the paper gives no value, this one is ours."""


class Losses(NamedTuple):
  """A client's losses in a round, for its weight in the aggregation.

  Attributes:
    total: [] float, the sum of the losses of its local steps. The loss of a
      step is the fused loss, or the client's loss if the server did not answer.
    steps: [] float, the number of these steps.
    reported: [] bool, whether the client has sent its memory and latency. It
      sends them once in a run.
  """

  total: Array
  steps: Array
  reported: Array


def super_network(
  backbone: Backbone,
  lam: float,
  *,
  sole_source: bool = True,
  normalise: bool = False,
  eps: float = EPSILON,
) -> Aggregation:
  """Builds the aggregation of the clients' blocks with the server's (eq. 6-8).

  w_i = d_i / sum_j d_j * (L_i + eps)^-1 / sum_j (L_j + eps)^-1,
  theta <- (sum_i w_i theta_i + lam theta_s) / (sum_i w_i + lam).

  sum_j is over all participants, sum_i over those that hold the block. theta_s
  is the server's own value of the block. If features of participants passed the
  block at the server, theta_s is the mean of these participants' copies,
  weighted by w_i. Else theta_s is the value before the round. A block that no
  participant holds becomes theta_s.

  Args:
    backbone: the network.
    lam: lambda.
    sole_source: whether a block that only one participant holds is copied from
      that participant, without the pull to theta_s (Section II-D, step 3).
    normalise: whether the w_i of the clients that hold a block are divided by
      their sum.
    eps: epsilon.
  """

  def contribute(client: Half, server: Half, weight: Array) -> Sums:
    depth = backbones.depth_of(backbone, client.segment)
    total, steps, _ = client.memory
    sure = 1 / (total / jnp.maximum(steps, 1) + eps)
    on = weight > 0
    sums = aggregations.contribute(
      client, server, jnp.where(on, depth * sure, 0.0)
    )
    extra = {
      "depth": jnp.where(on, float(depth), 0.0),
      "sure": jnp.where(on, sure, 0.0),
    }
    extra |= {f"holders of {name}": on.astype(float) for name in sums.client}
    return sums._replace(extra=extra)

  def server(server, clients, active, sums: Sums):
    del clients, active
    server = aggregations.mean_server(server, sums)
    copy = server.segment
    # The sums weigh by d_i / (L_i + eps), w_i without its two denominators, so
    # lambda is multiplied by their product.
    printed = sums.extra["depth"] * sums.extra["sure"]
    params, stats = dict(server.segment.params), dict(server.segment.stats)
    for name in backbone.names():
      if name not in sums.client:
        continue
      own = params[name], stats[name]
      weight = sums.client_weight[name]
      pull = lam * (weight if normalise else printed)
      if sole_source:
        pull = jnp.where(sums.extra[f"holders of {name}"] > 1, pull, 0.0)
      total = trees.add(sums.client[name], trees.scale(pull, own))
      mean = aggregations.mean(total, weight + pull, own)
      params[name], stats[name] = trees.where(weight > 0, mean, own)
    # With batch_norm=local clients send no normalisation.
    new = own_norm(
      backbone.local_norm, copy._replace(params=params, stats=stats), copy
    )
    return server._replace(segment=new)

  def clients(half, active, sums, server):
    del active, sums
    params, stats = dict(half.segment.params), dict(half.segment.stats)
    count = len(half.memory.steps)
    for name in (n for n in backbone.blocks if n in params):
      new = server.segment.params[name], server.segment.stats[name]
      params[name], stats[name] = trees.repeat(new, count)
    new = half.segment._replace(params=params, stats=stats)
    return half._replace(
      segment=own_norm(backbone.local_norm, new, half.segment)
    )

  def keep(name: str) -> float:
    return float(name not in backbone.blocks)

  return Aggregation(contribute, server, clients, keep)
