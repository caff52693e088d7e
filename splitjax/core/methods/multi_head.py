"""MultiHead: part-1 is averaged; every task has a part-2 of its own."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.core import wire
from splitjax.core.methods.splitfed import SplitFed
from splitjax.core.pytree import pytree
from splitjax.models import inference

UNSURE = -1e9
"""The logits of a part-2 that was never trained: less sure than any other."""


@pytree
class MultiHead(SplitFed):
  """SplitFed v1 with part-2 averaged within each task only.

  The part-2 of task l, theta_l, becomes the mean of the copies of those
  participants whose task is l; part-1 is averaged over all participants. A
  client's task is a label: that of the client's group if the partition has
  groups, else the client's most frequent one. The server holds one part-2 per
  label, and remembers which were ever trained. A sample is answered by the most
  confident of these. In Hydra's appendix B clients train whole networks; here
  the server trains their copies of part-2. The updates are the same, but the
  messages differ.

  References:
    Chen et al., 2023, as Hydra's appendix B describes it: "the head x of client
    c is aggregated with the corresponding head from the other clients".

  Example:
    >>> from splitjax.core.sandbox import small
    >>> trial = small(MultiHead)
    >>> trial.state().server.net.params["head"]["Dense_0"]["kernel"].shape
    (4, 8, 4)
  """

  pick: ClassVar[bool] = True

  def first_client(self, net, size):
    return super().first_client(net, size)._replace(memory=jnp.int32(0))

  def first_server(self, full, held, size):
    server = super().first_server(full, held, size)
    return server._replace(
      net=trees.repeat(server.net, self.backbone.classes),
      memory=jnp.zeros(self.backbone.classes, bool),
    )

  def receive(self, client, server, samples, round, key):
    shard = samples.shard
    grouped = not isinstance(shard.group, tuple)
    task = shard.group if grouped else shard.counts.argmax()
    client = client._replace(memory=task.astype(jnp.int32))
    server = server._replace(net=self.part_two(client, server), memory=())
    client, server, _ = super().receive(client, server, samples, round, key)
    return client, server, client.memory

  def copies(self, server, context, weight):
    """The shares by task: all but those of the client's own weigh nothing."""
    weights = jnp.where(
      jnp.arange(self.backbone.classes) == context, weight, 0.0
    )
    shares = jax.vmap(super().copies, in_axes=(None, None, 0))
    return shares(server, context, weights)

  def merge(self, server, shares, clients, counted):
    server, clients = super().merge(server, shares, clients, counted)
    trained = shares["theta"].params["head"].weight > 0
    return server._replace(memory=server.memory | trained), clients

  def part_two(self, client, server):
    return trees.take(server.net, client.memory)

  def paths(self, clients, server, image):
    if self.local_norm:  # part-1 differs from client to client
      return super().paths(clients, server, image)
    body = self.model(trees.take(clients, 0), server)
    z, _ = inference.client_logits(self.backbone, body, image)
    z = wire.clipped(self.wire.features, z)

    def path(task):
      theta, trained = task
      logits = inference.server_logits(
        self.backbone, theta, z, self.depth(body)
      )
      return jnp.where(trained, logits.astype(float), UNSURE)

    return jax.lax.map(path, (server.net, server.memory))
