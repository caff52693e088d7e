"""SplitGP: a personalised client exit and a general server; multi-exit SFL.

Han et al., SplitGP: Achieving Both Generalization and Personalization in
Federated Learning, INFOCOM 2023.
"""

from splitjax.methods import base
from splitjax.methods.aggregations import ServerMean
from splitjax.methods.finetuning import Tuning
from splitjax.methods.optimizers import Optimizer
from splitjax.methods.split_pass import split_step
from splitjax.models.backbones import Backbone
from splitjax.types import Method, Stage, Traits


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
  server_mean: ServerMean = "touched",
) -> Method:
  """SplitGP: SGD on gamma l_C + (1 - gamma) l_S, then blended prefixes.

  Multi-exit SFL is SplitGP with lam = 0: every client gets the mean.

  Args:
    backbone: the network.
    optimizer: optimiser of both halves.
    gamma: weight of the client's loss (eq. 5).
    lam: share of its own phi and h that a client keeps (eq. 9-10); theta is
      always averaged. The paper reports 0.2 and 0.9.
    finetune: whether to also report personalised clients, in a "+FT" row.
    inner_lr: alpha, the learning rate of personalisation.
    inner_steps: M, the steps of personalisation.
    refresh_stats: whether personalisation ends by recomputing batch-norm
      statistics on the client's own data.
    server_mean: which copies of a block of theta are averaged, see `harmony`.

  References:
    SplitGP algorithm 1; HARMONY eq. 1-2 for the shared skeleton.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = splitgp(net, sgd, lam=0.9, finetune=True)
    >>> [row.suffix for row in method.traits.rows]
    ['', '+FT']
  """
  base.require("gamma", gamma, 0 <= gamma <= 1, "in 0..1")
  stage = Stage(
    split_step(backbone, optimizer, gamma=gamma),
    alone=base.client_step(backbone, optimizer),
  )
  return base.method(
    backbone,
    optimizer,
    (stage,),
    base.mean(backbone, lam, server_mean=server_mean),
    traits=Traits(rows=base.rows(finetune)),
    tuning=Tuning(inner_lr, inner_steps, refresh_stats),
  )
