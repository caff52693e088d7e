"""SCAFFOLD: control variates correct the drift of local steps."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.core import wire
from splitjax.core.methods import nets
from splitjax.core.methods.whole import WholeNetwork
from splitjax.core.pytree import pytree
from splitjax.core.records import Net, Share, Tree


class Control(NamedTuple):
  """Context of a client's round.

  Attributes:
    client: c_i, by block.
    correction: c - c_i, by block.
  """

  client: dict[str, Tree]
  correction: dict[str, Tree]


class ServerControl(NamedTuple):
  """The server's memory.

  Attributes:
    control: c, by block.
    clients: [] N.
  """

  control: dict[str, Tree]
  clients: jax.Array


@pytree
class Scaffold(WholeNetwork):
  """Local SGD y_i <- y_i - eta_l (g_i(y_i) + c - c_i) (eq. 3), then means.

  Then c_i+ = c_i - c + (x - y_i) / (K eta_l) (eq. 4, option II), x <- the mean
  of the y_i, and c <- c + |S|/N times the mean of c_i+ - c_i (eq. 5). Under
  plain SGD c_i+ is the mean of the K gradients g_i(y_i). It is computed as this
  mean, because with momentum, weight decay or a clip, which the paper does not
  use, (x - y_i) / (K eta_l) would not be a gradient. c and c_i begin at 0, so
  the first round is FedAvg's.

  The network and a control variate travel in each direction. What clients do
  not send, such as normalisation with batch_norm=local, has none: its c_i is 0.

  The paper's means are uniform. With mean="size" c follows the mean of the c_i
  weighted by samples, and equals it if all clients take part. The paper's eta_g
  is mean_optimizer.lr with mean_optimizer.name=fedavgm and beta1=0; without a
  mean optimiser it is 1, as in the paper's experiments.

  References:
    Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated
    Learning, ICML 2020, Algorithm 1.

  Example:
    >>> import splitjax
    >>> from splitjax.core.methods.optimizer import Optimizer
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> optimizer = Optimizer(lr=0.05)
    >>> Scaffold(backbone=net, optimizer=optimizer, mean="uniform").views
    1
  """

  def first_client(self, net, size):
    return (
      super().first_client(net, size)._replace(memory=trees.zeros(net.params))
    )

  def first_server(self, full, held, size):
    memory = ServerControl(
      control=trees.zeros(held.params), clients=jnp.asarray(size, float)
    )
    return super().first_server(full, held, size)._replace(memory=memory)

  def receive(self, client, server, samples, round, key):
    received, kept = server.memory.control, client.memory
    wire.send_tree("down/control_variate", self.sent(received))
    client, server, _ = super().receive(client, server, samples, round, key)
    correction = jax.tree.map(jnp.subtract, received, kept)
    # Until the round ends, memory is the sum of the gradients over K steps.
    none = Share(total=trees.zeros(kept), weight=jnp.zeros(()))
    context = Control(client=kept, correction=correction)
    return client._replace(memory=none), server, context

  def step(self, client, server, context, batches, key):
    (batch,) = batches
    grads, stats, losses = self.gradients(client, context, batch)
    total = trees.add(client.memory, Share(total=grads, weight=jnp.ones(())))
    client = client._replace(memory=total)
    grads = trees.add(grads, context.correction)
    return self.optimizer.step(client, grads, stats), server, losses

  def send(self, client, server, context, samples, weight, key):
    mean = client.memory.mean(context.client)
    control = nets.join(self.sent(mean), Net(context.client, {})).params
    change = jax.tree.map(jnp.subtract, control, context.client)
    wire.send_tree("up/control_variate", self.sent(change))
    client = client._replace(memory=control)
    kept, shares = super().send(client, server, context, samples, weight, key)
    shares["change"] = nets.share(change, weight)
    shares["participants"] = jnp.where(weight > 0, 1.0, 0.0)
    return kept, shares

  def merge(self, server, shares, clients, counted):
    control, size = server.memory
    change = shares["change"].mean(control)
    # Where nobody takes part, the fraction is 0.
    change = trees.scale(shares["participants"] / size, change)
    memory = server.memory._replace(control=trees.add(control, change))
    server = server._replace(memory=memory)
    return super().merge(server, shares, clients, counted)

  def sent(self, control):
    """The part of a control variate that travels."""
    return nets.select(Net(params=control, stats={}), self.sends)
