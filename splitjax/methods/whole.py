"""Clients that hold the whole network: local SGD, then a mean."""

from collections.abc import Callable
from typing import ClassVar

import jax
from jax import Array

from splitjax.methods.method import Method
from splitjax.parameters import pytree
from splitjax.types import NO_BLOCKS, Batch, Client, Half, Server, Tree


@pytree
class WholeNetwork(Method):
  """Federated averaging of a loss that subclasses may change."""

  whole: ClassVar[bool] = True

  @property
  def answers(self):
    return ("client",)

  def loss(
    self, params: dict[str, Tree], client: Half, context: Tree, batch: Batch
  ) -> tuple[Array, tuple[dict[str, Array], dict[str, Tree]]]:
    """The loss that a step descends -> [], (losses to report, statistics)."""
    net = client.net._replace(params=params)
    z, stats = self.features(net, batch)
    loss = self.exit_loss(net, z, batch)
    return loss, ({"client": loss}, stats)

  def gradients(
    self,
    client: Half,
    context: Tree,
    batch: Batch,
    moves: Callable[[str], bool] | None = None,
  ) -> tuple[dict[str, Tree], dict[str, Tree], dict[str, Array]]:
    """Differentiates the loss in the blocks that `moves` names; None: in all.

    Returns:
      Gradients and new statistics of these blocks, and the losses to report.
    """
    params = client.net.params
    moving = {n: x for n, x in params.items() if moves is None or moves(n)}

    def loss(moving):
      return self.loss(params | moving, client, context, batch)

    grads, (losses, stats) = jax.grad(loss, has_aux=True)(moving)
    return grads, {n: x for n, x in stats.items() if n in moving}, losses

  def step(self, client, server, context, batches, key):
    return self.step_in(None, client, server, context, batches, key)

  def step_in(
    self,
    moves: Callable[[str], bool] | None,
    client: Half,
    server: Half,
    context: Tree,
    batches: tuple[Batch, ...],
    key: Array,
  ) -> tuple[Half, Half, dict[str, Array]]:
    """Descends the loss in the blocks that `moves` names; None: in all."""
    (batch,) = batches
    grads, stats, losses = self.gradients(client, context, batch, moves)
    return self.optimizer.step(client, grads, stats), server, losses


@pytree
class Unaveraged(WholeNetwork):
  """Clients keep their network and send it; `merge` sees them, not a mean."""

  def keeps(self, path):
    return True

  def sends(self, path):
    return not super().keeps(path)  # all but local normalisation

  def first_server(self, full, held, size):
    return Server(net=NO_BLOCKS, common=NO_BLOCKS)

  def send(self, client, server, context, samples, weight, key):
    self.exchange("up", client.net)
    kept = Client(net=client.net, memory=client.memory)
    return kept, {"common": NO_BLOCKS}
