"""FedAvgM, FedAdam, FedYogi: the server's step on a round's mean update.

It steps once, at the end of a round; local steps, also those of the server's
half, are by another optimiser (`optimizer`).

References:
  Hsu, Qi and Brown, Measuring the Effects of Non-Identical Data Distribution
    for Federated Visual Classification, 2019 (FedAvgM).
  Reddi et al., Adaptive Federated Optimization, ICLR 2021, Algorithm 2.
"""

from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.fields import POSITIVE, SHARE
from splitjax.methods import nets
from splitjax.parameters import pytree
from splitjax.types import NO_BLOCKS, Net, Server, Tree


class Moments(NamedTuple):
  """The state of a block, in the form of w."""

  m: Tree
  v: Tree = ()  #: of FedAdam and FedYogi


class Slots(NamedTuple):
  """State between rounds, block name -> Moments."""

  common: dict[str, Tree]  #: w is Server.common, the mean of what clients send
  net: dict[str, Tree]  #: w is Server.net, if it is a mean over clients


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
  """

  name: Literal["fedavgm", "fedadam", "fedyogi"]
  #: eta_s. None: 1 for fedavgm, as in Hsu et al.; 0.01 for the others, a choice
  #: of ours, since Reddi et al. tune it for each task.
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
    sent = {n: self._start(w) for n, w in common.items() if jax.tree.leaves(w)}
    return Slots(common=sent, net={n: self._start(w) for n, w in net.items()})

  def step(
    self, slots: Slots, server: Server, shares: dict[str, Any]
  ) -> tuple[Slots, dict[str, Any]]:
    """Replaces the means of a round's shares by the optimiser's next w.

    `server` is that before the round. `shares` has "theta", and "common" unless
    the method takes no mean of what clients send.
    """
    sent = shares.get(nets.COMMON, NO_BLOCKS)
    common, sent = self._part(slots.common, server.common, sent)
    net, theta = self._part(slots.net, server.net, shares[nets.THETA])
    shares = shares | {nets.COMMON: sent, nets.THETA: theta}
    return Slots(common=common, net=net), shares

  def _part(
    self, slots: dict[str, Tree], net: Net, shares: Net
  ) -> tuple[dict[str, Tree], Net]:
    """Moves the blocks that have a share and a slot -> slots, shares."""
    moved = dict(shares.params)
    for name in [name for name in slots if name in moved]:
      # One server for each task (MultiHead): weights [tasks].
      step = jax.vmap(self._step) if moved[name].weight.ndim else self._step
      slot, moved[name] = step(slots[name], net.params[name], moved[name])
      slots = slots | {name: slot}
    return slots, shares._replace(params=moved)

  def _start(self, w: Tree) -> Moments:
    v = jax.tree.map(lambda x: jnp.full_like(x, self.tau**2), w)
    return Moments(m=trees.zeros(w), v=() if self.name == "fedavgm" else v)

  def _step(
    self, slot: Moments, w: Tree, share: nets.Share
  ) -> tuple[Moments, nets.Share]:
    """Moves a block; returns its slot, and a share whose mean is the next w."""
    momentum = self.name == "fedavgm"
    part, usual = (1.0, 1.0) if momentum else (1 - self.beta1, 0.01)
    rate = usual if self.lr is None else self.lr

    def second(v, g):
      square = jnp.square(g)
      if self.name == "fedyogi":
        return v - (1 - self.beta2) * square * jnp.sign(v - square)
      return self.beta2 * v + (1 - self.beta2) * square

    grad = jax.tree.map(jnp.subtract, w, share.mean(w))
    m = jax.tree.map(lambda m, g: self.beta1 * m + part * g, slot.m, grad)
    moved, direction = Moments(m=m), m
    if not momentum:
      v = jax.tree.map(second, slot.v, grad)
      moved = Moments(m=m, v=v)
      direction = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + self.tau), m, v)
    stepped = jax.tree.map(lambda x, d: x - rate * d, w, direction)
    slot, w = trees.where(share.weight > 0, (moved, stepped), (slot, w))
    return slot, share._replace(total=trees.scale(share.weight, w))
