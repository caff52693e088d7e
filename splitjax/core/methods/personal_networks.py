"""Ditto and pFedMe: a personal network beside the one that is averaged.

The client's half is the network that travels; its memory holds the personal
network, which answers test samples.
"""

from typing import Annotated

import jax

from splitjax import trees
from splitjax.core.methods.whole import WholeNetwork
from splitjax.core.pytree import pytree
from splitjax.core.records import Net, Passes
from splitjax.fields import COUNT, NOT_NEGATIVE, POSITIVE
from splitjax.types import Row, UserError


@pytree
class PersonalNetwork(WholeNetwork):
  """Clients whose memory is their personal network."""

  @property
  def rows(self):
    return Row("", personal=True), Row(" global", personal=False)

  def first_client(self, net, size):
    return super().first_client(net, size)._replace(memory=net)

  def personalise(self, client, server, samples, key):
    return client.memory


@pytree
class Ditto(PersonalNetwork):
  """FedAvg's w, and a personal v_n that is pulled towards w.

  v_n minimises F_n(v) + lam / 2 |v - w|^2. A local step is v <- v - eta (grad
  F_n(v) + lam (v - w)), where w is the network that the client received. On the
  same batch the client's copy of w takes a step of FedAvg, as in the authors'
  code (Algorithm 1 with s = the local steps). v_n never travels. It does not
  change in rounds in which the client takes no part.

  Attributes:
    lam: lambda; 1 in the authors' scripts. Their code can also choose 0.1, 1 or
      2 for each client; a sweep of this option chooses one lam for all.

  References:
    Li et al., Ditto: Fair and Robust Federated Learning Through
    Personalization, ICML 2021, Algorithm 1.

  Example:
    >>> import splitjax
    >>> from splitjax.core.methods.optimizer import Optimizer
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> optimizer = Optimizer(lr=0.05)
    >>> method = Ditto(backbone=net, optimizer=optimizer, lam=0.5)
    >>> [row.suffix for row in method.rows]
    ['', ' global']
  """

  lam: Annotated[float, NOT_NEGATIVE] = 1.0

  @property
  def passes(self):
    return Passes(client=6.0)

  def receive(self, client, server, samples, round, key):
    personal = self.optimizer.start(client.memory)
    client, server, _ = super().receive(client, server, samples, round, key)
    return client._replace(memory=personal), server, client.net.params

  def step(self, client, server, context, batches, key):
    (batch,) = batches
    personal = client.memory
    grads, stats, at_personal = self.gradients(personal, context, batch)
    grads = trees.add(grads, pull(self.lam, personal.net.params, context))
    personal = self.optimizer.step(personal, grads, stats)
    client, server, losses = super().step(client, server, (), batches, key)
    losses = {"personal": at_personal["client"], **losses}
    return client._replace(memory=personal), server, losses

  def send(self, client, server, context, samples, weight, key):
    client = client._replace(memory=client.memory.net)
    return super().send(client, server, context, samples, weight, key)


@pytree
class PFedMe(PersonalNetwork):
  """w moves towards the minimiser theta_n of the Moreau envelope.

  In each local step, K steps of gradient descent from w on a batch B find
  theta ~ argmin f(theta; B) + lam / 2 |theta - w|^2. Then w <- w - eta lam (w -
  theta) with eta = optimizer.lr. For the server's step w <- (1 - beta) w + beta
  mean, set mean_optimizer.name=fedavgm with lr=beta and beta1=0; without a mean
  optimiser beta is 1. The last theta_n classifies test samples. The paper's
  step of w has no momentum, weight decay, clipping or schedule.

  Attributes:
    lam: lambda. Without momentum, a step moves w by the fraction eta lam of the
      way to theta, so choose eta lam below 1.
    inner_lr: learning rate of theta, which must be below 2 / lam to descend.
      The default is ours.
    inner_steps: K. The authors' code starts the K steps at the theta of the
      local step before. Here they start at w, so that no theta of another batch
      is involved.

  References:
    T. Dinh, Tran and Nguyen, Personalized Federated Learning with Moreau
    Envelopes, NeurIPS 2020, Algorithm 1.

  Example:
    >>> import splitjax
    >>> from splitjax.core.methods.optimizer import Optimizer
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> optimizer = Optimizer(lr=0.01, momentum=None)
    >>> PFedMe(backbone=net, optimizer=optimizer, lam=10.0).passes.client
    15.0
  """

  lam: Annotated[float, POSITIVE] = 15.0
  inner_lr: Annotated[float, POSITIVE] = 0.05
  inner_steps: Annotated[int, COUNT] = 5

  def __post_init__(self):
    super().__post_init__()
    rates = self.lam, self.inner_lr
    plain = all(isinstance(rate, float) for rate in rates)  # not traced
    if plain and self.lam * self.inner_lr >= 2:
      raise UserError(
        f"inner_lr={self.inner_lr:g} must be below 2 / lam = {2 / self.lam:g},"
        " where its descent turns to ascent"
      )

  @property
  def passes(self):
    return Passes(client=3.0 * self.inner_steps)

  def step(self, client, server, context, batches, key):
    (batch,) = batches
    w = client.net

    def descend(theta, _):
      half = client._replace(net=theta)
      grads, stats, losses = self.gradients(half, context, batch)
      grads = trees.add(grads, pull(self.lam, theta.params, w.params))
      params = jax.tree.map(
        lambda x, g: x - self.inner_lr * g, theta.params, grads
      )
      return Net(params=params, stats=w.stats), (losses, stats)

    theta, trace = jax.lax.scan(descend, w, length=self.inner_steps)
    losses, stats = trees.take(trace, -1)
    grads = pull(self.lam, w.params, theta.params)
    client = self.optimizer.step(client, grads, stats)
    theta = theta._replace(stats=w.stats | stats)
    return client._replace(memory=theta), server, losses


def pull(weight, params, anchor):
  """Computes the gradient of weight / 2 |w - anchor|^2, leaf by leaf."""
  return jax.tree.map(lambda w, a: weight * (w - a), params, anchor)
