"""Clients that keep a share of their own network: SplitGP eq. 9-10."""

from typing import Annotated, Any

import jax.numpy as jnp
from jax import Array

from splitjax import trees
from splitjax.core.methods import nets
from splitjax.core.methods.method import Method
from splitjax.core.pytree import pytree
from splitjax.core.records import Client, Net, Server, Share, Tree
from splitjax.fields import PROBABILITY


@pytree
class Blended(Method):
  """phi_n <- lam phi_n + (1 - lam) sum_i zeta_i phi_i (HARMONY eq. 2).

  A client blends when its round ends, with the mean of that round; one that
  sits out keeps its last blend, unless lam = 0: then all clients get the mean.
  The papers let all clients take part, so that they do not say whether a client
  that sat out should blend with the newer mean when it returns; here it does
  not.

  Attributes:
    lam: share of its own blocks that a client keeps; None: clients keep
      nothing, and all start from the mean.
  """

  lam: Annotated[float | None, PROBABILITY] = None

  def keeps(self, path: str) -> bool:
    """With a share of its own a client keeps all it has."""
    return self.lam is not None or super().keeps(path)

  def sends(self, path: str) -> bool:
    """A client sends what it blends: all but what is its own in any case."""
    if self.lam is None:
      return super().sends(path)
    return not super().keeps(path)

  def model(self, client: Client, server: Server) -> Net:
    """The client's blend, made at the end of its last round."""
    if self.lam is None:
      return super().model(client, server)
    return client.net

  def merge(
    self,
    server: Server,
    shares: dict[str, Any],
    clients: tuple[Client, ...],
    counted: tuple[Array, ...],
  ) -> tuple[Server, tuple[Client, ...]]:
    """Takes the mean, and blends it into the clients that `counted`."""
    server, clients = super().merge(server, shares, clients, counted)
    if self.lam is None:
      return server, clients
    sums = shares["common"]
    blends = tuple(
      client._replace(
        net=self.blend(client.net, server.common, sums, took_part)
      )
      for client, took_part in zip(clients, counted, strict=True)
    )
    return server, blends

  def blend(self, kept: Net, common: Net, sums: Net, took_part: Array) -> Net:
    """Blends the clients [N, ...] of a cohort with the mean, block by block."""
    lam = self.lam
    assert lam is not None
    # lam = 1 keeps, and lam = 0 takes, even if the other side is not finite.
    gets = (took_part | (lam == 0)) & (lam < 1)

    def blended(tree: Tree, mean: Tree, share: Share | None) -> Tree:
      if share is None:  # no holder participates
        return tree
      mean = trees.repeat(mean, len(took_part))
      mixed = trees.add(trees.scale(lam, tree), trees.scale(1 - lam, mean))
      mixed = trees.where(jnp.asarray(lam) == 0, mean, mixed)
      return trees.where(gets & (share.weight > 0), mixed, tree)

    return nets.map_blocks(blended, kept, common, sums)
