"""FedAvgM, FedAdam, FedYogi: the server's step on a round's mean update.

The optimiser steps once, at the end of a round, for any method whose clients
get a mean over clients. Local steps, also those of the server's half, are by
another optimiser (`optimizer`).

References:
  Hsu, Qi and Brown, Measuring the Effects of Non-Identical Data Distribution
    for Federated Visual Classification, 2019 (FedAvgM).
  Reddi et al., Adaptive Federated Optimization, ICLR 2021, Algorithm 2.
"""

from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.core.pytree import pytree
from splitjax.core.records import NO_BLOCKS, Server, Share, Tree
from splitjax.fields import POSITIVE, SHARE


class Moments(NamedTuple):
  """The state of FedAdam and FedYogi: m and v, in the form of w."""

  m: Tree
  v: Tree


class Slots(NamedTuple):
  """State between rounds, block name -> optax state.

  Attributes:
    common: of the blocks that clients send; their w is Server.common.
    net: of the server's blocks; their w is Server.net. {} where one server
      serves all clients, so that it is no mean.
  """

  common: dict[str, Tree]
  net: dict[str, Tree]


@pytree
class Outer:
  """A server optimiser for the pseudo-gradient g = w - mean.

  fedavgm: m <- beta1 m + g, w <- w - lr m.
  fedadam and fedyogi: m <- beta1 m + (1 - beta1) g, w <- w - lr m / (sqrt(v) +
  tau), from v = tau^2 on, without bias correction (optax's Adam and Yogi
  correct it, Algorithm 2 does not). In fedadam v <- beta2 v + (1 - beta2) g^2,
  in fedyogi v <- v - (1 - beta2) g^2 sign(v - g^2).

  It moves the means of prefixes, exits, whole networks and copies of a server;
  not running statistics, nor blocks that clients do not exchange. A block that
  no participant updated takes no step: neither momentum nor moments move.

  Attributes:
    name: fedavgm, fedadam or fedyogi.
    lr: eta_s. None: 1 for fedavgm, as in Hsu et al.; 0.01 for the others, a
      choice of ours, since Reddi et al. tune it for each task.
    beta1: decay of m.
    beta2: decay of v.
    tau: adaptivity.
  """

  name: Literal["fedavgm", "fedadam", "fedyogi"]
  lr: Annotated[float | None, POSITIVE] = None
  beta1: Annotated[float, SHARE] = 0.9
  beta2: Annotated[float, SHARE] = 0.99
  tau: Annotated[float, POSITIVE] = 1e-3

  def start(self, server: Server, *, topology: str) -> Slots:
    """Makes the state before the first round.

    One server that all clients train is no mean over clients, and neither is
    what a relay hands from client to client.
    """
    common = {} if topology == "relay" else server.common.params
    net = server.net.params if topology == "parallel" else {}
    return Slots(
      common={
        name: self._start(w) for name, w in common.items() if jax.tree.leaves(w)
      },
      net={name: self._start(w) for name, w in net.items()},
    )

  def step(
    self, slots: Slots, server: Server, shares: dict[str, Any]
  ) -> tuple[Slots, dict[str, Any]]:
    """Replaces the means of a round's shares by the optimiser's next w.

    `server` is that before the round. `shares` has "theta", and "common" unless
    the method takes no mean of what clients send.
    """
    sent = shares.get("common", NO_BLOCKS)
    common = dict(sent.params)
    theta = dict(shares["theta"].params)
    next_common = dict(slots.common)
    next_net = dict(slots.net)
    for name in (name for name in slots.common if name in common):
      next_common[name], common[name] = self._step(
        slots.common[name], server.common.params[name], common[name]
      )
    for name in (name for name in slots.net if name in theta):
      # One server for each task (MultiHead): weights [tasks].
      several = theta[name].weight.ndim
      step = jax.vmap(self._step) if several else self._step
      next_net[name], theta[name] = step(
        slots.net[name], server.net.params[name], theta[name]
      )
    shares = shares | {
      "common": sent._replace(params=common),
      "theta": shares["theta"]._replace(params=theta),
    }
    return Slots(common=next_common, net=next_net), shares

  def _start(self, w: Tree) -> Tree:
    if self.name == "fedavgm":
      return trees.zeros(w)
    square = jax.tree.map(lambda x: jnp.full_like(x, self.tau**2), w)
    return Moments(m=trees.zeros(w), v=square)

  def _step(self, slot: Tree, w: Tree, share: Share) -> tuple[Tree, Share]:
    """Moves a block; returns its slot, and a share whose mean is the next w."""
    grad = jax.tree.map(jnp.subtract, w, share.mean(w))
    if self.name == "fedavgm":
      moved = jax.tree.map(lambda m, g: self.beta1 * m + g, slot, grad)
      direction, usual = moved, 1.0
    else:
      moved = self._moments(slot, grad)
      direction = jax.tree.map(
        lambda m, v: m / (jnp.sqrt(v) + self.tau), moved.m, moved.v
      )
      usual = 0.01
    rate = usual if self.lr is None else self.lr
    stepped = jax.tree.map(lambda x, d: x - rate * d, w, direction)
    some = share.weight > 0
    slot, w = trees.where(some, (moved, stepped), (slot, w))
    return slot, Share(total=trees.scale(share.weight, w), weight=share.weight)

  def _moments(self, slot: Moments, grad: Tree) -> Moments:
    def second(v, g):
      square = jnp.square(g)
      if self.name == "fedyogi":
        return v - (1 - self.beta2) * square * jnp.sign(v - square)
      return self.beta2 * v + (1 - self.beta2) * square

    first = jax.tree.map(
      lambda m, g: self.beta1 * m + (1 - self.beta1) * g, slot.m, grad
    )
    return Moments(m=first, v=jax.tree.map(second, slot.v, grad))
