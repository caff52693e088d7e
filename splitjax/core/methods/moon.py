"""MOON: a contrastive loss on the features of three networks."""

from typing import Annotated, NamedTuple

import jax

from splitjax import losses
from splitjax.core.methods import prototypes
from splitjax.core.methods.whole import WholeNetwork
from splitjax.core.pytree import pytree
from splitjax.core.records import Net, Passes
from splitjax.fields import NOT_NEGATIVE, POSITIVE


class Contrast(NamedTuple):
  """Context of a round.

  Attributes:
    received: the network that the client received.
    last: the client's own network after its last round.
  """

  received: Net
  last: Net


@pytree
class MOON(WholeNetwork):
  """Local SGD on CE + mu l_con, then FedAvg's mean.

  l_con = -log e^{s(z, z_glob) / tau} / (e^{s(z, z_glob) / tau} + e^{s(z,
  z_prev) / tau}), where s is the cosine and z are the features of the local
  network. z_glob are the features of the network that the client received.
  z_prev are the features of the client's own network after its last round; in
  its first round they are those of the initial network. The networks of z_glob
  and z_prev run in inference mode.

  Features are the input of the head. The paper adds a projection head of two
  layers. To use a projection head here, write a network of your own whose last
  block ends with it.

  Attributes:
    mu: weight of l_con; 1 is the default of the authors' code.
    temperature: tau; 0.5 is the default of the authors' code.

  References:
    Li, He and Song, Model-Contrastive Federated Learning, CVPR 2021,
    Algorithm 1.

  Example:
    >>> import splitjax
    >>> from splitjax.core.methods.optimizer import Optimizer
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> optimizer = Optimizer(lr=0.05)
    >>> MOON(backbone=net, optimizer=optimizer, mu=5.0).answers
    ('client',)
  """

  mu: Annotated[float, NOT_NEGATIVE] = 1.0
  temperature: Annotated[float, POSITIVE] = 0.5

  @property
  def passes(self):
    return Passes(client=5.0)

  def first_client(self, net, size):
    return super().first_client(net, size)._replace(memory=net)

  def receive(self, client, server, samples, round, key):
    last = client.memory
    client, server, _ = super().receive(client, server, samples, round, key)
    return client, server, Contrast(received=client.net, last=last)

  def loss(self, params, client, context, batch):
    net = client.net._replace(params=params)
    z, stats = self.features(net, batch)
    loss, align = self.exit_loss(net, z, batch), self.align(z, context, batch)
    return loss + align, ({"client": loss, "align": align}, stats)

  def align(self, z, context, batch):
    """Computes mu l_con of features z [B, ...]."""
    z = losses.unit(z.reshape(len(z), -1).astype(float))

    def cosine(net):
      anchor = prototypes.features(self.backbone, net, batch)
      return (z * losses.unit(anchor)).sum(axis=1) / self.temperature

    gap = cosine(context.last) - cosine(context.received)
    return self.mu * losses.masked_mean(jax.nn.softplus(gap), batch.real)

  def send(self, client, server, context, samples, weight, key):
    client = client._replace(memory=client.net)
    return super().send(client, server, context, samples, weight, key)
