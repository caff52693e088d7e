"""The whole network on the client: FedAvg, FedAvg+FT, Local.

McMahan et al., Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017.
"""

import jax
import jax.numpy as jnp

from splitjax.backbone import Backbone
from splitjax.methods import base, outer
from splitjax.methods.outer import Optimizer
from splitjax.protocol import front
from splitjax.types import Method


def _whole_network(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  keep: float,
  finetune: bool,
  inner_lr: float,
  inner_steps: int,
  refresh_stats: bool,
) -> Method:
  """Local SGD on the uncut network; `keep` is what aggregation leaves alone."""

  def step(client, server, batches, key):
    del key
    fore = front(backbone, client.segment, batches[0])
    no_server = jax.tree.map(jnp.zeros_like, fore.features)
    grads = fore.pull(no_server, jnp.float32(1))
    client = outer.descend(client, grads, fore.stats, optimizer)
    return client, server, {"client": fore.loss}, {}

  return base.method(
    backbone,
    optimizer,
    step,
    keep=keep,
    inner_lr=inner_lr,
    inner_steps=inner_steps,
    refresh_stats=refresh_stats,
    rows=base.rows(finetune),
    answers=("client",),
    whole=True,
  )


def fedavg(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  finetune: bool = False,
  inner_lr: float = 0.01,
  inner_steps: int = 3,
  refresh_stats: bool = True,
) -> Method:
  """FedAvg: local SGD on the whole network, then the data-weighted mean.

  Args:
    backbone: the network.
    optimizer: of the client.
    finetune: also report a "+FT" row: a personalised copy of every client.
    inner_lr: alpha of that personalisation.
    inner_steps: M of that personalisation.
    refresh_stats: renew batch-norm statistics after it.
  """
  return _whole_network(
    backbone,
    optimizer,
    keep=0.0,
    finetune=finetune,
    inner_lr=inner_lr,
    inner_steps=inner_steps,
    refresh_stats=refresh_stats,
  )


def local(backbone: Backbone, optimizer: Optimizer) -> Method:
  """Local: every client for itself; nothing is sent, nothing averaged."""
  return _whole_network(
    backbone,
    optimizer,
    keep=1.0,
    finetune=False,
    inner_lr=0.0,
    inner_steps=0,
    refresh_stats=False,
  )
