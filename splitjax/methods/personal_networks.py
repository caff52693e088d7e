"""Ditto and pFedMe: a personal network beside the one that is averaged.

The client's half is the network that travels; its memory holds the personal
network, which answers test samples.
"""

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.methods import base, optimizers
from splitjax.methods.optimizers import Optimizer
from splitjax.methods.split_pass import front
from splitjax.models import backbones
from splitjax.models.backbones import Backbone
from splitjax.types import Half, Method, Row, Segment, Stage, Work

PERSONAL = base.FULL._replace(rows=(Row("", True), Row(" global", False)))
"""Traits of both methods: a result row of the personal networks, and a row of
the mean network."""


def ditto(
  backbone: Backbone, optimizer: Optimizer, *, lam: float = 1.0
) -> Method:
  """Ditto: FedAvg's w, and a personal v_n that is pulled towards w.

  v_n minimises F_n(v) + lam / 2 |v - w|^2. A local step is v <- v - eta (grad
  F_n(v) + lam (v - w)), where w is the network that the client received. On the
  same batch the client's copy of w takes a step of FedAvg, as in the authors'
  code (Algorithm 1 with s = the local steps). v_n never travels. It does not
  change in rounds in which the client takes no part.

  Args:
    backbone: the network.
    optimizer: optimiser of w and of v; the paper's is SGD without momentum.
    lam: lambda; 1 in the authors' scripts. Their code can also choose 0.1, 1 or
      2 for each client; a sweep of this option chooses one lam for all.

  Raises:
    UserError: lam is negative.

  References:
    Li et al., Ditto: Fair and Robust Federated Learning Through
    Personalization, ICML 2021, Algorithm 1.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> [row.suffix for row in ditto(net, sgd, lam=0.5).traits.rows]
    ['', ' global']
  """
  base.require("lam", lam, lam >= 0, "at least 0")
  shared = base.mean(backbone)
  receive = base.download(backbone, optimizer, shared)
  train = base.client_step(backbone, optimizer)
  tune = base.client_step(
    backbone,
    optimizer,
    add=lambda half: base.pull(lam, half.segment.params, half.memory),
  )

  def begin(client, server, samples, round, key):
    client, server, down = receive(client, server, samples, round, key)
    own = optimizers.begin_round(client.memory, optimizer, round)
    own = own._replace(memory=client.segment.params)  # w as it arrived
    return client._replace(memory=own), server, down

  def step(client, server, batches, key):
    own, losses, _ = tune(client.memory, batches, key)
    client, common, _ = train(client, batches, key)
    losses = {"personal": losses["client"], **common}
    return client._replace(memory=own), server, losses, {}

  def leave(client, server, samples, key):
    own = Half(client.memory.segment)
    return client._replace(memory=own), server, {}

  def first(full, fleet):
    return Half(backbones.prefix(backbone, full, backbone.length))

  made = base.method(
    backbone,
    optimizer,
    (Stage(step, work=Work(client=6.0)),),
    shared,
    traits=PERSONAL,
    begin=begin,
    finish=base.upload(backbone, shared, before=leave),
    client_memory=first,
  )
  return made._replace(
    personalise=lambda client, server, samples, key: client._replace(
      segment=client.memory.segment
    )
  )


def pfedme(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  lam: float = 15.0,
  inner_lr: float = 0.05,
  inner_steps: int = 5,
) -> Method:
  """pFedMe: w moves towards the minimiser theta_n of the Moreau envelope.

  In each local step, K steps of gradient descent from w on a batch B find
  theta ~ argmin f(theta; B) + lam / 2 |theta - w|^2. Then w <- w - eta lam (w -
  theta) with eta = optimizer.lr. For the server's step w <- (1 - beta) w + beta
  mean, set mean_optimizer.name=fedavgm with lr=beta and beta1=0; without a mean
  optimiser beta is 1. The last theta_n classifies test samples.

  Args:
    backbone: the network.
    optimizer: optimiser of w, with its momentum, weight decay, clipping and
      schedule; the paper's step has none of them.
    lam: lambda. Without momentum, a step moves w by the fraction eta lam of the
      way to theta, so choose eta lam below 1.
    inner_lr: learning rate of theta, which must be below 2 / lam to descend.
      The default is ours.
    inner_steps: K. The authors' code starts the K steps at the theta of the
      local step before. Here they start at w, so that no theta of another batch
      is involved.

  Raises:
    UserError: an option is out of range, or lam inner_lr is not below 2.

  References:
    T. Dinh, Tran and Nguyen, Personalized Federated Learning with Moreau
    Envelopes, NeurIPS 2020, Algorithm 1.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.01, momentum=0.0)
    >>> pfedme(net, sgd, lam=10.0).stages[0].work.client
    15.0
  """
  base.require("lam", lam, lam > 0, "above 0")
  base.require("inner_lr", inner_lr, inner_lr > 0, "above 0")
  base.require("inner_steps", inner_steps, inner_steps >= 1, "at least 1")
  must = f"below 2 / lam = {2 / lam:g}, where its descent turns to ascent"
  base.require("inner_lr", inner_lr, lam * inner_lr < 2, must)
  shared = base.mean(backbone)

  def step(client, server, batches, key):
    del key
    w = client.segment

    def inner(theta, _):
      near = front(backbone, theta, batches[0])
      grads = near.pull(jnp.zeros_like(near.features), jnp.ones(()))
      grads = trees.add(grads, base.pull(lam, theta.params, w.params))
      params = jax.tree.map(lambda x, g: x - inner_lr * g, theta.params, grads)
      return Segment(params, w.stats), (near.loss, near.stats)

    theta, (losses, stats) = jax.lax.scan(inner, w, length=inner_steps)
    stats = trees.take(stats, -1)
    toward = base.pull(lam, w.params, theta.params)
    client = optimizers.descend(client, toward, stats, optimizer)
    own = Segment(theta.params, {**w.stats, **stats})
    return client._replace(memory=own), server, {"client": losses[-1]}, {}

  made = base.method(
    backbone,
    optimizer,
    (Stage(step, work=Work(client=3.0 * inner_steps)),),
    shared,
    traits=PERSONAL,
    client_memory=lambda full, fleet: backbones.prefix(
      backbone, full, backbone.length
    ),
  )
  return made._replace(
    personalise=lambda client, server, samples, key: client._replace(
      segment=client.memory
    )
  )
