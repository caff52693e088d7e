"""The whole network on the client: FedAvg, FedAvg+FT, Local.

McMahan et al., Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017.
"""

from splitjax.methods import base
from splitjax.methods.optimizer import Optimizer
from splitjax.models.backbone import Backbone
from splitjax.types import Method, Row


def _whole_network(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  keep: float,
  finetune: bool,
  inner_lr: float,
  inner_steps: int,
  refresh_stats: bool,
  at_server: bool = False,
) -> Method:
  """Local SGD on the uncut network; `keep` is what aggregation leaves alone."""
  alone = base.by_itself(backbone, optimizer)
  served = (Row(" at the server", False, True),) if at_server else ()

  def step(client, server, batches, key):
    client, *told = alone(client, batches, key)
    return client, server, *told

  return base.method(
    backbone,
    optimizer,
    step,
    keep=keep,
    inner_lr=inner_lr,
    inner_steps=inner_steps,
    refresh_stats=refresh_stats,
    rows=(*base.rows(finetune), *served),
    answers=("client",),
    whole=True,
  )


def fedavg(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  lam: float = 0.0,
  finetune: bool = False,
  inner_lr: float = 0.01,
  inner_steps: int = 3,
  refresh_stats: bool = True,
  at_server: bool = False,
) -> Method:
  """FedAvg: local SGD on the whole network, then the data-weighted mean.

  Args:
    backbone: the network.
    optimizer: of the client.
    lam: share of itself that a client keeps when all are averaged. SplitGP's
      personalized FL mixes own and global networks (Mansour et al., Three
      Approaches for Personalization, 2020), with a share that is not named.
    finetune: also report a "+FT" row: a personalised copy of every client.
    inner_lr: alpha of that personalisation.
    inner_steps: M of that personalisation.
    refresh_stats: end it with batch-norm statistics of the client's own data.
    at_server: also report a row " at the server": the same answers where the
      network is deployed there and is sent every sample (SplitGP eq. 29 and
      Figure 5).
  """
  return _whole_network(
    backbone,
    optimizer,
    keep=lam,
    finetune=finetune,
    inner_lr=inner_lr,
    inner_steps=inner_steps,
    refresh_stats=refresh_stats,
    at_server=at_server,
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
