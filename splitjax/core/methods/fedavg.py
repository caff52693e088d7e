"""FedAvg, and what differs from it in a line or two: Local, FedBN, FedProx."""

from typing import Annotated

import jax
import jax.numpy as jnp

from splitjax.core.methods.blend import Blended
from splitjax.core.methods.method import is_norm
from splitjax.core.methods.tune import FineTuning
from splitjax.core.methods.whole import WholeNetwork
from splitjax.core.pytree import pytree
from splitjax.fields import NOT_NEGATIVE
from splitjax.types import Row


@pytree
class FedAvg(FineTuning, Blended, WholeNetwork):
  """Local SGD, then the data-weighted mean (McMahan et al., AISTATS 2017).

  With lam it is SplitGP's baseline "personalized FL", which mixes own and
  global network (Mansour et al., Three Approaches for Personalization, 2020);
  SplitGP states no lam.

  Attributes:
    at_server: whether to also report a row " at the server". Its predictions
      are the same, but the network is deployed at the server, and clients send
      every sample there (SplitGP eq. 29 and Figure 5).

  Example:
    >>> import splitjax
    >>> from splitjax.core.methods.optimizer import Optimizer
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> optimizer = Optimizer(lr=0.05)
    >>> method = FedAvg(backbone=net, optimizer=optimizer, finetune=True)
    >>> [row.suffix for row in method.rows]
    ['', '+FT']
  """

  at_server: bool = False

  @property
  def rows(self):
    served = Row(" at the server", personal=False, at_server=True)
    return (*super().rows, served) if self.at_server else super().rows


@pytree
class Local(WholeNetwork):
  """Every client trains by itself; nothing is sent or averaged.

  A step that was too large is not corrected by a mean. So a network without
  normalisation may need `optimizer.clip` or a learning rate below the default
  (docs/methods.md has numbers).
  """

  def keeps(self, path):
    return True


@pytree
class FedBN(WholeNetwork):
  """Clients keep their batch normalisation and send none (Li et al., 2021).

  FedBN equals FedAvg in a config with batch_norm=local. As a method it can be
  compared, in one config, with methods that average normalisation. A config
  refuses it for a network without batch normalisation.

  References:
    Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch
    Normalization, ICLR 2021, Algorithm 1.
  """

  def keeps(self, path):
    return is_norm(path)


@pytree
class FedProx(FineTuning, WholeNetwork):
  """Clients descend F_n(w) + mu / 2 |w - w0|^2 (Li et al., MLSys 2020, eq. 2).

  w0 is the network that the client received. The paper tunes mu in 0.001..1 for
  each data set; the default is ours.
  """

  mu: Annotated[float, NOT_NEGATIVE] = 0.01

  def receive(self, client, server, samples, round, key):
    client, server, _ = super().receive(client, server, samples, round, key)
    return client, server, client.net.params

  def loss(self, params, client, context, batch):
    loss, reported = super().loss(params, client, context, batch)
    return loss + self.mu / 2 * squared_distance(params, context), reported


def squared_distance(a, b):
  """Computes |a - b|^2 over all leaves."""
  gaps = jax.tree.map(lambda x, y: jnp.sum((x - y) ** 2), a, b)
  return sum(jax.tree.leaves(gaps))
