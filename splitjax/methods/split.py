"""A network that is cut: a local step, message by message; SplitGP.

Han et al., SplitGP: Achieving Both Generalization and Personalization in
Federated Learning, INFOCOM 2023.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from splitjax import wire
from splitjax.fields import Probability
from splitjax.methods.method import Blocks, Losses, Method
from splitjax.methods.personal import Blended, FineTuning
from splitjax.models import network
from splitjax.parameters import pytree
from splitjax.types import Batch, Half, Net


class Front(NamedTuple):
  """A client's forward pass on a batch."""

  depth: int  #: K, the client's cut
  features: Array  #: [B, ...], z = phi(x)
  loss: Array  #: [] l_C = CE(h(z), y); 0 without an exit
  stats: Blocks  #: block name -> new running statistics
  pull: Callable[[Array, Array | float], Blocks]
  """(dz [B, ...], dl_C []) -> gradients of phi and h, by block."""


class Back(NamedTuple):
  """The server's forward pass on received features."""

  output: Array  #: the loss [], or the embedding [B, D] in front of the head
  stats: Blocks  #: block name -> new running statistics
  pull: Callable[[Array | float], tuple[Blocks, Array]]
  """Gradient at the output -> gradients of theta by block, dz [B, ...]."""


@pytree
class Split(Method):
  """A method whose clients hold the first blocks, and the server the rest.

  Each side has its own `jax.vjp`, with messages between them: their rounding is
  not differentiated, and a method may change what crosses the cut.
  """

  def front(self, net: Net, batch: Batch) -> Front:
    """Runs phi and, if the client has an exit, h."""

    def forward(params):
      variant = net._replace(params=params)
      z, stats = self.features(variant, batch)
      return (z, self.exit_loss(variant, z, batch)), stats

    (z, loss), vjp, stats = jax.vjp(forward, net.params, has_aux=True)

    def pull(dz, dl):
      return vjp((dz, jnp.asarray(dl, loss.dtype)))[0]

    return Front(
      depth=self.depth(net), features=z, loss=loss, stats=stats, pull=pull
    )

  def back(self, net: Net, z: Array, depth: int, batch: Batch) -> Back:
    """Runs theta behind a cut, with the head and the loss."""
    names = (*self.backbone.names(depth), "head")

    def forward(net, z):
      logits, stats = network.run_batch(self.backbone, net, z, names, batch)
      return self.backbone.mean_loss(logits, batch.label, batch.real), stats

    return self.differentiated(forward, net, z, names)

  def trunk(self, net: Net, z: Array, depth: int, batch: Batch) -> Back:
    """Runs theta behind a cut up to the embedding, without the head."""
    names = self.backbone.names(depth)

    def forward(net, z):
      e, stats = network.run_batch(self.backbone, net, z, names, batch)
      return e.reshape(len(e), -1), stats

    return self.differentiated(forward, net, z, names)

  def differentiated(
    self, forward: Callable, net: Net, z: Array, names: tuple[str, ...]
  ) -> Back:
    """Runs `forward` (net, z), with its vjp in z and in the blocks `names`."""
    params = {name: net.params[name] for name in names}

    def run(params, z):
      return forward(net._replace(params=params), z)

    output, vjp, stats = jax.vjp(run, params, z, has_aux=True)

    def pull(d):
      return vjp(jnp.asarray(d, output.dtype))

    return Back(output=output, stats=stats, pull=pull)

  def split_pass(
    self, half: Half, copy: Half, batch: Batch, gamma: Array | float
  ) -> tuple[Half, Half, Losses]:
    """Both sides descend gamma l_C + (1 - gamma) l_S (SplitGP eq. 3-8)."""
    # Client: features and labels go up.
    front = self.front(half.net, batch)
    z = self.cross("up/features", front.features, batch)
    wire.send_labels(batch.real)

    # Server: the features' gradient goes down.
    back = self.back(copy.net, z, front.depth, batch)
    grads, dz = back.pull(1 - gamma)
    dz = self.cross("down/feature_gradient", dz, batch)

    # Both: a step of the optimiser.
    half = self.optimizer.step(half, front.pull(dz, gamma), front.stats)
    copy = self.optimizer.at_server.step(copy, grads, back.stats)
    losses = {"server": back.output}
    if network.classifier(self.backbone, half.net) is not None:
      losses["client"] = front.loss
    return half, copy, losses


@pytree
class SplitGP(FineTuning, Blended, Split):
  """SGD on gamma l_C + (1 - gamma) l_S, then blended prefixes (Algorithm 1).

  phi and h are blended by lam (eq. 9-10), theta is the mean. The paper reports
  lam = 0.2 and 0.9.
  """

  gamma: Probability = 0.5  #: weight of l_C (eq. 5)
  lam = 0.2

  def step(self, half, copy, context, batches, key):
    (batch,) = batches
    return self.split_pass(half, copy, batch, self.gamma)

  def alone(self, half, context, batches, key):
    (batch,) = batches
    front = self.front(half.net, batch)
    grads = front.pull(jnp.zeros_like(front.features), 1.0)
    half = self.optimizer.step(half, grads, front.stats)
    return half, {"client": front.loss}


@pytree
class MultiExit(SplitGP):
  """Multi-exit SFL: SplitGP whose clients get the mean and keep nothing."""

  lam = None
