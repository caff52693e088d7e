"""MOON: a contrastive loss on the features of three networks."""

from typing import Annotated

import jax

from splitjax import losses
from splitjax.fields import NOT_NEGATIVE, POSITIVE
from splitjax.methods import prototypes
from splitjax.methods.fedavg import WholeNetwork
from splitjax.parameters import pytree
from splitjax.types import Passes


@pytree
class MOON(WholeNetwork):
  """Local SGD on CE + mu l_con, then FedAvg's mean.

  l_con = -log e^{s(z, z_glob) / tau} / (e^{s(z, z_glob) / tau} + e^{s(z,
  z_prev) / tau}), where s is the cosine and z are the features of the local
  network. z_glob are those of the network that the client received, z_prev
  those of its own after its last round, at first of the initial network; both
  run in inference mode.

  Features are the input of the head. The paper adds a projection head of two
  layers: to use one, write a network whose last block ends with it. mu = 1 and
  tau = 0.5 are the defaults of the authors' code.

  Reference: Li, He and Song, CVPR 2021, Algorithm 1.
  """

  mu: Annotated[float, NOT_NEGATIVE] = 1.0
  temperature: Annotated[float, POSITIVE] = 0.5  #: tau

  @property
  def passes(self):
    return Passes(client=5.0)

  def first_client(self, net, size):
    return super().first_client(net, size)._replace(memory=net)

  def receive(self, client, server, samples, round, key):
    half, copy, _ = super().receive(client, server, samples, round, key)
    return half, copy, (half.net, client.memory)

  def loss(self, params, half, context, batch):
    net = half.net._replace(params=params)
    z, stats = self.features(net, batch)
    loss, align = self.exit_loss(net, z, batch), self.align(z, context, batch)
    return loss + align, ({"client": loss, "align": align}, stats)

  def align(self, z, context, batch):
    """Computes mu l_con of features z [B, ...]."""
    z = losses.unit(z.reshape(len(z), -1).astype(float))

    def cosine(net):
      anchor = prototypes.features(self.backbone, net, batch)
      return (z * losses.unit(anchor)).sum(axis=1) / self.temperature

    received, last = map(cosine, context)
    nats = jax.nn.softplus(last - received)
    return self.mu * losses.masked_mean(nats, batch.real)

  def send(self, half, copy, context, samples, weight, key):
    half = half._replace(memory=half.net)
    return super().send(half, copy, context, samples, weight, key)
