"""FedGH: Generalized Global Header (Yi et al., ACM MM 2023)."""

from typing import Annotated

import jax
import jax.numpy as jnp

from splitjax import wire
from splitjax.fields import NOT_NEGATIVE
from splitjax.methods import nets, prototypes
from splitjax.methods.method import is_body, is_head
from splitjax.methods.prototypes import Prototypes
from splitjax.methods.whole import WholeNetwork
from splitjax.parameters import pytree
from splitjax.types import Client


@pytree
class FedGH(WholeNetwork):
  """The server's head takes a step for every class mean (Algorithm 1).

  Every client starts with the global head, trains its whole network and sends
  p_il, the mean feature of each class l that it holds. It is the client's
  memory. The server takes one SGD step on CE(h(p_il), l) for each client i and
  each of its classes l, in the order of the clients and classes.
  """

  #: eta, learning rate of the server's head. The default is ours.
  server_lr: Annotated[float, NOT_NEGATIVE] = 0.01

  def keeps(self, path):
    return is_body(path)

  def sends(self, path):
    return is_head(path)

  def first_client(self, net, size):
    memory = prototypes.none(self.backbone)
    return super().first_client(net, size)._replace(memory=memory)

  def send(self, half, copy, context, samples, weight, key):
    mean, _, count = prototypes.class_stats(self.backbone, half.net, samples)
    held = count > 0
    wire.record("up/prototypes", 4 * (1 + mean.shape[1]) * held.sum())
    # The head comes down, and does not go up.
    kept = nets.select(half.net, self.keeps)
    memory = Prototypes(mean=mean, known=held)
    return Client(net=kept, memory=memory), {}

  def merge(self, server, shares, clients, counted):
    """Takes a step for each mean [N, C, D] of a client that `counted`."""
    (cohort,), (on,) = clients, counted
    mean, held = cohort.memory
    common = server.common

    def loss(head, z, label):
      net = common._replace(params={"head": head})
      logits = prototypes.logits(self.backbone, net, z[None])
      return self.backbone.mean_loss(logits, label[None], jnp.ones(1, bool))

    def step(head, inputs):
      z, label, counts = inputs
      grads = jax.grad(loss)(head, z, label)
      lr = jnp.where(counts, self.server_lr, 0.0)
      return jax.tree.map(lambda w, g: w - lr * g, head, grads), None

    labels = jnp.broadcast_to(jnp.arange(held.shape[1]), held.shape)
    pairs = mean, labels, on[:, None] & held
    inputs = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), pairs)
    head, _ = jax.lax.scan(step, common.params["head"], inputs)
    params = common.params | {"head": head}
    return server._replace(common=common._replace(params=params)), clients
