"""Clients with the whole network: FedAvg, FedProx, FedBN, Local.

FedAvg and FedProx may also fine-tune at the end (rows with "+FT").

McMahan et al., Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017.
"""

import dataclasses

from splitjax.methods import base
from splitjax.methods.finetuning import Tuning
from splitjax.methods.optimizers import Optimizer
from splitjax.models.backbones import Backbone
from splitjax.types import Half, Method, Row


def fedavg(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  lam: float = 0.0,
  finetune: bool = False,
  inner_lr: float = 0.01,
  inner_steps: int = 3,
  tune_epochs: int = 0,
  refresh_stats: bool = True,
  at_server: bool = False,
) -> Method:
  """FedAvg: local SGD on the whole network, then the data-weighted mean.

  Args:
    backbone: the network.
    optimizer: the client's optimiser.
    lam: share of its own network that a client keeps. SplitGP's baseline
      "personalized FL" mixes own and global network in this way (Mansour et
      al., Three Approaches for Personalization, 2020); SplitGP states no lam.
    finetune: whether to also report personalised clients, in a "+FT" row.
    inner_lr: alpha, the learning rate of personalisation.
    inner_steps: M, the steps of personalisation.
    refresh_stats: whether personalisation ends by recomputing batch-norm
      statistics on the client's own data.
    tune_epochs: E, epochs of personalisation instead of M steps; 0: M steps.
    at_server: whether to also report a row " at the server". Its predictions
      are the same, but the network is deployed at the server, and clients send
      every sample there (SplitGP eq. 29 and Figure 5).

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = fedavg(net, sgd, finetune=True)
    >>> method.traits.depth, [row.suffix for row in method.traits.rows]
    ('full', ['', '+FT'])
  """
  served = (Row(" at the server", False, True),) if at_server else ()

  return base.method(
    backbone,
    optimizer,
    (base.client_stage(backbone, optimizer),),
    base.mean(backbone, lam),
    traits=base.FULL._replace(rows=(*base.rows(finetune), *served)),
    tuning=Tuning(inner_lr, inner_steps, refresh_stats, epochs=tune_epochs),
  )


def local(backbone: Backbone, optimizer: Optimizer) -> Method:
  """Local: every client trains by itself; nothing is sent or averaged.

  Since nothing is averaged, a step that was too large is not corrected. So a
  network without normalisation may need `optimizer.clip` or a learning rate
  below the default (docs/methods.md has numbers).

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = local(net, sgd)
    >>> method.traits.depth, method.traits.answers
    ('full', ('client',))
  """
  return fedavg(
    backbone, optimizer, lam=1.0, inner_steps=0, refresh_stats=False
  )


def fedbn(backbone: Backbone, optimizer: Optimizer) -> Method:
  """FedBN: FedAvg whose clients keep their batch normalisation and send none.

  FedBN equals `fedavg` in a config with batch_norm=local. As a method it can be
  compared, in one config, with methods that average normalisation. A config
  refuses FedBN for a network without batch normalisation.

  References:
    Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch
    Normalization, ICLR 2021, Algorithm 1.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10, batch_norm=True)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = fedbn(net, sgd)
    >>> method.traits.depth, method.aggregation.alike
    ('full', False)
  """
  return fedavg(dataclasses.replace(backbone, local_norm=True), optimizer)


def fedprox(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  mu: float = 0.01,
  finetune: bool = False,
  inner_lr: float = 0.01,
  inner_steps: int = 3,
  tune_epochs: int = 0,
  refresh_stats: bool = True,
) -> Method:
  """FedProx: local SGD on F_n(w) + mu / 2 |w - w0|^2, then FedAvg's mean.

  Args:
    backbone: the network.
    optimizer: the client's optimiser.
    mu: weight of the proximal term. w0 is the network that the client received.
      The paper tunes mu in 0.001..1 for each data set; the default is ours.
    finetune: whether to also report a "+FT" row, see `fedavg`.
    inner_lr: alpha, the learning rate of personalisation.
    inner_steps: M, the steps of personalisation.
    tune_epochs: E, epochs of personalisation instead of M steps; 0: M steps.
    refresh_stats: whether personalisation ends by recomputing batch-norm
      statistics on the client's own data.

  References:
    Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020,
    eq. 2.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = fedprox(net, sgd, mu=0.1)
    >>> method.traits.depth
    'full'
  """
  base.require("mu", mu, mu >= 0, "at least 0")
  aggregation = base.mean(backbone)
  receive = base.download(backbone, optimizer, aggregation)

  def begin(client, server, samples, round, key):
    client, server, down = receive(client, server, samples, round, key)
    return client._replace(memory=client.segment.params), server, down

  def leave(client, server, samples, key):
    return client._replace(memory=()), server, {}

  def proximal(client: Half):
    return base.pull(mu, client.segment.params, client.memory)

  return base.method(
    backbone,
    optimizer,
    (base.client_stage(backbone, optimizer, add=proximal),),
    aggregation,
    traits=base.FULL._replace(rows=base.rows(finetune)),
    tuning=Tuning(inner_lr, inner_steps, refresh_stats, epochs=tune_epochs),
    begin=begin,
    finish=base.upload(backbone, aggregation, before=leave),
  )
