"""The parts that most methods share: initial state, download, prediction.

A method's file defines its stages and any aggregation other than `mean`. The
function `method` adds the common parts, any of which a method may replace.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.engine.topologies import topology_of
from splitjax.methods import aggregations, finetuning, optimizers
from splitjax.methods.exchange import download, traffic, upload
from splitjax.methods.finetuning import Tuning
from splitjax.methods.initial import Memory, initializer, predictor
from splitjax.methods.optimizers import Optimizer
from splitjax.methods.split_pass import front
from splitjax.models.backbones import Backbone
from splitjax.types import (
  Aggregation,
  Array,
  Batch,
  Half,
  Method,
  Row,
  Segment,
  Stage,
  Traits,
  Tree,
  UserError,
  Work,
)


def require(name: str, value: Any, holds: bool, must: str) -> None:
  """Raises a UserError if an option of a method is out of range."""
  if not holds:
    raise UserError(f"option {name}={value} must be {must}")


def rows(finetune: bool) -> tuple[Row, ...]:
  """Lists the result rows: a plain row and, if `finetune`, a "+FT" row."""
  plain = (Row("", False),)
  return (*plain, Row("+FT", True, tuned=True)) if finetune else plain


HEAD_WORK = Work(client=1.0)
"""Work of a stage that trains the head alone. It is one forward pass of the
network; the gradient of the head is taken to cost nothing."""

FULL = Traits(("client",), "full")
"""Traits of clients that hold the whole network and answer by themselves."""


def method(
  backbone: Backbone,
  optimizer: Optimizer,
  stages: tuple[Stage, ...],
  aggregation: Aggregation | None = None,
  *,
  traits: Traits | None = None,
  tuning: Tuning | None = None,
  begin: Callable | None = None,
  finish: Callable | None = None,
  client_memory: Memory | None = None,
  server_memory: Memory | None = None,
) -> Method:
  """Builds a Method from its stages, and from common parts where None is given.

  Args:
    backbone: the network.
    optimizer: the optimiser of both halves.
    stages: what a client computes in a round. Most methods have one stage,
      Stage(step).
    aggregation: how a round ends; None: `mean`, so that all clients get the
      mean.
    traits: static facts about the method; None: both exit and server predict,
      and clients train in parallel.
    tuning: personalisation before an evaluation; None: no steps.
    begin: as in Method; None: `download`.
    finish: as in Method; None: `upload`.
    client_memory: makes a client's memory before the first round; None: ().
    server_memory: makes the server's memory before the first round; None: ().

  Raises:
    UserError: an option of the tuning is out of range.
  """
  tuning = tuning or Tuning(0.0, 0)
  for name, value in (
    ("inner_steps", tuning.inner_steps),
    ("inner_lr", tuning.inner_lr),
    ("tune_epochs", tuning.epochs),
  ):
    require(name, value, value >= 0, "at least 0")
  traits = traits or Traits()
  aggregation = aggregation or mean(backbone)
  relay = topology_of(traits).hands_on
  keep = aggregation.keep

  # A relay hands the client half from client to client, without download and
  # upload; the ledger leaves out blocks that clients keep whole.
  def hand_on(client):
    return wire.merge(
      traffic(backbone, "up", client.segment, keep),
      traffic(backbone, "down", client.segment, keep),
    )

  return Method(
    init=initializer(
      backbone,
      exits="client" in traits.answers,
      whole=traits.depth == "full",
      client_memory=client_memory,
      server_memory=server_memory,
    ),
    begin=begin or download(backbone, optimizer, aggregation, sent=not relay),
    stages=stages,
    finish=finish or upload(backbone, aggregation, sent=not relay),
    aggregation=aggregation,
    personalise=finetuning.personaliser(backbone, tuning),
    predict=predictor(backbone),
    traits=traits,
    hand_on=hand_on if relay else None,
  )


def mean(
  backbone: Backbone,
  keep: aggregations.Keep = 0.0,
  *,
  uniform: bool = False,
  server_mean: aggregations.ServerMean = "touched",
) -> Aggregation:
  """Builds `aggregations.federated_mean` for this network.

  Raises:
    UserError: `keep` is a number that is not in 0..1.
  """
  if not callable(keep):
    require("lam", keep, 0 <= keep <= 1, "in 0..1")
  return aggregations.federated_mean(
    keep=keep,
    local_norm=backbone.local_norm,
    uniform=uniform,
    server_mean=server_mean,
  )


def client_step(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  moves: Callable[[str], bool] | None = None,
  add: Callable[[Half], dict[str, Tree]] | None = None,
  align: Callable[[Half, Array, Batch], Array] | None = None,
  descend: Callable = optimizers.descend,
) -> Callable:
  """Builds a Stage's `alone`: one optimiser step on l_C, without the server.

  Args:
    backbone: the network.
    optimizer: the client's optimiser.
    moves: block name -> whether the block moves; others keep their parameters
      and running statistics. None: all move.
    add: client -> (block name -> a further gradient, e.g. of a regulariser).
    align: (client, z [B, ...], batch) -> [] float, a loss of the features at
      the client's cut, added to l_C and reported as "align".
    descend: the optimiser step, with the arguments of `optimizers.descend`.
  """

  def step(client, batches, key):
    del key
    (batch, *_) = batches
    near = front(backbone, client.segment, batch)
    losses, dz = {"client": near.loss}, jnp.zeros_like(near.features)
    if align is not None:
      losses["align"], dz = jax.value_and_grad(
        lambda z: align(client, z, batch)
      )(near.features)
    grads, stats = near.pull(dz, jnp.ones(())), near.stats
    if add is not None:
      extra = add(client)
      grads = {n: trees.add(g, extra[n]) for n, g in grads.items()}
    if moves is not None:
      grads = {name: g for name, g in grads.items() if moves(name)}
      stats = {name: x for name, x in stats.items() if moves(name)}
    client = descend(client, grads, stats, optimizer)
    return client, losses, {}

  return step


def client_stage(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  epochs: int | None = None,
  work: Work | None = None,
  **how: Any,
) -> Stage:
  """Builds a Stage for clients that hold the whole network.

  Its step is `client_step` with the options `how`; `epochs` and `work` are as
  in Stage.
  """
  alone = client_step(backbone, optimizer, **how)

  def step(client, server, batches, key):
    client, losses, ledger = alone(client, batches, key)
    return client, server, losses, ledger

  return Stage(step, epochs, work=work or Work())


def head_then_body(
  backbone: Backbone,
  optimizer: Optimizer,
  epochs: int,
  of_head: Optimizer | None = None,
  **how: Any,
) -> tuple[Stage, Stage]:
  """Builds two stages: the first trains the head alone, the second the body.

  The first takes `epochs` epochs by the optimiser `of_head` or, if this is
  None, by `optimizer`. The second takes the config's local epochs by
  `optimizer`, with the options `how` of `client_step`.
  """
  own: dict[str, Any] = {"moves": is_head, "work": HEAD_WORK}
  return (
    client_stage(backbone, of_head or optimizer, epochs=epochs, **own),
    client_stage(backbone, optimizer, moves=is_body, **how),
  )


def pull(weight: float, params: Tree, anchor: Tree) -> Tree:
  """Computes the gradient of weight / 2 |w - anchor|^2, leaf by leaf."""
  return jax.tree.map(lambda w, a: weight * (w - a), params, anchor)


def whole_network(backbone: Backbone, full: Segment) -> Segment:
  """Selects all blocks and the head of `full`, without the exits."""
  names = (*backbone.names(), "head")
  return Segment(
    {name: full.params[name] for name in names},
    {name: full.stats[name] for name in names},
  )


def is_head(name: str) -> bool:
  """Tells whether a block is the head."""
  return name == "head"


def own_head(name: str) -> float:
  """Returns lam of a block: 1 for the head, which clients keep; else 0."""
  return float(is_head(name))


def is_body(name: str) -> bool:
  """Tells whether a block is part of the body: any block but the head."""
  return name != "head"
