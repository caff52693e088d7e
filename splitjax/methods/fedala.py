"""FedALA: Adaptive Local Aggregation (Zhang et al., AAAI 2023)."""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from splitjax import losses
from splitjax.fields import COUNT, NOT_NEGATIVE, Bounds
from splitjax.methods import nets
from splitjax.methods.fedavg import WholeNetwork
from splitjax.parameters import pytree
from splitjax.types import Client, Row, Tree, UserError

WINDOW = 10
"""Epochs over which the loss must be steady to end the first learning of W."""


class Mixing(NamedTuple):
  """Memory of a client."""

  weights: dict[str, Tree]  #: W by block
  learned: Array  #: [] bool, whether it has learned W before


@pytree
class FedALA(WholeNetwork):
  """A client starts at own + (global - own) * W in its last blocks (eq. 4).

  W starts at 1. A client learns it by W <- clip(W - eta grad_w L * (global -
  own), 0, 1) on a share of its samples (eq. 5): after round 0 for the first
  time until the loss settles, then for an epoch in every round. As in the
  authors' code, what answers is the network after mixing and before training;
  to make it, the evaluation learns W as the next round does.
  """

  #: learning rate of W; with 0 this is FedAvg
  eta: Annotated[float, NOT_NEGATIVE] = 1.0
  #: s, the percentage of its samples, drawn anew whenever it learns W
  share: Annotated[float, Bounds(above=0, at_most=100)] = 80.0
  #: p, how many of the last parts are mixed. 1 mixes the head alone; with 0
  #: this is FedAvg.
  mixed_blocks: Annotated[int, NOT_NEGATIVE] = 1
  #: the loss has settled if more than WINDOW epochs have passed and its
  #: standard deviation over the last WINDOW is below this. The authors'
  #: repository says 0.01 "in our paper"; its code has 0.1 and takes the loss of
  #: an epoch's last batch. Here the loss is the mean of the epoch.
  threshold: float = 0.01
  #: limit of the first learning, whose loss may never settle; ours
  most_epochs: Annotated[int, COUNT] = 100

  def __post_init__(self):
    super().__post_init__()
    parts = len(self.backbone.names()) + 1
    if self.mixed_blocks > parts:
      raise UserError(f"mixed_blocks={self.mixed_blocks} must be in 0..{parts}")

  @property
  def rows(self):
    return (Row("", personal=True),)

  def keeps(self, path):
    return True

  def sends(self, path):
    return not super().keeps(path)

  def first_client(self, net, size):
    parts = (*self.backbone.names(), "head")
    mixed = parts[len(parts) - self.mixed_blocks :]
    ones = {n: jax.tree.map(jnp.ones_like, net.params[n]) for n in mixed}
    return Client(net=net, memory=Mixing(ones, learned=jnp.bool_(False)))

  def receive(self, client, server, samples, round, key):
    # In the first round all hold the same network: nothing can be learned.
    client = self.learned(client, server, samples, round > 0, key)
    return super().receive(client, server, samples, round, key)

  def model(self, client, server):
    trained, mean = client.net.params, nets.join(server.common, client.net)

    def mix(w, a, b):
      return a + (b - a) * w

    blocks = {
      name: jax.tree.map(mix, w, trained[name], mean.params[name])
      for name, w in client.memory.weights.items()
    }
    return mean._replace(params=mean.params | blocks)

  def personalise(self, client, server, samples, key):
    client = self.learned(client, server, samples, jnp.bool_(True), key)
    return self.model(client, server)

  def learned(self, client, server, samples, learns, key):
    """The client with the W that it learned, if it `learns` ([] bool)."""
    weights, learned = client.memory
    if not weights:
      return client
    # A share of the client's samples: the first of them in a random order.
    rows, real = samples.epoch(key)
    count = jnp.floor(samples.shard.size * self.share / 100 + 1e-6)
    real &= jnp.arange(real.size).reshape(real.shape) < jnp.maximum(count, 1)

    def loss(weights, batch):  # its gradient is grad_w L * (global - own)
      net = self.model(client._replace(memory=Mixing(weights, learned)), server)
      return self.local_loss(net.params, net, batch)

    def clipped_step(w, grad):
      return jnp.clip(w - self.eta * grad, 0.0, 1.0)

    def step(weights, drawn):
      batch = samples.for_draws(*drawn, key)
      value, grads = jax.value_and_grad(loss)(weights, batch)
      weights = jax.tree.map(clipped_step, weights, grads)
      return weights, (value, batch.real.any())

    def epoch(carry):
      weights, recent, t = carry
      weights, batch_losses = jax.lax.scan(step, weights, (rows, real))
      mean = losses.masked_mean(*batch_losses)
      return weights, jnp.roll(recent, 1).at[0].set(mean), t + 1

    epochs = jnp.where(learned, 1, self.most_epochs) * learns

    def unsettled(carry):
      _, recent, t = carry
      settled = (t > WINDOW) & (recent.std() < self.threshold)
      return (t < epochs) & ~settled

    start = weights, jnp.zeros(WINDOW), jnp.int32(0)
    weights = jax.lax.while_loop(unsettled, epoch, start)[0]
    return client._replace(memory=Mixing(weights, learned | learns))
