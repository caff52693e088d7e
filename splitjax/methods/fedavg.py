"""The whole network on the client: FedAvg, FedAvg+FT, Local.

McMahan et al., Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017.
"""

from splitjax.methods import base
from splitjax.methods.optimizer import Optimizer
from splitjax.models.backbone import Backbone
from splitjax.types import Method, Row


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
    lam: share of its own network that a client keeps. SplitGP's baseline
      "personalized FL" mixes the client's and the global network so (Mansour et
      al., Three Approaches for Personalization, 2020) and does not state lam.
    finetune: also report a "+FT" row: a personalised copy of every client.
    inner_lr: alpha, the learning rate of personalisation.
    inner_steps: M, the steps of personalisation.
    refresh_stats: end personalisation with batch-norm statistics of the
      client's own data.
    at_server: also report a row " at the server": the same predictions with the
      network deployed at the server, to which clients send every sample
      (SplitGP eq. 29 and Figure 5).
  """
  client_step = base.client_step(backbone, optimizer)
  served = (Row(" at the server", False, True),) if at_server else ()

  def step(client, server, batches, key):
    client, losses, ledger = client_step(client, batches, key)
    return client, server, losses, ledger

  return base.method(
    backbone,
    optimizer,
    step,
    keep=lam,
    inner_lr=inner_lr,
    inner_steps=inner_steps,
    refresh_stats=refresh_stats,
    rows=(*base.rows(finetune), *served),
    answers=("client",),
    whole=True,
  )


def local(backbone: Backbone, optimizer: Optimizer) -> Method:
  """Local: every client trains by itself; nothing is sent or averaged."""
  return fedavg(
    backbone, optimizer, lam=1.0, inner_steps=0, refresh_stats=False
  )
