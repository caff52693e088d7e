"""Clients that hold the whole network: FedAvg and what is close to it.

`WholeNetwork` is federated averaging of a loss that a method may change; Local,
FedBN and FedProx differ from FedAvg in a line or two, SCAFFOLD by control
variates, which correct the drift of local steps.
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from splitjax import trees, wire
from splitjax.fields import NotNegative
from splitjax.methods import nets
from splitjax.methods.method import Blocks, Losses, Method, Share, share
from splitjax.methods.personal import Blended, FineTuning
from splitjax.models.network import is_norm
from splitjax.parameters import pytree
from splitjax.types import (
  NO_BLOCKS,
  Batch,
  Client,
  Half,
  Net,
  Passes,
  Row,
  Server,
  Tree,
)

HEAD_PASSES = Passes(client=1.0)
"""Of a step in the head alone, whose gradient is taken to be free."""


@pytree
class WholeNetwork(Method):
  """Federated averaging of a loss that subclasses may change."""

  uncut: ClassVar[bool] = True

  @property
  def answers(self):
    return ("client",)

  def loss(
    self, params: Blocks, half: Half, context: Tree, batch: Batch
  ) -> tuple[Array, tuple[Losses, Blocks]]:
    """The loss that a step descends -> [], (losses to report, statistics)."""
    net = half.net._replace(params=params)
    z, stats = self.features(net, batch)
    loss = self.exit_loss(net, z, batch)
    return loss, ({"client": loss}, stats)

  def gradients(
    self,
    half: Half,
    context: Tree,
    batch: Batch,
    moves: Callable[[str], bool] | None = None,
  ) -> tuple[Blocks, Blocks, Losses]:
    """Differentiates the loss in the blocks that `moves` names; None: in all.

    Returns their gradients and new statistics, and the losses to report.
    """
    params = half.net.params
    moving = {n: x for n, x in params.items() if moves is None or moves(n)}

    def loss(moving):
      return self.loss(params | moving, half, context, batch)

    grads, (losses, stats) = jax.grad(loss, has_aux=True)(moving)
    return grads, {n: x for n, x in stats.items() if n in moving}, losses

  def step(self, half, copy, context, batches, key):
    return self.step_in(None, half, copy, context, batches, key)

  def step_in(self, moves, half, copy, context, batches, key):
    """Descends the loss in the blocks that `moves` names; None: in all."""
    (batch,) = batches
    grads, stats, losses = self.gradients(half, context, batch, moves)
    return self.optimizer.step(half, grads, stats), copy, losses


@pytree
class Unaveraged(WholeNetwork):
  """Clients keep their network and send it; `merge` sees them, not a mean."""

  def keeps(self, path):
    return True

  def sends(self, path):
    return not super().keeps(path)  # all but local normalisation

  def first_server(self, full, part, size):
    return Server(net=NO_BLOCKS, common=NO_BLOCKS)

  def send(self, half, copy, context, samples, weight, key):
    self.exchange("up", half.net)
    return Client(net=half.net, memory=half.memory), {}


@pytree
class FedAvg(FineTuning, Blended, WholeNetwork):
  """Local SGD, then the data-weighted mean (McMahan et al., AISTATS 2017).

  With lam it is SplitGP's baseline "personalized FL" (Mansour et al., Three
  Approaches for Personalization, 2020); SplitGP states no lam.
  """

  #: whether there is a row of the same network at the server, to which clients
  #: send every sample (SplitGP eq. 29, Figure 5)
  at_server: bool = False

  @property
  def rows(self):
    served = Row(" at the server", personal=False, at_server=True)
    return (*super().rows, served) if self.at_server else super().rows


@pytree
class Local(WholeNetwork):
  """Every client trains by itself; nothing is sent or averaged.

  No mean corrects a step that was too large: it may need `optimizer.clip`.
  """

  def keeps(self, path):
    return True


@pytree
class FedBN(WholeNetwork):
  """Clients keep batch normalisation (Li et al., ICLR 2021, Algorithm 1).

  It is FedAvg with batch_norm=local, beside methods that average normalisation.
  """

  def keeps(self, path):
    return is_norm(path)


@pytree
class FedProx(FineTuning, WholeNetwork):
  """Clients descend F_n(w) + mu / 2 |w - w0|^2 (Li et al., MLSys 2020, eq. 2).

  w0 is the network that the client received. The paper tunes mu in 0.001..1 for
  each data set; the default is ours. The reported loss is F_n alone.
  """

  mu: NotNegative = 0.01

  def receive(self, client, server, samples, round, key):
    half, copy, _ = super().receive(client, server, samples, round, key)
    return half, copy, half.net.params

  def loss(self, params, half, context, batch):
    loss, reported = super().loss(params, half, context, batch)
    return loss + self.mu / 2 * squared_distance(params, context), reported


def squared_distance(a, b):
  """Computes |a - b|^2 over all leaves."""
  gaps = jax.tree.map(lambda x, y: jnp.sum((x - y) ** 2), a, b)
  return sum(jax.tree.leaves(gaps))


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
  use, (x - y_i) / (K eta_l) would not be a gradient. c and c_i begin at 0. What
  clients do not send has no c_i.

  The paper's means are uniform (mean="uniform"); its eta_g is
  mean_optimizer.lr with mean_optimizer.name=fedavgm and beta1=0, else 1, as in
  its experiments. Reference: Karimireddy et al., ICML 2020, Algorithm 1.
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
    total = Share(total=trees.zeros(c_i), weight=jnp.zeros(()))
    context = c_i, jax.tree.map(jnp.subtract, c, c_i)
    return half._replace(memory=total), copy, context

  def step(self, half, copy, context, batches, key):
    _, correction = context
    grads, stats, losses = self.gradients(half, (), *batches)
    total = trees.add(half.memory, Share(total=grads, weight=jnp.ones(())))
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
    client, shares = super().send(half, copy, context, samples, weight, key)
    shares["change"] = share(change, weight)
    shares["participants"] = jnp.where(weight > 0, 1.0, 0.0)
    return client, shares

  def merge(self, server, shares, clients, counted):
    c, size = server.memory
    part = shares["participants"] / size  # 0 where nobody takes part
    change = trees.scale(part, shares["change"].mean(c))
    memory = server.memory._replace(control=trees.add(c, change))
    return server._replace(memory=memory), clients

  def sent(self, control):  # what of a control variate travels
    return nets.select(Net(params=control, stats={}), self.sends)
