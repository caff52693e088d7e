"""Shared representation, personal head: FedPer, FedRep, FedBABU.

Clients hold the whole network. The body (theta) is averaged, the head (phi_i)
is the client's own.
"""

from typing import Literal

from splitjax.methods import base
from splitjax.methods.finetuning import Tuning
from splitjax.methods.optimizers import Optimizer
from splitjax.models.backbones import Backbone
from splitjax.types import Method, Row


def fedper(
  backbone: Backbone, optimizer: Optimizer, *, personal_blocks: int = 1
) -> Method:
  """FedPer: joint SGD on body and head; the body alone is averaged.

  Args:
    backbone: the network.
    optimizer: the client's optimiser.
    personal_blocks: K_P, how many of the last parts are personal: 1 for the
      head, 2 for the head and the last block. With 0 this is FedAvg; if all
      parts are personal it is Local.

  References:
    Arivazhagan et al., Federated Learning with Personalization Layers, 2019.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = fedper(net, sgd, personal_blocks=2)
    >>> method.traits.depth
    'full'
  """
  parts = (*backbone.names(), "head")
  base.require(
    "personal_blocks",
    personal_blocks,
    0 <= personal_blocks <= len(parts),
    f"in 0..{len(parts)}",
  )
  own = set(parts[len(parts) - personal_blocks :])
  return base.method(
    backbone,
    optimizer,
    (base.client_stage(backbone, optimizer),),
    base.mean(backbone, lambda name: float(name in own)),
    traits=base.FULL,
  )


def fedrep(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  head_epochs: int = 10,
  final_epochs: int = 0,
  inner_lr: float = 0.01,
) -> Method:
  """FedRep: trains the head while the body is frozen, then the body alone.

  The body's epochs are the config's local_epochs; running statistics of a block
  are written while the block moves.

  Args:
    backbone: the network.
    optimizer: the client's optimiser.
    head_epochs: tau, epochs of the head in each round. The authors' code has 10
      epochs of the head and 1 of the body.
    final_epochs: epochs for which every client trains its head after the last
      round, for a "+FT" row; 10 in the authors' code. 0: no such row.
    inner_lr: learning rate of the final epochs.

  References:
    Collins et al., Exploiting Shared Representations for Personalized Federated
    Learning, ICML 2021, Algorithm 1.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = fedrep(net, sgd, head_epochs=5)
    >>> len(method.stages)  # the head, then the body
    2
  """
  base.require("head_epochs", head_epochs, head_epochs >= 1, "at least 1")
  base.require("final_epochs", final_epochs, final_epochs >= 0, "at least 0")
  return base.method(
    backbone,
    optimizer,
    base.head_then_body(backbone, optimizer, head_epochs),
    base.mean(backbone, base.own_head),
    traits=base.FULL._replace(rows=base.rows(final_epochs > 0)),
    tuning=Tuning(inner_lr, 0, epochs=final_epochs, moves=base.is_head),
  )


def fedbabu(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  tune: Literal["full", "head"] = "full",
  tune_epochs: int = 5,
  inner_lr: float = 0.01,
  refresh_stats: bool = True,
  mean: Literal["uniform", "size"] = "size",
) -> Method:
  """FedBABU: the random head never moves; the body is trained and averaged.

  After the last round every client fine-tunes; the result row reports the
  fine-tuned networks.

  Args:
    backbone: the network.
    optimizer: the client's optimiser.
    tune: the part that fine-tuning moves; the paper compares both and prefers
      the whole network.
    tune_epochs: E_f, epochs of fine-tuning; 5 in the authors' code.
    inner_lr: learning rate of fine-tuning.
    refresh_stats: whether fine-tuning ends by recomputing batch-norm statistics
      on the client's own data.
    mean: the weight of a participant in the mean. "size": |D_n|, as in the
      other methods here; "uniform": 1, as in the authors' code.

  References:
    Oh et al., FedBABU: Towards Enhanced Representation for Federated Image
    Classification, ICLR 2022, Algorithm 1.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = fedbabu(net, sgd, tune="head")
    >>> [row.personal for row in method.traits.rows]
    [True]
  """
  base.require("tune_epochs", tune_epochs, tune_epochs >= 1, "at least 1")
  moves = base.is_head if tune == "head" else None
  return base.method(
    backbone,
    optimizer,
    (base.client_stage(backbone, optimizer, moves=base.is_body),),
    base.mean(backbone, base.own_head, uniform=mean == "uniform"),
    traits=base.FULL._replace(rows=(Row("", True, tuned=True),)),
    tuning=Tuning(inner_lr, 0, refresh_stats, epochs=tune_epochs, moves=moves),
  )
