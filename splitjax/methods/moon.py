"""MOON: a contrastive loss on the features of three networks.

The loss pulls the features of the local network towards those of the global
network, and pushes them away from those of the client's network after its
previous round.

Li, He and Song, Model-Contrastive Federated Learning, CVPR 2021, Algorithm 1.
"""

import jax

from splitjax import losses
from splitjax.methods import base, prototypes
from splitjax.methods.optimizers import Optimizer
from splitjax.models import backbones
from splitjax.models.backbones import Backbone
from splitjax.types import Array, Batch, Half, Method, Segment, Work


def moon(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  mu: float = 1.0,
  temperature: float = 0.5,
) -> Method:
  """MOON: local SGD on CE + mu l_con, then FedAvg's mean.

  l_con = -log e^{s(z, z_glob) / tau} / (e^{s(z, z_glob) / tau} + e^{s(z,
  z_prev) / tau}), where s is the cosine and z are the features of the local
  network. z_glob are the features of the network that the client received.
  z_prev are the features of the client's own network after its last round; in
  its first round they are those of the initial network. The networks of z_glob
  and z_prev run in inference mode.

  Features are the input of the head. The paper adds a projection head of two
  layers. To use a projection head here, write a network of your own whose last
  block ends with it.

  Args:
    backbone: the network.
    optimizer: the client's optimiser.
    mu: weight of l_con; 1 is the default of the authors' code.
    temperature: tau; 0.5 is the default of the authors' code.

  Raises:
    UserError: an option is out of range.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> moon(net, sgd, mu=5.0).traits.depth
    'full'
  """
  base.require("mu", mu, mu >= 0, "at least 0")
  base.require("temperature", temperature, temperature > 0, "above 0")
  shared = base.mean(backbone)
  receive = base.download(backbone, optimizer, shared)

  def begin(client, server, samples, round, key):
    client, server, down = receive(client, server, samples, round, key)
    both = client.segment, client.memory
    return client._replace(memory=both), server, down

  def contrast(client: Half, z: Array, batch: Batch) -> Array:
    z = losses.unit(z.reshape(len(z), -1).astype(float))

    def cosine(other: Segment) -> Array:
      found = prototypes.features(backbone, other, batch)
      return (z * losses.unit(found)).sum(axis=1) / temperature

    common, last = map(cosine, client.memory)
    return mu * losses.masked_mean(jax.nn.softplus(last - common), batch.real)

  def leave(client, server, samples, key):
    return client._replace(memory=client.segment), server, {}

  return base.method(
    backbone,
    optimizer,
    (
      base.client_stage(
        backbone, optimizer, align=contrast, work=Work(client=5.0)
      ),
    ),
    shared,
    traits=base.FULL,
    begin=begin,
    finish=base.upload(backbone, shared, before=leave),
    client_memory=lambda full, fleet: backbones.prefix(
      backbone, full, backbone.length
    ),
  )
