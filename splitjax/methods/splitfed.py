"""SplitFed and its relatives: no exit; labels go up; the server answers all.

The methods differ in who trains with which server, and in what is averaged:
SplitFed v1 and v2 (Thapa et al., AAAI 2022), v3 (Gawali et al., Comparison of
Privacy-Preserving Distributed Deep Learning Methods in Healthcare, 2021),
SplitNN (Vepakomma et al., Split Learning for Health, 2018), MultiHead (Chen et
al., 2023), MergeSFL (Liao et al., ICDE 2024).
"""

from typing import ClassVar, Literal

import jax
import jax.numpy as jnp

from splitjax import losses, trees, wire
from splitjax.fields import NotNegative
from splitjax.methods.split import Split
from splitjax.models import network
from splitjax.parameters import pytree
from splitjax.types import UserError

UNSURE = -1e9
"""The logits of a part-2 that was never trained: less sure than any other."""


@pytree
class SplitFed(Split):
  """The common step: both sides descend the server's loss alone.

  Participants have equal weight in a mean, as in Thapa's and Hydra's code.
  """

  mean: Literal["size", "uniform"] = "uniform"

  exits: ClassVar[bool] = False

  @property
  def answers(self):
    return ("server",)

  def step(self, half, copy, context, batches, key):
    (batch,) = batches
    return self.split_pass(half, copy, batch, 0.0)


@pytree
class SplitFedV1(SplitFed):
  """SplitFed v1: every client has its own copy of the server in a round.

  The means are weighted by size, as in the paper; in Hydra's experiments not.
  """

  mean: Literal["size", "uniform"] = "size"


@pytree
class SplitFedV2(SplitFed):
  """SplitFed v2: one server, which clients visit one after another.

  The round ends with the mean of all part-1. The config's `order` sets the
  length of a visit: one batch, as in Hydra, or a client's whole round, as in
  the authors' code. The server's momentum continues between visits.
  """

  #: weight of half the parameters' squared norm in the loss (Hydra, appendix
  #: H.5, which gives no value); None: none
  l2: NotNegative | None = None
  #: whether the norm is that of part-2 or of both parts; a client adds the
  #: gradient for part-1 itself
  l2_on: Literal["server", "both"] = "server"

  topology: ClassVar[str] = "sequential"

  def front(self, net, batch):
    front = super().front(net, batch)

    def pull(dz, dl):
      return self.with_l2(front.pull(dz, dl), net)

    return front._replace(pull=pull) if self.l2_on == "both" else front

  def back(self, net, z, depth, batch):
    back = super().back(net, z, depth, batch)

    def pull(dl):
      grads, dz = back.pull(dl)
      return self.with_l2(grads, net), dz

    return back._replace(pull=pull)

  def with_l2(self, grads, net):
    """Adds the gradient of l2 / 2 |w|^2 of the blocks that have one."""
    if self.l2 is None:
      return grads
    params = {name: net.params[name] for name in grads}
    return jax.tree.map(lambda g, w: g + self.l2 * w, grads, params)


@pytree
class SplitFedV3(SplitFed):
  """SplitFed v3: v1 without averaging part-1.

  Each part-1, followed by the common part-2, is a path; the most confident path
  answers a sample.
  """

  pick: ClassVar[bool] = True

  def keeps(self, path):
    return True


@pytree
class SplitNN(SplitFed):
  """SplitNN: clients hand part-1 from one to the next; nothing is averaged.

  Momentum is handed on with part-1. The loop prices it: `receive` and `send`
  price nothing.
  """

  topology: ClassVar[str] = "relay"

  def __post_init__(self):
    super().__post_init__()
    if self.local_norm:
      raise UserError(
        "passes one part-1 from client to client: batch_norm=local cannot be;"
        " choose average or group_norm"
      )

  def keeps(self, path):
    return False  # part-1 is handed on with its normalisation

  def receive(self, client, server, samples, round, key):
    with wire.ledger():  # that nobody adds up
      return super().receive(client, server, samples, round, key)

  def send(self, half, copy, context, samples, weight, key):
    with wire.ledger():
      return super().send(half, copy, context, samples, weight, key)


@pytree
class MultiHead(SplitFed):
  """SplitFed v1 with part-2 averaged within each task only (Chen et al., 2023).

  As Hydra's appendix B describes it, "the head x of client c is aggregated with
  the corresponding head from the other clients": the part-2 of task l becomes
  the mean of the copies of those participants whose task is l. A client's task
  is a label: that of its group if the partition has groups, else its most
  frequent one. Of the parts that were ever trained the most confident answers.
  In appendix B clients train whole networks, here the server their copies of
  part-2: the updates are the same, the messages differ.
  """

  pick: ClassVar[bool] = True

  def first_client(self, net, size):
    return super().first_client(net, size)._replace(memory=jnp.int32(0))

  def first_server(self, full, part, size):
    server = super().first_server(full, part, size)
    tasks = self.backbone.classes
    net = trees.repeat(server.net, tasks)
    return server._replace(net=net, memory=jnp.zeros(tasks, bool))

  def receive(self, client, server, samples, round, key):
    task = samples.shard.group
    if isinstance(task, tuple):  # no groups
      task = samples.shard.counts.argmax()
    client = client._replace(memory=task.astype(jnp.int32))
    server = server._replace(net=self.part_two(client, server), memory=())
    half, copy, _ = super().receive(client, server, samples, round, key)
    return half, copy, half.memory

  def copies(self, copy, context, weight):
    """The shares by task: all but those of the client's own weigh nothing."""
    weights = weight * jax.nn.one_hot(context, self.backbone.classes)
    shares = jax.vmap(super().copies, in_axes=(None, None, 0))
    return shares(copy, context, weights)

  def merge(self, server, shares, clients, counted):
    trained = shares["net"].params["head"].weight > 0
    return server._replace(memory=server.memory | trained), clients

  def part_two(self, client, server):
    return trees.take(server.net, client.memory)

  def paths(self, clients, server, image):
    if self.local_norm:  # part-1 differs from client to client
      return super().paths(clients, server, image)
    body = self.model(trees.take(clients, 0), server)
    z, _ = network.client_logits(self.backbone, body, image)
    z = wire.clipped(self.wire.features, z)
    depth = self.depth(body)

    def path(task):
      server_net, trained = task
      logits = network.server_logits(self.backbone, server_net, z, depth)
      return jnp.where(trained, logits.astype(float), UNSURE)

    return jax.lax.map(path, (server.net, server.memory))


@pytree
class MergeSFL(SplitFed):
  """Every local step takes the next batch of each client.

  The server descends the mean loss of the merged batches, sum_i sum_b l / sum_i
  b_i. Client i scales the gradient that it gets back by sum_j b_j / b_i; it is
  then the gradient of the client's own mean loss. All clients have equally
  large batches and are equally likely, as in the public code; the paper also
  adapts batch sizes to the clients' speeds and chooses clients by their labels.
  """

  #: whether a client's batch has B / N samples, for as many steps of the server
  #: as in SplitFed v2: Hydra's section 5 speaks of micro-batches, while its
  #: public code merges N batches of B samples
  micro_batches: bool = False

  topology: ClassVar[str] = "merged"

  def batch_size(self, clients, batch):
    return max(round(batch / clients), 1) if self.micro_batches else batch

  def step(self, half, copy, context, batches, key):
    """Takes the halves, batches and keys of n clients, stacked."""
    (batch,) = batches

    # Clients: forward passes. Non-finite features would spoil the common step,
    # so their samples count as padding.
    def forward(params):
      nets = half.net._replace(params=params)
      return jax.vmap(self.features)(nets, batch)

    z, pull, stats = jax.vjp(forward, half.net.params, has_aux=True)
    fine = batch.real & jnp.isfinite(z).all(axis=tuple(range(2, z.ndim)))
    z = trees.where(fine, z, jnp.zeros_like(z))
    sent = batch._replace(real=fine)
    z = self.cross("up/features", z, sent)
    wire.send_labels(fine)

    # Server: one pass on the merged features; the mean is over all samples.
    back = self.merged_back(copy.net, z, sent)
    share = fine.astype(back.output.dtype) / jnp.maximum(fine.sum(), 1)
    server_grads, dz = back.pull(share)
    dz = self.cross("down/feature_gradient", dz, sent)

    # Clients: the gradient, scaled to that of each client's own mean loss.
    factor = fine.sum() / jnp.maximum(fine.sum(axis=1), 1)
    dz = dz * factor.reshape(-1, *(1,) * (z.ndim - 1))
    (grads,) = pull(dz.astype(z.dtype))

    # Optimiser steps of all halves.
    half = jax.vmap(self.optimizer.step)(half, grads, stats)
    copy = self.optimizer.at_server.step(copy, server_grads, back.stats)
    mean_loss = jax.vmap(losses.masked_mean)(back.output, fine)
    return half, copy, {"server": mean_loss}

  def merged_back(self, net, z, batch):
    """Runs theta on features z [n, B, ...]; the output is the losses [n, B]."""
    backbone = self.backbone
    names = (*backbone.names(backbone.cuts[0]), "head")
    label = batch.label.ravel()
    real = batch.real.ravel()
    batch = batch._replace(label=label, real=real, key=batch.key[0])

    def forward(net, z):
      rows = z.reshape(-1, *z.shape[2:])
      logits, stats = network.run_batch(backbone, net, rows, names, batch)
      return backbone.loss(logits, label).reshape(z.shape[:2]), stats

    return self.differentiated(forward, net, z, names)
