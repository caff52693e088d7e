"""SplitFed and SplitNN: no exit, labels go up, the server answers all.

They differ in how clients meet the server and in what is averaged.

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

import jax

from splitjax.methods import base
from splitjax.methods import optimizer as optimizers
from splitjax.methods.optimizer import Optimizer
from splitjax.methods.split_pass import split_pass
from splitjax.models.backbone import Backbone
from splitjax.types import Method, Pick, Segment, Topology, Tree
from splitjax.wire import WireDtype

Mean = Literal["uniform", "size"]
"""What a participant counts in an average: one, or its samples."""


def split_step(
  backbone: Backbone,
  optimizer: Optimizer,
  wire_dtype: WireDtype,
  l2: tuple[float, float] = (0.0, 0.0),
) -> Callable:
  """A Method's `step`: one step of SGD on l_S, of both halves.

  Args:
    backbone: the network.
    optimizer: of both halves.
    wire_dtype: width of the features on the wire.
    l2: factors of |phi|^2 / 2 and |theta|^2 / 2 in the loss.
  """

  def step(client, server, batches, key):
    del key
    p = split_pass(
      backbone,
      client.segment,
      server.segment,
      batches[0],
      gamma=0.0,
      wire_dtype=wire_dtype,
    )
    own = with_l2(p.client, client.segment, l2[0])
    rest = with_l2(p.server, server.segment, l2[1])
    client = optimizers.descend(client, own, p.client_stats, optimizer)
    server = optimizers.descend(server, rest, p.server_stats, optimizer)
    return client, server, {"server": p.losses["server"]}, p.ledger

  return step


def split_method(
  backbone: Backbone,
  optimizer: Optimizer,
  step: Callable,
  *,
  keep: float = 0.0,
  topology: Topology = "parallel",
  mean: Mean = "uniform",
) -> Method:
  """A Method whose clients have no exit, from its local step.

  Args:
    backbone: the network.
    optimizer: of both halves.
    step: as in Method.
    keep: the share of its part-1 that a client keeps.
    topology: see Method.
    mean: what a participant counts.
  """
  return base.method(
    backbone,
    optimizer,
    step,
    keep=keep,
    inner_lr=0.0,
    inner_steps=0,
    answers=("server",),
    topology=topology,
    evenly=mean == "uniform",
  )


def with_l2(grads: dict[str, Tree], segment: Segment, l2: float):
  """Gradients of a loss with l2 / 2 times the squared norm of parameters."""
  if not l2:
    return grads
  return {
    name: jax.tree.map(lambda g, w: g + l2 * w, grad, segment.params[name])
    for name, grad in grads.items()
  }


def splitfed_v1(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  wire_dtype: WireDtype = "float32",
  mean: Mean = "size",
) -> Method:
  """SplitFed v1: a copy of the server for each client, both sides averaged.

  Args:
    backbone: the network.
    optimizer: of both halves.
    wire_dtype: width of the features on the wire.
    mean: what a participant counts; uniform in Hydra's experiments.
  """
  step = split_step(backbone, optimizer, wire_dtype)
  return split_method(backbone, optimizer, step, mean=mean)


def splitfed_v2(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  l2: float = 0.0,
  l2_on: Literal["server", "both"] = "server",
  wire_dtype: WireDtype = "float32",
  mean: Mean = "uniform",
) -> Method:
  """SplitFed v2: one server, to which clients come one after another.

  A turn is a step of SGD on theta and on the client's own phi; the round ends
  with the mean of the phi. The turns are the config's `order`: single batches,
  as Hydra has it, or whole epochs, as the authors' code (turn: epoch).

  Args:
    backbone: the network.
    optimizer: of both halves; the server's momentum goes on from turn to turn.
    l2: weight of the squared norm, halved, in the loss (Hydra, appendix H.5,
      which does not print it).
    l2_on: of part-2 alone or of both parts. The client adds the gradient of its
      part by itself, so that nothing more is sent.
    wire_dtype: width of the features on the wire.
    mean: what a participant counts; Thapa's and Hydra's code: uniform.
  """
  base.check("l2", l2, l2 >= 0, "at least 0")
  on_client = l2 if l2_on == "both" else 0.0
  step = split_step(backbone, optimizer, wire_dtype, (on_client, l2))
  return split_method(
    backbone, optimizer, step, topology="sequential", mean=mean
  )


def splitfed_v3(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  pick: Pick = "softmax",
  wire_dtype: WireDtype = "float32",
  mean: Mean = "uniform",
) -> Method:
  """SplitFed v3: as v1, but part-1 is never averaged.

  A sample is answered by the client's part-1 through which the common part-2 is
  the surest.

  Args:
    backbone: the network.
    optimizer: of both halves.
    pick: what tells the surest path: the softmax's maximum, or the logits', as
      Hydra's code has it, which compares networks by numbers of no common
      scale.
    wire_dtype: width of the features on the wire.
    mean: what a participant counts.
  """
  step = split_step(backbone, optimizer, wire_dtype)
  made = split_method(backbone, optimizer, step, keep=1.0, mean=mean)
  return made._replace(pick=pick)


def splitnn(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  wire_dtype: WireDtype = "float32",
) -> Method:
  """SplitNN: part-1 is handed from client to client, nothing is averaged.

  The turns are the config's `order`. Momentum is handed on with part-1.

  Args:
    backbone: the network.
    optimizer: of both halves.
    wire_dtype: width of the features on the wire.
  """
  step = split_step(backbone, optimizer, wire_dtype)
  return split_method(backbone, optimizer, step, topology="relay")
