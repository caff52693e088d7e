"""FedALA: clients mix the network that they receive with their own.

Clients hold the whole network.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import losses
from splitjax.methods import aggregations, base
from splitjax.methods.optimizers import Optimizer
from splitjax.methods.split_pass import local_loss
from splitjax.models.backbones import Backbone
from splitjax.models.block import own_norm
from splitjax.types import Aggregation, Array, Half, Method, Row, Segment, Tree

WINDOW = 10
"""Epochs over which the loss must be steady to end the first learning of W."""


class Mixing(NamedTuple):
  """Memory of a FedALA client.

  Attributes:
    weights: block name -> W, in the shapes of the block's parameters.
    learned: [] bool, whether the client has learned W before.
  """

  weights: dict[str, Tree]
  learned: Array


def fedala(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  eta: float = 1.0,
  share: float = 80.0,
  mixed_blocks: int = 1,
  threshold: float = 0.01,
  most_epochs: int = 100,
) -> Method:
  """FedALA: clients mix the received network into their own elementwise.

  The mixed network has w_i = own + (global - own) * W_i in its last blocks and
  the global parameters in the others (eq. 4). W starts at 1, and a client
  learns it by steps W <- clip(W - eta grad_w L * (global - own), 0, 1) on a
  share of its samples (eq. 5). In round 0 it learns nothing. When it takes part
  for the first time after that, it learns W until the loss settles; in every
  later round it learns W for one epoch. Test samples are answered, as in the
  authors' code, by the network after mixing and before local training; to make
  it, the evaluation learns W as the next round does.

  Args:
    backbone: the network.
    optimizer: the client's optimiser.
    eta: learning rate of W. With 0 this is FedAvg.
    share: s, the percentage of its samples that a client learns W on. The
      client draws these samples anew whenever it learns W.
    mixed_blocks: p, how many of the last parts are mixed. 1 mixes the head
      alone; with 0 this is FedAvg.
    threshold: the loss has settled if more than ten epochs have passed and its
      standard deviation over the last ten is below this. The authors'
      repository says 0.01 "in our paper"; its code has 0.1 and takes the loss
      of an epoch's last batch. Here the loss is the mean of the epoch.
    most_epochs: limit on the epochs of the first learning, because its loss may
      never settle. The limit is ours.

  Raises:
    UserError: an option is out of range.

  References:
    Zhang et al., FedALA: Adaptive Local Aggregation for Personalized Federated
    Learning, AAAI 2023. Defaults of eta, s and p are the paper's.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = fedala(net, sgd, mixed_blocks=2)
    >>> [row.personal for row in method.traits.rows]
    [True]
  """
  parts = (*backbone.names(), "head")
  base.require("eta", eta, eta >= 0, "at least 0")
  base.require("share", share, 0 < share <= 100, "in (0, 100], per cent")
  base.require(
    "mixed_blocks",
    mixed_blocks,
    0 <= mixed_blocks <= len(parts),
    f"in 0..{len(parts)}",
  )
  base.require("most_epochs", most_epochs, most_epochs >= 1, "at least 1")
  names = parts[len(parts) - mixed_blocks :]
  aggregation = own_and_mean(backbone)

  def learn(client: Half, shared: Segment, samples, key, epochs):
    """Returns W after at most `epochs` epochs of learning."""
    own = client.segment.params
    rows, real = samples.epoch(key)
    # The first of the client's samples in a random order.
    taken = jnp.floor(samples.shard.size * share / 100 + 1e-6)
    place = jnp.cumsum(real.ravel()).reshape(real.shape)
    real &= place <= jnp.maximum(taken, 1)

    def batch_step(weights, inputs):
      batch = samples.for_draws(*inputs, key)
      params = mix(own, shared.params, weights)
      loss, grads = jax.value_and_grad(local_loss, argnums=1)(
        backbone, params, shared.stats, batch
      )
      weights = jax.tree.map(
        lambda w, g, a, b: jnp.clip(w - eta * g * (b - a), 0.0, 1.0),
        weights,
        {name: grads[name] for name in names},
        {name: own[name] for name in names},
        {name: shared.params[name] for name in names},
      )
      return weights, (loss, batch.real.any())

    def epoch(carry):
      weights, recent, t = carry
      weights, (loss, on) = jax.lax.scan(batch_step, weights, (rows, real))
      mean = losses.masked_mean(loss, on)
      return weights, jnp.roll(recent, 1).at[0].set(mean), t + 1

    def unsettled(carry):
      _, recent, t = carry
      settled = (t > WINDOW) & (recent.std() < threshold)
      return (t < epochs) & ~settled

    start = client.memory.weights, jnp.zeros(WINDOW), jnp.int32(0)
    return jax.lax.while_loop(unsettled, epoch, start)[0]

  def mixed(client: Half, shared: Segment, samples, key, some) -> Half:
    """Mixes `shared` into the client.

    If the scalar `some` is true, the client first learns W on `samples`.
    """
    weights, learned = client.memory
    epochs = jnp.where(some, jnp.where(learned, 1, most_epochs), 0)
    if names and eta:
      weights = learn(client, shared, samples, key, epochs)
    segment = Segment(
      mix(client.segment.params, shared.params, weights), shared.stats
    )
    return client._replace(
      segment=own_norm(backbone.local_norm, segment, client.segment),
      memory=Mixing(weights, learned | some),
    )

  def arrive(client, server, samples, round, key):
    # In the first round all hold the same network: nothing can be learned.
    return mixed(client, server.memory, samples, key, round > 0), server, {}

  def personalise(client, server, samples, key):
    return mixed(client, server.memory, samples, key, jnp.bool_(True))

  made = base.method(
    backbone,
    optimizer,
    (base.client_stage(backbone, optimizer),),
    aggregation,
    traits=base.FULL._replace(rows=(Row("", True),)),
    begin=base.download(backbone, optimizer, aggregation, before=arrive),
    client_memory=lambda full, fleet: Mixing(
      jax.tree.map(jnp.ones_like, {name: full.params[name] for name in names}),
      jnp.bool_(False),
    ),
    server_memory=lambda full, fleet: base.whole_network(backbone, full),
  )
  return made._replace(personalise=personalise)


def mix(own: dict, shared: dict, weights: dict) -> dict[str, Tree]:
  """Returns own + (shared - own) * W; blocks without a W come from `shared`."""
  mixed = {
    name: jax.tree.map(
      lambda a, b, w: a + (b - a) * w, own[name], shared[name], w
    )
    for name, w in weights.items()
  }
  return {**shared, **mixed}


def own_and_mean(backbone: Backbone) -> Aggregation:
  """Builds an aggregation that stores the mean network in the server's memory.

  Clients keep their own networks.
  """
  plain = base.mean(backbone)

  def server(server, clients, active, sums):
    del clients, active
    old = server.memory
    new = {
      name: aggregations.mean(
        total, sums.client_weight[name], (old.params[name], old.stats[name])
      )
      for name, total in sums.client.items()
    }
    segment = Segment(
      {name: block[0] for name, block in new.items()},
      {name: block[1] for name, block in new.items()},
    )
    return server._replace(memory=segment)

  return Aggregation(plain.contribute, server, aggregations.same_clients)
