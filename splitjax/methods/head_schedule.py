"""PGFedSplit's schedule: when heads are aggregated (eq. 9 and 10).

Kang and Song, 2026; the letters are those of `splitjax.methods.pgfedsplit`.
"""

from typing import NamedTuple

import jax.numpy as jnp

from splitjax import trees
from splitjax.methods import aggregations, base
from splitjax.methods.mixed_set import Sigma, dispersion
from splitjax.methods.optimizers import Optimizer
from splitjax.models.backbones import Backbone
from splitjax.types import Aggregation, Array, Tree


class HeadMemory(NamedTuple):
  """A client's memory; the client sends alpha, mean and samples.

  Attributes:
    last: [] int32, the last round in which the client mixed a global head into
      its own; -1 if none.
    alpha: [] float, the client's mixing coefficient in that round.
    mean: [C, D], the client's prototypes after training.
    samples: [C] float, the number of the client's samples of each class.
    mixed: the mixed set, within a round; () between rounds.
  """

  last: Array
  alpha: Array
  mean: Array
  samples: Array
  mixed: Tree = ()


class Clock(NamedTuple):
  """The server's memory: prototypes, and when heads are aggregated.

  Attributes:
    mean: [C, D], global prototypes.
    known: [C] bool, whether a class has a global prototype.
    spread: the prototypes' dispersion over clients, see `mixed_set.dispersion`.
    head: parameters of the aggregated head.
    fresh: [] bool, whether the head goes to the next participants.
    tau: [] int32, the period.
    since: [] int32, s, rounds since a head was stored.
    alpha: [] float, mean of the clients' mixing coefficients when they last
      received a head; 0 at first, as in Algorithm 1.
  """

  mean: Array
  known: Array
  spread: Array
  head: Tree
  fresh: Array
  tau: Array
  since: Array
  alpha: Array


class ScheduleOptions(NamedTuple):
  """PGFedSplit's hyperparameters, described in `pgfedsplit`."""

  tau: int
  tau_min: int
  tau_max: int
  adaptive: bool
  alpha: float | None
  beta: float
  r: float
  sigma: Sigma


def scheduled_heads(
  backbone: Backbone, optimizer: Optimizer, options: ScheduleOptions
) -> Aggregation:
  """Builds the aggregation of bodies and heads.

  It averages bodies in every round and heads every tau rounds.
  """
  own_head = base.mean(backbone, optimizer, base.own_head)

  def server(server, clients, active, sums):
    (cohort,), (on,) = clients, active  # whole networks form one cohort
    memory, clock = cohort.memory, server.memory
    count = len(clock.spread) if options.sigma == "full" else len(on)
    mean, known, spread = dispersion(
      memory.mean[:count],
      jnp.where(on[:, None], memory.samples, 0.0)[:count],
      clock.mean,
      clock.known,
      clock.spread,
      options.sigma,
    )

    # tau adapts (eq. 10) in rounds whose participants received a head.
    used = clock.fresh & on.any()
    mean_alpha = jnp.where(on, memory.alpha, 0.0).sum() / jnp.maximum(
      on.sum(), 1
    )
    alpha = jnp.where(used, mean_alpha, clock.alpha)
    tau = clock.tau
    if options.adaptive:
      turn = (mean_alpha < clock.alpha).astype(jnp.int32) - (
        mean_alpha > clock.alpha
      )
      moved = jnp.clip(tau + turn, options.tau_min, options.tau_max)
      tau = jnp.where(used, moved, tau)

    # A head is stored and sent on once tau rounds have passed (eq. 9).
    since = clock.since + 1
    since = jnp.where(on.any(), since, clock.since)  # else nobody took part
    fresh = jnp.where(on.any(), since >= tau, clock.fresh)
    heads = aggregations.mean(
      sums.client["head"][0], sums.client_weight["head"], clock.head
    )
    return server._replace(
      memory=Clock(
        mean,
        known,
        spread,
        trees.where(fresh & on.any(), heads, clock.head),
        fresh,
        tau,
        jnp.where(fresh & on.any(), 0, since),
        alpha,
      )
    )

  return Aggregation(
    own_head.contribute, server, own_head.clients, own_head.keep
  )
