"""FedAvg, and what differs from it in a line or two: Local, FedBN, FedProx."""

from typing import Annotated

import jax
import jax.numpy as jnp

from splitjax.fields import NOT_NEGATIVE
from splitjax.methods.method import is_norm
from splitjax.methods.personal import Blended, FineTuning
from splitjax.methods.whole import WholeNetwork
from splitjax.parameters import pytree
from splitjax.types import Row


@pytree
class FedAvg(FineTuning, Blended, WholeNetwork):
  """Local SGD, then the data-weighted mean (McMahan et al., AISTATS 2017).

  With lam it is SplitGP's baseline "personalized FL" (Mansour et al., Three
  Approaches for Personalization, 2020); SplitGP states no lam.
  at_server adds a row " at the server": of the same network, but clients send
  every sample to it (SplitGP eq. 29, Figure 5).

  Example:
    >>> import splitjax
    >>> from splitjax.methods.optimizer import Optimizer
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> FedAvg(backbone=net, optimizer=Optimizer(lr=0.05)).answers
    ('client',)
  """

  at_server: bool = False

  @property
  def rows(self):
    served = Row(" at the server", personal=False, at_server=True)
    return (*super().rows, served) if self.at_server else super().rows


@pytree
class Local(WholeNetwork):
  """Every client trains by itself; nothing is sent or averaged.

  No mean corrects a step that was too large: without normalisation a network
  may need `optimizer.clip` or a lower learning rate (docs/methods.md).
  """

  def keeps(self, path):
    return True


@pytree
class FedBN(WholeNetwork):
  """Clients keep batch normalisation (Li et al., ICLR 2021, Algorithm 1).

  It is FedAvg with batch_norm=local, as a method that a config can compare with
  others that average normalisation; refused for a network without it.
  """

  def keeps(self, path):
    return is_norm(path)


@pytree
class FedProx(FineTuning, WholeNetwork):
  """Clients descend F_n(w) + mu / 2 |w - w0|^2 (Li et al., MLSys 2020, eq. 2).

  w0 is the network that the client received. The paper tunes mu in 0.001..1 for
  each data set; the default is ours. The reported loss is F_n alone, without
  the proximal term.
  """

  mu: Annotated[float, NOT_NEGATIVE] = 0.01

  def receive(self, client, server, samples, round, key):
    half, copy, _ = super().receive(client, server, samples, round, key)
    return half, copy, half.net.params

  def loss(self, params, half, context, batch):
    loss, reported = super().loss(params, half, context, batch)
    return loss + self.mu / 2 * squared_distance(params, context), reported


def squared_distance(a, b):
  """Computes |a - b|^2 over all leaves."""
  gaps = jax.tree.map(lambda x, y: jnp.sum((x - y) ** 2), a, b)
  return sum(jax.tree.leaves(gaps))
