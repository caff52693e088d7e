"""Clients that hold the whole network: FedAvg, Local, FedBN, FedProx.

`WholeNetwork` is federated averaging of a loss that a method may change.
"""

from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from splitjax.fields import NOT_NEGATIVE
from splitjax.methods.method import (
  Batches,
  Blocks,
  Choice,
  Losses,
  Method,
  is_norm,
)
from splitjax.methods.personal import Blended, FineTuning
from splitjax.parameters import pytree
from splitjax.types import (
  NO_BLOCKS,
  Batch,
  Client,
  Half,
  Passes,
  Row,
  Server,
  Tree,
)

HEAD_PASSES = Passes(client=1.0)
"""Of a step in the head alone, whose gradient is taken to be free."""


@pytree
class WholeNetwork(Method):
  """Federated averaging of a loss that subclasses may change."""

  uncut: ClassVar[bool] = True

  @property
  def answers(self):
    return ("client",)

  def loss(
    self, params: Blocks, half: Half, context: Tree, batch: Batch
  ) -> tuple[Array, tuple[Losses, Blocks]]:
    """The loss that a step descends -> [], (losses to report, statistics)."""
    net = half.net._replace(params=params)
    z, stats = self.features(net, batch)
    loss = self.exit_loss(net, z, batch)
    return loss, ({"client": loss}, stats)

  def gradients(
    self,
    half: Half,
    context: Tree,
    batch: Batch,
    moves: Choice | None = None,
  ) -> tuple[Blocks, Blocks, Losses]:
    """Differentiates the loss in the blocks that `moves` names; None: in all.

    Returns:
      Gradients and new statistics of these blocks, and the losses to report.
    """
    params = half.net.params
    moving = {n: x for n, x in params.items() if moves is None or moves(n)}

    def loss(moving):
      return self.loss(params | moving, half, context, batch)

    grads, (losses, stats) = jax.grad(loss, has_aux=True)(moving)
    return grads, {n: x for n, x in stats.items() if n in moving}, losses

  def step(self, half, copy, context, batches, key):
    return self.step_in(None, half, copy, context, batches, key)

  def step_in(
    self,
    moves: Choice | None,
    half: Half,
    copy: Half,
    context: Tree,
    batches: Batches,
    key: Array,
  ) -> tuple[Half, Half, Losses]:
    """Descends the loss in the blocks that `moves` names; None: in all."""
    (batch,) = batches
    grads, stats, losses = self.gradients(half, context, batch, moves)
    return self.optimizer.step(half, grads, stats), copy, losses


@pytree
class Unaveraged(WholeNetwork):
  """Clients keep their network and send it; `merge` sees them, not a mean."""

  def keeps(self, path):
    return True

  def sends(self, path):
    return not super().keeps(path)  # all but local normalisation

  def first_server(self, full, part, size):
    return Server(net=NO_BLOCKS, common=NO_BLOCKS)

  def send(self, half, copy, context, samples, weight, key):
    self.exchange("up", half.net)
    kept = Client(net=half.net, memory=half.memory)
    return kept, {}


@pytree
class FedAvg(FineTuning, Blended, WholeNetwork):
  """Local SGD, then the data-weighted mean (McMahan et al., AISTATS 2017).

  With lam it is SplitGP's baseline "personalized FL" (Mansour et al., Three
  Approaches for Personalization, 2020); SplitGP states no lam.
  at_server adds a row " at the server": of the same network, but clients send
  every sample to it (SplitGP eq. 29, Figure 5).

  Example:
    >>> import splitjax
    >>> from splitjax.methods.optimizer import Optimizer
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> FedAvg(backbone=net, optimizer=Optimizer(lr=0.05)).answers
    ('client',)
  """

  at_server: bool = False

  @property
  def rows(self):
    served = Row(" at the server", personal=False, at_server=True)
    return (*super().rows, served) if self.at_server else super().rows


@pytree
class Local(WholeNetwork):
  """Every client trains by itself; nothing is sent or averaged.

  No mean corrects a step that was too large: without normalisation a network
  may need `optimizer.clip` or a lower learning rate (docs/methods.md).
  """

  def keeps(self, path):
    return True


@pytree
class FedBN(WholeNetwork):
  """Clients keep batch normalisation (Li et al., ICLR 2021, Algorithm 1).

  It is FedAvg with batch_norm=local, as a method that a config can compare with
  others that average normalisation; refused for a network without it.
  """

  def keeps(self, path):
    return is_norm(path)


@pytree
class FedProx(FineTuning, WholeNetwork):
  """Clients descend F_n(w) + mu / 2 |w - w0|^2 (Li et al., MLSys 2020, eq. 2).

  w0 is the network that the client received. The paper tunes mu in 0.001..1 for
  each data set; the default is ours. The reported loss is F_n alone, without
  the proximal term.
  """

  mu: Annotated[float, NOT_NEGATIVE] = 0.01

  def receive(self, client, server, samples, round, key):
    half, copy, _ = super().receive(client, server, samples, round, key)
    return half, copy, half.net.params

  def loss(self, params, half, context, batch):
    loss, reported = super().loss(params, half, context, batch)
    return loss + self.mu / 2 * squared_distance(params, context), reported


def squared_distance(a, b):
  """Computes |a - b|^2 over all leaves."""
  gaps = jax.tree.map(lambda x, y: jnp.sum((x - y) ** 2), a, b)
  return sum(jax.tree.leaves(gaps))
