"""Clients that hold the whole network: local SGD, then a mean."""

from typing import ClassVar

import jax
from jax import Array

from splitjax.methods.method import Batches, Blocks, Choice, Losses, Method
from splitjax.parameters import pytree
from splitjax.types import NO_BLOCKS, Batch, Client, Half, Passes, Server, Tree

HEAD_PASSES = Passes(client=1.0)
"""Of a step in the head alone, whose gradient is taken to be free."""


@pytree
class WholeNetwork(Method):
  """Federated averaging of a loss that subclasses may change."""

  whole: ClassVar[bool] = True

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

  def first_server(self, full, held, size):
    return Server(net=NO_BLOCKS, common=NO_BLOCKS)

  def send(self, half, copy, context, samples, weight, key):
    self.exchange("up", half.net)
    kept = Client(net=half.net, memory=half.memory)
    return kept, {}
