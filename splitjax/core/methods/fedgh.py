"""FedGH: bodies are private; the server trains one head on class means.

Yi et al., FedGH: Heterogeneous Federated Learning with Generalized Global
Header, ACM MM 2023.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from splitjax.core import wire
from splitjax.core.methods import nets, prototypes
from splitjax.core.methods.method import is_body, is_head
from splitjax.core.methods.whole import WholeNetwork
from splitjax.core.pytree import pytree
from splitjax.core.records import NO_BLOCKS, Client, Net, Tree
from splitjax.fields import NOT_NEGATIVE


class Means(NamedTuple):
  """Memory of a client: what it sent in its last round.

  Attributes:
    mean: [C, D], p_il, the mean feature of each class.
    samples: [C] float, the client's samples of each class.
  """

  mean: Array
  samples: Array


@pytree
class FedGH(WholeNetwork):
  """The server's head takes a step for every class mean (Algorithm 1).

  Every client starts with the global head, trains its whole network and sends
  p_il, the mean feature of each class l that it holds. The server takes one SGD
  step on CE(h(p_il), l) for each client i and each of its classes l, in the
  order of the clients and classes. It then sends the head to all clients.

  Attributes:
    server_lr: eta, learning rate of the server's head. The default is ours.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> optimizer = splitjax.methods.Optimizer(lr=0.05)
    >>> method = FedGH(backbone=net, optimizer=optimizer, server_lr=0.05)
    >>> method.keeps("head/kernel")
    False
  """

  server_lr: Annotated[float, NOT_NEGATIVE] = 0.01

  def keeps(self, path):
    return is_body(path)

  def sends(self, path):
    return is_head(path)

  def first_client(self, net):
    classes, width = self.backbone.classes, prototypes.width(self.backbone)
    memory = Means(mean=jnp.zeros((classes, width)), samples=jnp.zeros(classes))
    return super().first_client(net)._replace(memory=memory)

  def send(self, client, server, context, samples, weight, key):
    # The head comes down, and does not go up.
    mean, _, count = prototypes.class_stats(self.backbone, client.net, samples)
    held = (count > 0).sum()
    wire.record("up/prototypes", 4 * (1 + mean.shape[1]) * held)
    kept = nets.select(client.net, self.keeps)
    memory = Means(mean=mean, samples=count)
    return Client(net=kept, memory=memory), {"common": NO_BLOCKS}

  def merge(self, server, shares, clients, counted):
    (cohort,), (on,) = clients, counted
    held = on[:, None] & (cohort.memory.samples > 0)
    head = self.trained(server.common, cohort.memory.mean, held)
    params = server.common.params | {"head": head}
    common = server.common._replace(params=params)
    return server._replace(common=common), clients

  def trained(self, common: Net, mean: Array, held: Array) -> Tree:
    """The head after a step for each `mean` [N, C, D] that is `held` [N, C]."""

    def loss(head, z, label):
      net = common._replace(params={"head": head})
      logits = prototypes.logits(self.backbone, net, z[None])
      return self.backbone.mean_loss(logits, label[None], jnp.ones(1, bool))

    def step(head, inputs):
      z, label, on = inputs
      grads = jax.grad(loss)(head, z, label)
      lr = jnp.where(on, self.server_lr, 0.0)
      return jax.tree.map(lambda w, g: w - lr * g, head, grads), None

    clients, classes = held.shape
    labels = jnp.tile(jnp.arange(classes), clients)
    inputs = mean.reshape(-1, mean.shape[-1]), labels, held.ravel()
    return jax.lax.scan(step, common.params["head"], inputs)[0]
