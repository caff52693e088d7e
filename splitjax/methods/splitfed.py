"""SplitFed and SplitNN: no exit; labels go up; the server answers everything.

The methods differ in topology and in what they average.

References:
  Thapa et al., SplitFed: When Federated Learning Meets Split Learning, AAAI
    2022 (v1 and v2).
  Gawali et al., Comparison of Privacy-Preserving Distributed Deep Learning
    Methods in Healthcare, 2021 (v3).
  Vepakomma et al., Split Learning for Health, 2018 (SplitNN).
  Hydra (Tirana et al., 2026), Section 3 and appendices B, H.5.
"""

from collections.abc import Callable
from typing import Literal

from splitjax.methods import base
from splitjax.methods.optimizers import Optimizer
from splitjax.methods.split_pass import split_step
from splitjax.models.backbones import Backbone
from splitjax.types import Method, Stage, Traits

Mean = Literal["uniform", "size"]
"""The weight of a participant in an average: 1, or its number of samples."""


def split_method(
  backbone: Backbone,
  optimizer: Optimizer,
  step: Callable,
  *,
  keep: float = 0.0,
  mean: Mean = "uniform",
  topology: str = "parallel",
  pick: bool = False,
) -> Method:
  """Builds a Method without exits from its local step.

  `topology` and `pick` are as in Traits; `keep` is lam, the share of its own
  part-1 that a client keeps.
  """
  return base.method(
    backbone,
    optimizer,
    (Stage(step),),
    base.mean(backbone, keep, uniform=mean == "uniform"),
    traits=Traits(("server",), topology=topology, pick=pick),
  )


def splitfed_v1(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  mean: Mean = "size",
) -> Method:
  """SplitFed v1: every client has its own copy of the server in a round.

  The round ends with the mean of the clients' part-1 and the mean of the
  server's copies.

  Args:
    backbone: the network.
    optimizer: optimiser of both halves.
    mean: the weight of a participant in both means; uniform in Hydra's
      experiments.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = splitfed_v1(net, sgd, mean="uniform")
    >>> method.traits.answers
    ('server',)
  """
  step = split_step(backbone, optimizer)
  return split_method(backbone, optimizer, step, mean=mean)


def splitfed_v2(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  l2: float = 0.0,
  l2_on: Literal["server", "both"] = "server",
  mean: Mean = "uniform",
) -> Method:
  """SplitFed v2: one server, which clients visit one after another.

  A visit trains theta and the client's own phi; the round ends with the mean of
  all phi. The config's `order` sets the length of a visit: one batch, as in
  Hydra, or a client's whole round, as in the authors' code (turn: epoch).

  Args:
    backbone: the network.
    optimizer: optimiser of both halves; the server's momentum continues from
      visit to visit.
    l2: weight of half the parameters' squared norm in the loss (Hydra, appendix
      H.5, which gives no value). L1, which the paper names but does not
      examine, is left out. EWC is left out too, since it needs one task to be
      finished before the next begins and "cannot be directly applied in SFL"
      (appendix C.2).
    l2_on: "server": the norm is that of part-2; "both": that of both parts. A
      client adds the gradient for part-1 itself, so nothing more is sent.
    mean: the weight of a participant; uniform in Thapa's and Hydra's code.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10, depths=(2,))
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = splitfed_v2(net, sgd, l2=5e-4)
    >>> method.traits.answers
    ('server',)
  """
  base.require("l2", l2, l2 >= 0, "at least 0")
  factors = (l2 if l2_on == "both" else 0.0, l2)
  step = split_step(backbone, optimizer, l2=factors)
  return split_method(
    backbone, optimizer, step, topology="sequential", mean=mean
  )


def splitfed_v3(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  mean: Mean = "uniform",
) -> Method:
  """SplitFed v3: v1 without averaging part-1.

  At inference every client's part-1, followed by the common part-2, is a path;
  the most confident path answers a sample.

  Args:
    backbone: the network.
    optimizer: optimiser of both halves.
    mean: the weight of a participant.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = splitfed_v3(net, sgd)
    >>> method.traits.pick
    True
  """
  step = split_step(backbone, optimizer)
  return split_method(backbone, optimizer, step, keep=1.0, mean=mean, pick=True)


def splitnn(backbone: Backbone, optimizer: Optimizer) -> Method:
  """SplitNN: clients hand part-1 from one to the next; nothing is averaged.

  The config's `order` sets order and length of the visits. Momentum is handed
  on with part-1.

  Args:
    backbone: the network.
    optimizer: optimiser of both halves.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10, depths=(2,))
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = splitnn(net, sgd)
    >>> method.traits.answers
    ('server',)
  """
  step = split_step(backbone, optimizer)
  return split_method(backbone, optimizer, step, topology="relay")
