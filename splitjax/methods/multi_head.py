"""MultiHead: part-1 is averaged; every task has a part-2 of its own."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.methods import nets
from splitjax.methods.splitfed import SplitFed
from splitjax.models import network
from splitjax.parameters import pytree

UNSURE = -1e9
"""The logits of a part-2 that was never trained: less sure than any other."""


@pytree
class MultiHead(SplitFed):
  """SplitFed v1 with part-2 averaged within each task only (Chen et al., 2023).

  As Hydra's appendix B describes it, "the head x of client c is aggregated with
  the corresponding head from the other clients": the part-2 of task l becomes
  the mean of the copies of those participants whose task is l. A client's task
  is a label: that of its group if the partition has groups, else its most
  frequent one. The server remembers which of the labels' parts were ever
  trained; the most confident of these answers a sample. In appendix B clients
  train whole networks; here the server trains their copies of part-2. The
  updates are the same, but the messages differ.
  """

  pick: ClassVar[bool] = True

  def first_client(self, net, size):
    return super().first_client(net, size)._replace(memory=jnp.int32(0))

  def first_server(self, full, held, size):
    server = super().first_server(full, held, size)
    tasks = self.backbone.classes
    net = trees.repeat(server.net, tasks)
    return server._replace(net=net, memory=jnp.zeros(tasks, bool))

  def receive(self, client, server, samples, round, key):
    group, counts = samples.shard.group, samples.shard.counts
    task = counts.argmax() if isinstance(group, tuple) else group
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
    trained = shares[nets.THETA].params["head"].weight > 0
    return server._replace(memory=server.memory | trained), clients

  def part_two(self, client, server):
    return trees.take(server.net, client.memory)

  def paths(self, clients, server, image):
    if self.local_norm:  # part-1 differs from client to client
      return super().paths(clients, server, image)
    body = self.model(trees.take(clients, 0), server)
    z, _ = network.client_logits(self.backbone, body, image)
    z, depth = wire.clipped(self.wire.features, z), self.depth(body)

    def path(task):
      theta, trained = task
      logits = network.server_logits(self.backbone, theta, z, depth)
      return jnp.where(trained, logits.astype(float), UNSURE)

    return jax.lax.map(path, (server.net, server.memory))
