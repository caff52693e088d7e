"""SCAFFOLD: control variates correct the drift of local steps."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.methods import nets
from splitjax.methods.fedavg import WholeNetwork
from splitjax.parameters import pytree
from splitjax.types import Net, Tree


class ServerControl(NamedTuple):
  """The server's memory: c, by block, and N, [] float."""

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
  the first round is FedAvg's. What clients do not send, such as normalisation
  with batch_norm=local, has none: its c_i is 0.

  The paper's means are uniform. With mean="size" c follows the mean of the c_i
  weighted by samples, and equals it if all clients take part. The paper's eta_g
  is mean_optimizer.lr with mean_optimizer.name=fedavgm and beta1=0; without a
  mean optimiser it is 1, as in the paper's experiments.

  Reference: Karimireddy et al., ICML 2020, Algorithm 1.
  """

  def first_client(self, net, size):
    zeros = trees.zeros(net.params)
    return super().first_client(net, size)._replace(memory=zeros)

  def first_server(self, full, part, size):
    zeros = trees.zeros(part.params)
    memory = ServerControl(control=zeros, clients=jnp.asarray(size, float))
    return super().first_server(full, part, size)._replace(memory=memory)

  def receive(self, client, server, samples, round, key):
    c = server.memory.control
    c_i = client.memory
    wire.send_tree("down/control_variate", self.sent(c))
    half, copy, _ = super().receive(client, server, samples, round, key)
    # In the round, memory sums g_i(y_i) over the K steps.
    total = nets.Share(total=trees.zeros(c_i), weight=jnp.zeros(()))
    context = c_i, jax.tree.map(jnp.subtract, c, c_i)
    return half._replace(memory=total), copy, context

  def step(self, half, copy, context, batches, key):
    _, correction = context
    grads, stats, losses = self.gradients(half, (), *batches)
    total = trees.add(half.memory, nets.Share(total=grads, weight=jnp.ones(())))
    grads = trees.add(grads, correction)
    half = self.optimizer.step(half, grads, stats)
    return half._replace(memory=total), copy, losses

  def send(self, half, copy, context, samples, weight, key):
    c_i, _ = context
    mean = self.sent(half.memory.mean(c_i))
    after = nets.join(mean, Net(params=c_i, stats={})).params
    change = jax.tree.map(jnp.subtract, after, c_i)
    wire.send_tree("up/control_variate", self.sent(change))
    half = half._replace(memory=after)
    kept, shares = super().send(half, copy, context, samples, weight, key)
    shares["change"] = nets.share(change, weight)
    shares["participants"] = jnp.where(weight > 0, 1.0, 0.0)
    return kept, shares

  def merge(self, server, shares, clients, counted):
    c, size = server.memory
    part = shares["participants"] / size  # 0 where nobody takes part
    change = trees.scale(part, shares["change"].mean(c))
    memory = server.memory._replace(control=trees.add(c, change))
    return server._replace(memory=memory), clients

  def sent(self, control):  # what of a control variate travels
    return nets.select(Net(params=control, stats={}), self.sends)
