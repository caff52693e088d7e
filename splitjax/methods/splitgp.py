"""SplitGP: a personalised client exit and a general server; multi-exit SFL.

Han et al., SplitGP: Achieving Both Generalization and Personalization in
Federated Learning, INFOCOM 2023.
"""

from splitjax.methods import base
from splitjax.methods import optimizer as optimizers
from splitjax.methods.optimizer import Optimizer
from splitjax.methods.split_pass import split_pass
from splitjax.models.backbone import Backbone
from splitjax.types import Method
from splitjax.wire import WireDtype


def splitgp(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  gamma: float = 0.5,
  lam: float = 0.2,
  finetune: bool = False,
  inner_lr: float = 0.01,
  inner_steps: int = 3,
  refresh_stats: bool = True,
  wire_dtype: WireDtype = "float32",
) -> Method:
  """SplitGP: one SGD step on gamma l_C + (1 - gamma) l_S, blended prefixes.

  Args:
    backbone: the network.
    optimizer: of both halves.
    gamma: weight of the client's loss (eq. 5).
    lam: share of itself that a client keeps (eq. 9-10), phi and h, never
      theta. The paper reports 0.2 and 0.9.
    finetune: also report a "+FT" row: a personalised copy of every client.
    inner_lr: alpha of that personalisation.
    inner_steps: M of that personalisation.
    refresh_stats: end it with batch-norm statistics of the client's own data.
    wire_dtype: width of the features on the wire.

  Multi-exit SFL is this with lam = 0: every client gets the mean.

  References:
    SplitGP algorithm 1; HARMONY eq. 1-2 for the shared skeleton.
  """
  base.check("gamma", gamma, 0 <= gamma <= 1, "in 0..1")

  def step(client, server, batches, key):
    del key
    p = split_pass(
      backbone,
      client.segment,
      server.segment,
      batches[0],
      gamma=gamma,
      wire_dtype=wire_dtype,
    )
    client = optimizers.descend(client, p.client, p.client_stats, optimizer)
    server = optimizers.descend(server, p.server, p.server_stats, optimizer)
    return client, server, p.losses, p.ledger

  return base.method(
    backbone,
    optimizer,
    step,
    keep=lam,
    inner_lr=inner_lr,
    inner_steps=inner_steps,
    refresh_stats=refresh_stats,
    rows=base.rows(finetune),
    alone=base.by_itself(backbone, optimizer),
  )
