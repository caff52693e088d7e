"""Depth-aware aggregation: weighted sums, then means block by block.

Sums are additive over clients, so the engine may add them over cohorts, chunks
and devices in any grouping, and need not store each client's copy of the
server.
Prefixes and servers are averaged separately: a deep client's block 3 and the
server's block 3 are different parameters (in SuperSFL they are the same, see
`supersfl.super_network`).
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.methods import hyper
from splitjax.models.block import own_norm
from splitjax.types import Aggregation, Array, Half, Sums, Tree

Keep = float | Callable[[str], float]
"""lam, the share of its own parameters that a client keeps: one number for all
blocks, or a function of the block name."""

ServerMean = Literal["touched", "all"]
"""Which copies of a server block are averaged, see `contribute`."""


def contribute(
  client: Half, server: Half, weight: Array, over: ServerMean = "touched"
) -> Sums:
  """Computes what one client adds to the round's sums.

  With over="touched", the client adds its copy of a server block only if its
  features passed the block in this round (Opt.touched). It adds the block's
  running statistics only if they were written (Opt.wrote; HARMONY's early view
  writes none). With over="all", the client always adds its copy, even one that
  still holds the old value, as HARMONY's eq. 2 reads to the letter. A block
  then moves less if the features of fewer participants pass it.

  Args:
    client: the client's half after its last step.
    server: the client's copy of the server after that step.
    weight: [] float, zeta up to a common factor; 0 for a client that does not
      participate.
    over: which copies of theta's blocks are averaged, as described above.
  """
  flags = (server.opt.touched, server.opt.wrote) if server.opt else ({}, {})
  if over == "all":
    flags = jax.tree.map(jnp.ones_like, flags)
  touched, wrote = (
    {name: weight * on.astype(float) for name, on in table.items()}
    for table in flags
  )
  return Sums(
    client={
      name: weighted(weight, (params, client.segment.stats[name]))
      for name, params in client.segment.params.items()
    },
    client_weight={name: weight for name in client.segment.params},
    server={
      name: (
        weighted(touched[name], params),
        weighted(wrote[name], server.segment.stats[name]),
      )
      for name, params in server.segment.params.items()
    },
    server_weight=touched,
    stats_weight=wrote,
  )


def weighted(weight: Array, tree: Tree) -> Tree:
  """Multiplies a tree by `weight`; a weight of 0 turns even NaN into 0."""
  return jax.tree.map(lambda x: jnp.where(weight > 0, weight * x, 0.0), tree)


def mean(total: Tree, weight: Array, old: Tree) -> Tree:
  """Divides total by weight; returns `old` if weight is 0 (no contributor)."""
  some = weight > 0
  divisor = jnp.where(some, weight, 1.0)
  return trees.where(some, jax.tree.map(lambda x: x / divisor, total), old)


def keep_share(keep: Keep, name: str) -> float:
  """Returns lam of block `name`."""
  return keep(name) if callable(keep) else keep


def blend_clients(
  clients: Half, active: Array, sums: Sums, keep: Keep, local_norm: bool = False
) -> Half:
  """Blends phi_n <- lam phi_n + (1 - lam) sum_i zeta_i phi_i (HARMONY eq. 2).

  A block is averaged over the participants that hold it, so an exit is averaged
  over the participants of its depth (SplitGP eq. 9-10). A client that does not
  participate keeps its parameters, unless lam = 0: then all clients get the
  mean.

  Args:
    clients: a cohort after the round, arrays [N, ...].
    active: [N] bool, whether a client's update is in the sums.
    sums: sums over all participants of all cohorts.
    keep: lam.
    local_norm: whether clients keep their own batch normalisation, that is its
      parameters and its running statistics (FedBN, Li et al., ICLR 2021).
  """
  params, stats = {}, {}
  for name, own in clients.segment.params.items():
    lam = keep_share(keep, name)
    mine = (own, clients.segment.stats[name])
    if name not in sums.client_weight:  # no holder participates
      params[name], stats[name] = mine
      continue
    # The mean, blended with the client's parameters.
    weight = sums.client_weight[name]
    n = active.shape[0]
    common = trees.repeat(mean(sums.client[name], weight, sums.client[name]), n)
    rest = 1 - lam
    blended = trees.add(trees.scale(lam, mine), trees.scale(rest, common))
    # With lam = 0 take the mean itself: 0 * NaN would keep a client's NaN.
    blended = trees.where(jnp.asarray(lam) == 0, common, blended)
    # Which clients receive the blend: with lam = 1 none, as 0 * NaN is NaN.
    gets = (weight > 0) & (active | (jnp.asarray(lam) == 0))
    gets &= jnp.asarray(lam < 1)
    new = trees.where(gets, blended, mine)
    params[name], stats[name] = own_norm(local_norm, new, mine)
  return clients._replace(
    segment=clients.segment._replace(params=params, stats=stats)
  )


def mean_server(server: Half, sums: Sums) -> Half:
  """Sets theta <- sum_i zeta_i theta_i, block by block.

  The sum is over the copies that clients added to `sums`. A block of which no
  client added a copy does not change. `server` is the half before the round.
  """
  params, stats = dict(server.segment.params), dict(server.segment.stats)
  for name, old in server.segment.params.items():
    if name not in sums.server:  # the round computed no client that has it
      continue
    params_sum, stats_sum = sums.server[name]
    params[name] = mean(params_sum, sums.server_weight[name], old)
    stats[name] = mean(stats_sum, sums.stats_weight[name], stats[name])
  segment = server.segment._replace(params=params, stats=stats)
  return server._replace(segment=segment)


def federated_mean(
  *,
  keep: Keep = 0.0,
  local_norm: bool = False,
  uniform: bool = False,
  server_mean: ServerMean = "touched",
) -> Aggregation:
  """Builds the aggregation of most methods, an average over the participants.

  It applies `contribute`, then `mean_server` and `blend_clients`.

  Args:
    keep: lam, the share of its own parameters that a client keeps. The server
      always takes the whole mean.
    local_norm: as in `blend_clients`.
    uniform: whether every participant has weight 1 in the means. If false, a
      participant's weight is |D_n|.
    server_mean: as in `contribute`.
  """

  def share(client: Half, server: Half, weight: Array) -> Sums:
    weight = (weight > 0).astype(float) if uniform else weight
    return contribute(client, server, weight, server_mean)

  def next_server(server, clients, active, sums):
    del clients, active
    return mean_server(server, sums)

  def next_clients(clients, active, sums, server):
    del server
    return blend_clients(clients, active, sums, keep, local_norm)

  # `alike` is no part of the program: one program serves all values of lam.
  alike = hyper.value(keep) == 0 and not local_norm
  return Aggregation(
    share,
    next_server,
    next_clients,
    keep,
    alike,
  )


def combine(weights: Array, tree: Tree) -> Tree:
  """Combines clients' arrays linearly, in full precision on any device.

  Args:
    weights: [M, N] for M combinations, or [N] for one.
    tree: arrays [N, ...].

  Returns:
    A tree of arrays [M, ...], or [...] for one combination.
  """
  exact = jax.lax.Precision.HIGHEST
  return jax.tree.map(
    lambda x: jnp.tensordot(weights, x, 1, precision=exact), tree
  )


def no_sums(client: Half, server: Half, weight: Array) -> Sums:
  """Returns empty Sums, for an aggregation that needs none."""
  del client, server, weight
  return Sums({}, {}, {}, {}, {})


def same_server(
  server: Half,
  clients: tuple[Half, ...],
  active: tuple[Array, ...],
  sums: Sums,
) -> Half:
  """Returns the server unchanged, for an aggregation that does not train it."""
  del clients, active, sums
  return server


def same_clients(
  clients: Half, active: Array, sums: Sums, server: Half
) -> Half:
  """Returns clients unchanged, for an aggregation that gives them nothing."""
  del active, sums, server
  return clients
