"""Clients that keep a share of their own network: SplitGP eq. 9-10."""

from typing import Annotated

import jax.numpy as jnp
from jax import Array

from splitjax import trees
from splitjax.fields import PROBABILITY
from splitjax.methods import nets
from splitjax.methods.method import Method
from splitjax.parameters import pytree
from splitjax.types import Net, Tree


@pytree
class Blended(Method):
  """phi_n <- lam phi_n + (1 - lam) sum_i zeta_i phi_i (HARMONY eq. 2).

  A client blends when its round ends, with the mean of that round; one that
  sits out keeps its last blend, unless lam = 0: then all clients get the mean.
  The papers do not say whether a client that returns should first blend with
  the newer mean, since in them all take part; here it does not.

  Attributes:
    lam: share of its own blocks that a client keeps; None: clients keep
      nothing, and all start from the mean.
  """

  lam: Annotated[float | None, PROBABILITY] = None

  def keeps(self, path):
    return self.lam is not None or super().keeps(path)

  def sends(self, path):
    if self.lam is None:
      return super().sends(path)
    return not super().keeps(path)  # a client keeps and sends what it blends

  def model(self, client, server):
    blended = self.lam is not None  # when the last round ended
    return client.net if blended else super().model(client, server)

  def merge(self, server, shares, clients, counted):
    server, clients = super().merge(server, shares, clients, counted)
    if self.lam is None:
      return server, clients
    means = server.common, shares["common"]
    blends = tuple(
      cohort._replace(net=self.blend(cohort.net, *means, took_part))
      for cohort, took_part in zip(clients, counted, strict=True)
    )
    return server, blends

  def blend(self, kept: Net, common: Net, sums: Net, took_part: Array) -> Net:
    """Blends the clients [N, ...] of a cohort with the mean, block by block."""
    lam = self.lam
    assert lam is not None
    # lam = 1 keeps, and lam = 0 takes, even if the other side is not finite.
    gets = (took_part | (lam == 0)) & (lam < 1)

    def blended(tree: Tree, mean: Tree, share: nets.Share | None) -> Tree:
      if share is None:  # no holder participates
        return tree
      mean = trees.repeat(mean, len(took_part))
      mixed = trees.add(trees.scale(lam, tree), trees.scale(1 - lam, mean))
      mixed = trees.where(jnp.asarray(lam) == 0, mean, mixed)
      return trees.where(gets & (share.weight > 0), mixed, tree)

    return nets.map_blocks(blended, kept, common, sums)
