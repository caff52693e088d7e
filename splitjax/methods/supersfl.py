"""SuperSFL: two gradients fused in the encoder, one set of parameters for all.

Al Asif et al., SuperSFL: Resource-Heterogeneous Federated Split Learning with
Weight-Sharing Super-Networks, 2026. theta_i is a client's encoder (the first
d_i of L blocks), phi_i its classifier (our exit), theta_s the server's copy.
"""

from typing import Literal

import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.fields import NotNegative, Positive
from splitjax.methods import nets
from splitjax.methods.method import Share
from splitjax.methods.split import Split
from splitjax.models import network
from splitjax.models.network import is_exit
from splitjax.parameters import pytree
from splitjax.types import NO_BLOCKS, Net, Passes, Server, UserError


@pytree
class SuperSFL(Split):
  """Three-phase gradient fusion (Algorithm 2), eq. 3-8.

  The server holds all L blocks, and clients start from its first ones; their
  classifiers stay with them. While the server does not answer, a client uploads
  in vain and then trains alone (Algorithm 3).
  """

  #: the factors of w in eq. 3: the paper's, or those of its ablations, of which
  #: "equal" is a half.
  fusion: Literal["full", "no_loss", "no_depth", "equal"] = "full"
  #: tau, largest norm of l_C's gradient over the encoder; None: no limit
  clip: Positive | None = 0.5
  lam: NotNegative = 0.01  # pull to the server's copy, eq. 8
  #: whether a block that one participant holds is copied from it (Section II-D)
  sole_source: bool = True
  #: whether the weights of eq. 8 sum to 1 over the holders of a block. False:
  #: as printed; of 50 clients' deepest blocks 78 to 93 % are then the server's.
  normalise: bool = False
  eps: Positive = 1e-8  #: eq. 3, 6; the paper has no value
  exit_answers: bool = False  #: whether exits predict too, gated by entropy

  def __post_init__(self):
    super().__post_init__()
    if self.mean != "size":
      raise UserError(f"mean={self.mean!r}: SuperSFL weighs clients by eq. 6")

  @property
  def answers(self):
    return ("client", "server") if self.exit_answers else ("server",)

  @property
  def passes(self):
    return Passes(client=5.0)  # two gradients of the encoder

  def keeps(self, path):
    return is_exit(path.split("/")[0]) or super().keeps(path)

  def first_client(self, net, size):
    # Whether it has sent its memory and latency (eq. 1): once in a run.
    return super().first_client(net, size)._replace(memory=jnp.bool_(False))

  def first_server(self, full, part, size):
    return Server(net=network.suffix(self.backbone, full, 0), common=NO_BLOCKS)

  def model(self, client, server):
    return nets.join(client.net, server.net)

  def receive(self, client, server, samples, round, key):
    wire.record("up/statistics", jnp.where(client.memory, 0.0, 8.0))
    half, copy, context = super().receive(client, server, samples, round, key)
    # Until the round ends, memory is the share of its steps' losses in eq. 6.
    none = Share(total=jnp.zeros(()), weight=jnp.zeros(()))
    return half._replace(memory=none), copy, context

  def step(self, half, copy, context, batches, key):
    (batch,) = batches
    # Phase 1: l_C and its gradient; features up.
    front, local, z = self.phase_one(half.net, batch)

    # Phase 2: the server's step; its gradient of the features and l_S down.
    back = self.back(copy.net, z, front.depth, batch)
    grads, dz = back.pull(1.0)
    dz = self.cross("down/feature_gradient", dz, batch)
    wire.record("down/statistics", 4.0)

    # Phase 3: fusion (eq. 3), of the encoder alone.
    w = self.client_weight(front.loss, back.output, front.depth)
    served = front.pull(dz, 0.0)
    fused = trees.add(trees.scale(w, local), trees.scale(1 - w, served))
    encoder = {n: fused[n] for n in self.backbone.names(0, front.depth)}
    loss = w * front.loss + (1 - w) * back.output
    half = self.optimizer.step(half, local | encoder, front.stats)
    copy = self.optimizer.at_server.step(copy, grads, back.stats)
    losses = {"client": front.loss, "server": back.output}
    return noted(half, loss), copy, losses

  def alone(self, half, context, batches, key):
    (batch,) = batches
    front, grads, _ = self.phase_one(half.net, batch)  # sends in vain
    half = self.optimizer.step(half, grads, front.stats)
    return noted(half, front.loss), {"client": front.loss}

  def phase_one(self, net, batch):
    """The forward pass, l_C's gradient, clipped in the encoder; features up."""
    front = self.front(net, batch)
    grads = front.pull(jnp.zeros_like(front.features), 1.0)
    if self.clip is not None:
      names = self.backbone.names(0, front.depth)
      grads |= trees.clipped({name: grads[name] for name in names}, self.clip)
    z = self.cross("up/features", front.features, batch)
    wire.send_labels(batch.real)
    return front, grads, z

  def client_weight(self, client_loss, server_loss, depth):
    """W = d_i / L * (L_c + eps)^-1 / ((L_c + eps)^-1 + (L_s + eps)^-1)."""
    share = jnp.asarray(depth / self.backbone.length)
    sure = 1 / (client_loss + self.eps)
    certain = sure / (sure + 1 / (server_loss + self.eps))
    w = {"full": share * certain, "no_loss": share, "no_depth": certain}
    return w.get(self.fusion, jnp.asarray(0.5))  # "equal"

  def weight(self, half, samples):
    """d_i / (L_i + eps): w_i of eq. 6 without its denominators, see `merge`."""
    sureness = 1 / (half.memory.mean(0.0) + self.eps)
    some = samples.shard.size > 0
    return jnp.where(some, self.depth(half.net) * sureness, 0.0)

  def send(self, half, copy, context, samples, weight, key):
    wire.record("up/statistics", 4.0)  # the loss of eq. 6
    client, shares = super().send(half, copy, context, samples, weight, key)
    depth = self.depth(half.net)
    counts = jnp.where(weight > 0, 1.0, 0.0)
    shares["depth"] = counts * depth
    shares["sureness"] = weight / depth
    shares["holders"] = dict.fromkeys(self.backbone.names(0, depth), counts)
    return client._replace(memory=jnp.bool_(True)), shares

  def merge(self, server, shares, clients, counted):
    """Theta <- (sum_i w_i theta_i + lam theta_s) / (sum_i w_i + lam), eq. 8.

    w_i = d_i / sum_j d_j * (L_i + eps)^-1 / sum_j (L_j + eps)^-1 (eq. 6), with
    sum_j over all participants, sum_i over the holders of a block. theta_s is
    the mean of the copies that features passed, else the value before.
    """
    # Weights of the shares lack the denominators: lam is multiplied by both.
    denominators = shares["depth"] * shares["sureness"]

    def mixed(copy, share, holders):
      if share is None:  # no client holds the block
        return copy
      pull = self.lam * (share.weight if self.normalise else denominators)
      pull = jnp.where(holders > (1 if self.sole_source else 0), pull, 0.0)
      total = trees.add(share.total, trees.scale(pull, copy))
      return Share(total=total, weight=share.weight + pull).mean(copy)

    net = nets.select(server.net, self.sends)
    holders = Net(params=shares["holders"], stats=shares["holders"])
    net = nets.map_blocks(mixed, net, shares["common"], holders)
    return server._replace(net=nets.join(net, server.net)), clients


def noted(half, loss):
  """Adds a step's loss, fused or l_C alone, to the client's memory."""
  step = Share(total=loss, weight=jnp.ones(()))
  return half._replace(memory=trees.add(half.memory, step))
