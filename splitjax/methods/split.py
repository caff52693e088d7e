"""A network that is cut: both sides of a local step, message by message."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from splitjax import wire
from splitjax.methods.method import Method
from splitjax.models import network
from splitjax.parameters import pytree
from splitjax.types import Batch, Half, Net, Tree


class Front(NamedTuple):
  """A client's forward pass on a batch."""

  depth: int  # K, the client's cut
  features: Array  # [B, ...], z = phi(x)
  loss: Array  # [] l_C = CE(h(z), y); 0 without an exit
  stats: dict[str, Tree]  # block name -> new running statistics
  pull: Callable[[Array, Array | float], dict[str, Tree]]
  """(dz [B, ...], dl_C []) -> gradients of phi and h, by block."""


class Back(NamedTuple):
  """The server's forward pass on received features."""

  output: Array  # the loss [], or the embedding [B, D] in front of the head
  stats: dict[str, Tree]  # block name -> new running statistics
  pull: Callable[[Array], tuple[dict[str, Tree], Array]]
  """Gradient at the output -> gradients of theta by block, dz [B, ...]."""


@pytree
class Split(Method):
  """A method whose clients hold the first blocks, and the server the rest.

  Each side has its own `jax.vjp`, with messages between them: the rounding of a
  message is not differentiated, and a method may change what crosses the cut.
  """

  def front(self, client: Net, batch: Batch) -> Front:
    """Runs phi and, if the client has an exit, h."""

    def forward(params):
      net = client._replace(params=params)
      z, stats = self.features(net, batch)
      return (z, self.exit_loss(net, z, batch)), stats

    (z, loss), vjp, stats = jax.vjp(forward, client.params, has_aux=True)

    def pull(dz, dl):
      return vjp((dz, jnp.asarray(dl, loss.dtype)))[0]

    return Front(self.depth(client), z, loss, stats, pull)

  def back(self, server: Net, z: Array, depth: int, batch: Batch) -> Back:
    """Runs theta behind a cut, with the head and the loss."""
    names = (*self.backbone.names(depth), "head")

    def forward(net, z):
      logits, stats = network.run_batch(self.backbone, net, z, names, batch)
      return self.backbone.mean_loss(logits, batch.label, batch.real), stats

    return self.behind(server, z, names, forward)

  def trunk(self, server: Net, z: Array, depth: int, batch: Batch) -> Back:
    """Runs theta behind a cut up to the embedding, without the head."""
    names = self.backbone.names(depth)

    def forward(net, z):
      e, stats = network.run_batch(self.backbone, net, z, names, batch)
      return e.reshape(len(e), -1), stats

    return self.behind(server, z, names, forward)

  def behind(
    self, server: Net, z: Array, names: tuple[str, ...], forward: Callable
  ) -> Back:
    """Differentiates `forward` in z and in the blocks that it runs."""
    params = {name: server.params[name] for name in names}

    def run(params, z):
      return forward(server._replace(params=params), z)

    output, pull, stats = jax.vjp(run, params, z, has_aux=True)
    return Back(output=output, stats=stats, pull=pull)

  def split_pass(
    self, client: Half, server: Half, batch: Batch, gamma: Array | float
  ) -> tuple[Half, Half, dict[str, Array]]:
    """Both sides descend gamma l_C + (1 - gamma) l_S (SplitGP eq. 3-8)."""
    near = self.front(client.net, batch)
    z = self.cross("up/features", near.features, batch)
    wire.send_labels(batch.real)
    far = self.back(server.net, z, near.depth, batch)
    theta, dz = far.pull(jnp.asarray(1 - gamma, far.output.dtype))
    dz = self.cross("down/feature_gradient", dz, batch)
    phi = near.pull(dz, gamma)
    client = self.optimizer.step(client, phi, near.stats)
    server = self.optimizer.at_server.step(server, theta, far.stats)
    losses = {"server": far.output}
    if network.classifier(self.backbone, client.net) is not None:
      losses["client"] = near.loss
    return client, server, losses

  def client_pass(
    self, client: Half, batch: Batch
  ) -> tuple[Half, dict[str, Array]]:
    """The client descends l_C, while the server is down."""
    near = self.front(client.net, batch)
    grads = near.pull(jnp.zeros_like(near.features), 1.0)
    client = self.optimizer.step(client, grads, near.stats)
    return client, {"client": near.loss}
