"""SuperSFL: two gradients fused in the encoder, one set of parameters for all.

Al Asif et al., SuperSFL: Resource-Heterogeneous Federated Split Learning with
Weight-Sharing Super-Networks, 2026. theta_i is a client's encoder (the first
d_i of L blocks), phi_i its classifier (our exit), theta_s the server's copy.
"""

from typing import Annotated, Literal, NamedTuple

import jax.numpy as jnp
from jax import Array

from splitjax import trees
from splitjax.core import wire
from splitjax.core.methods import nets
from splitjax.core.methods.optimizer import clipped
from splitjax.core.methods.split import Front, Split
from splitjax.core.pytree import pytree
from splitjax.core.records import (
  NO_BLOCKS,
  Half,
  Net,
  Passes,
  Server,
  Share,
  Tree,
)
from splitjax.fields import NOT_NEGATIVE, POSITIVE
from splitjax.models import backbones
from splitjax.models.block import is_exit
from splitjax.types import Batch, UserError


class Losses(NamedTuple):
  """The losses of a client's steps in a round, for its weight (eq. 6).

  The loss of a step is the fused one, or l_C while the server is down.
  """

  total: Array
  steps: Array


@pytree
class SuperSFL(Split):
  """Three-phase gradient fusion (Algorithm 2), eq. 3-8.

  The server holds all L blocks, and clients start from its first ones; their
  classifiers stay with them. While the server does not answer, a client uploads
  in vain and then trains alone (Algorithm 3). `fleet.allocation=supersfl`
  derives depths from resources (eq. 1).

  Attributes:
    fusion: the factors of w in eq. 3; "full" is the paper's choice, the others
      are its ablations, "equal" a half.
    clip: tau, largest norm of the client's gradient over its encoder; None: no
      limit.
    lam: weight of the pull to the server's own copy (eq. 8).
    sole_source: whether a block that a single participant holds is copied from
      it, without the pull (Section II-D). False: eq. 8 for all blocks.
    normalise: whether the weights of eq. 8 sum to 1 over the holders of a
      block. False: as printed; with 50 clients and lam = 0.01 the server's copy
      then makes up a third of block 1 and 78 to 93 % of the deepest blocks.
    eps: epsilon of eq. 3 and 6; the paper prints no value.
    answers: who predicts: "server", since the paper reports one model's
      accuracy and names no exit, or "both", gated by entropy.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> optimizer = splitjax.methods.Optimizer(lr=0.05)
    >>> SuperSFL(backbone=net, optimizer=optimizer, fusion="equal").answers
    ('server',)
  """

  fusion: Literal["full", "no_loss", "no_depth", "equal"] = "full"
  clip: Annotated[float | None, POSITIVE] = 0.5
  lam: Annotated[float, NOT_NEGATIVE] = 0.01
  sole_source: bool = True
  normalise: bool = False
  eps: Annotated[float, POSITIVE] = 1e-8
  answers: Literal["server", "both"] | tuple[str, ...] = "server"  # type: ignore[assignment]

  def __post_init__(self):
    super().__post_init__()
    if self.mean != "size":
      raise UserError(f"mean={self.mean!r}: SuperSFL weighs clients by eq. 6")
    both = self.answers in ("both", ("client", "server"))
    sides = ("client", "server") if both else ("server",)
    object.__setattr__(self, "answers", sides)

  @property
  def passes(self):
    return Passes(client=5.0)  # two gradients of the encoder

  def keeps(self, path):
    return is_exit(path.split("/")[0]) or super().keeps(path)

  def first_client(self, net, size):
    # Whether it has sent its memory and latency (eq. 1): once in a run.
    return super().first_client(net, size)._replace(memory=jnp.bool_(False))

  def first_server(self, full, held, size):
    theta = backbones.suffix(self.backbone, full, 0)
    return Server(net=theta, common=NO_BLOCKS)

  def model(self, client, server):
    return nets.join(client.net, server.net)

  def receive(self, client, server, samples, round, key):
    wire.record("up/statistics", jnp.where(client.memory, 0.0, 8.0))
    none = Losses(total=jnp.zeros(()), steps=jnp.zeros(()))
    half, copy, context = super().receive(client, server, samples, round, key)
    return half._replace(memory=none), copy, context

  def step(self, client, server, context, batches, key):
    (batch,) = batches

    # Phase 1: l_C and its gradient.
    near, local = self.phase_one(client.net, batch)

    # Phase 2: features up; the server's step; their gradient and l_S down.
    z = self.cross("up/features", near.features, batch)
    wire.send_labels(batch.real)
    far = self.back(server.net, z, near.depth, batch)
    theta, dz = far.pull(jnp.ones_like(far.output))
    dz = self.cross("down/feature_gradient", dz, batch)
    wire.record("down/statistics", 4.0 * batch.real.any())

    # Phase 3: fusion (eq. 3), of the encoder alone.
    w = self.client_weight(near.loss, far.output, near.depth)
    fused = {
      name: trees.add(trees.scale(w, local[name]), trees.scale(1 - w, grad))
      for name, grad in near.pull(dz, 0.0).items()
      if name in self.backbone.blocks
    }
    loss = w * near.loss + (1 - w) * far.output
    client = noted(client, loss, batch)
    client = self.optimizer.step(client, local | fused, near.stats)
    server = self.optimizer.at_server.step(server, theta, far.stats)
    return client, server, {"client": near.loss, "server": far.output}

  def alone(self, client, context, batches, key):
    (batch,) = batches
    near, local = self.phase_one(client.net, batch)
    self.cross("up/features", near.features, batch)  # in vain
    wire.send_labels(batch.real)
    client = noted(client, near.loss, batch)
    client = self.optimizer.step(client, local, near.stats)
    return client, {"client": near.loss}

  def phase_one(
    self, client: Net, batch: Batch
  ) -> tuple[Front, dict[str, Tree]]:
    """The forward pass, and the gradient of l_C, clipped in the encoder."""
    near = self.front(client, batch)
    grads = near.pull(jnp.zeros_like(near.features), 1.0)
    if self.clip is None:
      return near, grads
    encoder = {n: g for n, g in grads.items() if n in self.backbone.blocks}
    return near, grads | clipped(encoder, self.clip)

  def client_weight(
    self, client_loss: Array, server_loss: Array, depth: int
  ) -> Array:
    """W = d_i / L * (L_c + eps)^-1 / ((L_c + eps)^-1 + (L_s + eps)^-1)."""
    share = jnp.asarray(depth / self.backbone.length)
    sure = 1 / (client_loss + self.eps)
    certain = sure / (sure + 1 / (server_loss + self.eps))
    return {
      "full": share * certain,
      "no_loss": share,
      "no_depth": certain,
      "equal": jnp.asarray(0.5),
    }[self.fusion]

  def weight(self, client, samples):
    """d_i / (L_i + eps): w_i of eq. 6 without its denominators, see `merge`."""
    total, steps = client.memory
    sureness = 1 / (total / jnp.maximum(steps, 1) + self.eps)
    some = samples.shard.size > 0
    return jnp.where(some, self.depth(client.net) * sureness, 0.0)

  def send(self, client, server, context, samples, weight, key):
    wire.record("up/statistics", 4.0)  # the loss of eq. 6
    kept, shares = super().send(client, server, context, samples, weight, key)
    depth = self.depth(client.net)
    counts = jnp.where(weight > 0, 1.0, 0.0)
    shares["depth"] = counts * depth
    shares["sureness"] = weight / depth
    shares["holders"] = dict.fromkeys(self.backbone.names(0, depth), counts)
    return kept._replace(memory=jnp.bool_(True)), shares

  def merge(self, server, shares, clients, counted):
    """Theta <- (sum_i w_i theta_i + lam theta_s) / (sum_i w_i + lam), eq. 8.

    w_i = d_i / sum_j d_j * (L_i + eps)^-1 / sum_j (L_j + eps)^-1 (eq. 6), with
    sum_j over all participants, sum_i over the holders of a block. theta_s is
    the mean of the copies that features passed, else the value before.
    """
    # Weights of the shares lack the denominators: lam is multiplied by both.
    denominators = shares["depth"] * shares["sureness"]
    theta = nets.select(server.net, self.sends)
    params, stats = dict(theta.params), dict(theta.stats)
    for name, holders in shares["holders"].items():
      parts = [part[name] for part in shares["common"]]
      weight = parts[0].weight
      pull = self.lam * (weight if self.normalise else denominators)
      pull = jnp.where(holders > (1 if self.sole_source else 0), pull, 0.0)
      copy = params[name], stats[name]
      total = trees.add(tuple(x.total for x in parts), trees.scale(pull, copy))
      share = Share(total=total, weight=weight + pull)
      params[name], stats[name] = share.mean(copy)
    net = nets.join(Net(params=params, stats=stats), server.net)
    return server._replace(net=net), clients


def noted(client: Half, loss: Array, batch: Batch) -> Half:
  """Adds a step's loss to the client's memory, unless the batch is padding."""
  some = batch.real.any()
  total, steps = client.memory
  memory = Losses(total=total + jnp.where(some, loss, 0.0), steps=steps + some)
  return client._replace(memory=memory)
