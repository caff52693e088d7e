"""FedProto: Federated Prototype Learning (Tan et al., AAAI 2022)."""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp

from splitjax import wire
from splitjax.fields import NOT_NEGATIVE
from splitjax.methods import nets, prototypes
from splitjax.methods.prototypes import Prototypes
from splitjax.methods.whole import WholeNetwork
from splitjax.models import network
from splitjax.parameters import pytree
from splitjax.types import Logits, Net

FAR = 1e6
"""The squared distance of a class that has no prototype."""


@pytree
class Aligned(WholeNetwork):
  """Clients descend CE + lam 1/D |f(x) - c_y|^2, and send class means.

  c_j, in the server's memory, is the mean of the participants' mean features of
  class j (FedProto eq. 6); if none has the class, it does not change. A class
  without a c_j adds nothing to the loss, nor does any without a context. The
  distance is divided by D, as in the authors' code.

  Attributes:
    mean: weight of a client in c_j: "size", |D_ij|, the number of its samples
      of the class, as in the papers, or "uniform", 1, as in FedProto's code.
  """

  lam: Annotated[float, NOT_NEGATIVE] = 1.0  #: lambda; 1 in the authors' code

  def first_server(self, full, held, size):
    memory = prototypes.none(self.backbone)
    return super().first_server(full, held, size)._replace(memory=memory)

  def receive(self, client, server, samples, round, key):
    mean, known = server.memory
    wire.record("down/prototypes", 4 * (1 + mean.shape[1]) * known.sum())
    half, copy, _ = super().receive(client, server, samples, round, key)
    return half, copy, server.memory

  def loss(self, params, half, context, batch):
    net = half.net._replace(params=params)
    z, stats = self.features(net, batch)
    losses = {"client": self.exit_loss(net, z, batch)}
    if context is not None:
      c, known = context
      apart = prototypes.distance_to(c, known, z, batch, per_feature=True)
      losses["align"] = self.lam * apart
    return sum(losses.values()), (losses, stats)

  def send(self, half, copy, context, samples, weight, key):
    mean, _, count = prototypes.class_stats(self.backbone, half.net, samples)
    held = count > 0
    wire.record("up/prototypes", 4 * (2 + mean.shape[1]) * held.sum())
    if self.mean == "uniform":
      count = held.astype(float)
    sent = jax.vmap(nets.share)(mean, jnp.where(weight > 0, count, 0.0))
    kept, shares = super().send(half, copy, context, samples, weight, key)
    return kept, shares | {"prototypes": sent}

  def merge(self, server, shares, clients, counted):
    sent, (mean, known) = shares["prototypes"], server.memory
    memory = Prototypes(sent.mean(mean), known | (sent.weight > 0))
    return server._replace(memory=memory), clients


@pytree
class FedProto(Aligned):
  """Clients keep their networks and share prototypes (Algorithm 1).

  Eq. 6 also divides by |N_j|, the number of clients with the class, and then
  c_j is no longer a mean. The authors' code and this one do not. The authors
  collect features during a client's last epoch, this code in a pass after it.
  """

  #: what classifies test samples: the nearest c_j, as in the paper, or the
  #: client's own head. The authors' code prints both, and chooses only among
  #: the c_j of the client's own classes; this one among all, since test samples
  #: may be of other classes.
  predicts: Literal["prototypes", "head"] = "prototypes"

  def keeps(self, path):
    return True

  def part_two(self, client, server):
    # As a block: the prototypes answer in the place of a server.
    return Net(params={"prototypes": server.memory}, stats={})

  def predict(self, client_net, server_net, image):
    """The logits are -1/D |f(x) - c_j|^2, or those of the head."""
    if self.predicts == "head":
      return super().predict(client_net, server_net, image)
    z, _ = network.client_logits(self.backbone, client_net, image)
    mean, known = server_net.params["prototypes"]
    z = z.reshape(len(z), -1).astype(float)
    square = jax.lax.map(lambda c: jnp.square(z - c).mean(axis=1), mean)
    scores = -jnp.where(known, square.T, FAR)
    return Logits(client=scores, server=scores)
