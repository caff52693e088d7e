"""What most methods share: initial state, download, upload, prediction.

A method's own file defines its local step; `method` adds the common parts,
which a method may replace.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.engine.fleet import Fleet
from splitjax.methods import aggregation
from splitjax.methods import finetune as finetuning
from splitjax.methods import optimizer as optimizers
from splitjax.methods.optimizer import Optimizer
from splitjax.methods.split_pass import front
from splitjax.models import backbone as bb
from splitjax.models.backbone import Backbone
from splitjax.models.block import norm_free
from splitjax.models.inference import client_logits, server_logits
from splitjax.types import (
  Array,
  Half,
  Ledger,
  Logits,
  Method,
  Row,
  Segment,
  State,
  Sums,
  Topology,
  UserError,
)


def check(name: str, value: Any, holds: bool, must: str) -> None:
  """Raises a UserError if an option of a method is out of range."""
  if not holds:
    raise UserError(f"method option {name}={value} must be {must}")


def keep(lam: float, lam_exit: float | None) -> aggregation.Keep:
  """The shares of phi and of h that a client keeps; None: lam of both."""
  for name, share in (("lam", lam), ("lam_exit", lam_exit)):
    check(name, share, share is None or 0 <= share <= 1, "in 0..1")
  if lam_exit in (None, lam):
    return lam
  return lambda name: lam_exit if name.startswith("exit") else lam


def rows(finetune: bool) -> tuple[Row, ...]:
  """The result rows: one, and a "+FT" row where clients also fine-tune."""
  plain = (Row("", False),)
  return (*plain, Row("+FT", True)) if finetune else plain


def initializer(
  backbone: Backbone, optimizer: Optimizer, *, exits: bool, whole: bool
) -> Callable:
  """A Method's `init`: all clients start from the same phi, h and theta.

  Clients have an exit if `exits`. If `whole`, they hold the whole network and
  the server nothing. Kept slots of the optimiser are part of the state.
  """

  def init(key: Array, fleet: Fleet, full: Segment) -> State:
    def half(segment):
      opt = optimizers.slots(optimizer.tx, segment) if optimizer.keep else ()
      return Half(segment, opt)

    clients = tuple(
      trees.repeat(
        half(bb.prefix(backbone, full, c.depth, with_exit=exits)), len(c.places)
      )
      for c in fleet.cohorts
    )
    server = Segment({}, {})
    if not whole:
      server = bb.suffix(backbone, full, backbone.cuts[0])
    return State(jnp.int32(0), key, clients, half(server))

  return init


def traffic(
  backbone: Backbone, direction: str, client: Segment, keep: aggregation.Keep
) -> Ledger:
  """Bytes of the parameters that aggregation moves, in one direction.

  `direction` is "up" or "down", `client` what one client holds, unbatched. A
  block that it keeps whole (`keep`, lam, is 1) is not sent.
  """
  names = [n for n in client.params if aggregation.keep_share(keep, n) < 1]
  if backbone.local_norm:
    client = norm_free(client)
  own = bb.classifier(backbone, client)
  if own == "head":
    return wire.parameters(f"{direction}/model", bb.select(client, names))
  blocks = [n for n in names if n != own]
  exits = [n for n in names if n == own]
  return wire.merge(
    wire.parameters(f"{direction}/prefix", bb.select(client, blocks)),
    wire.parameters(f"{direction}/exit", bb.select(client, exits)),
  )


def method(
  backbone: Backbone,
  optimizer: Optimizer,
  step: Callable,
  *,
  keep: aggregation.Keep,
  inner_lr: float,
  inner_steps: int,
  refresh_stats: bool = True,
  tuned_on: finetuning.TunedOn = "epochs",
  rows: tuple[Row, ...] = (Row("", False),),
  answers: tuple[str, ...] = ("client", "server"),
  whole: bool = False,
  views: int = 1,
  head_down: bool = False,
  alone: Callable | None = None,
  topology: Topology = "parallel",
  uniform: bool = False,
  server_mean: aggregation.ServerMean = "touched",
) -> Method:
  """A Method from its local step; everything else is the common skeleton.

  Args:
    backbone: the network.
    optimizer: of both halves.
    step: as in Method.
    keep: lam, see `aggregation.blend_clients`.
    inner_lr: alpha, the learning rate of personalisation.
    inner_steps: M, the steps of personalisation.
    refresh_stats: see `finetune.personaliser`.
    tuned_on: likewise.
    rows: see Method.
    answers: see Method.
    whole: see Method.
    views: see Method.
    head_down: whether clients download a copy of the server's head.
    alone: see Method.
    topology: see Method.
    uniform: whether every participant has weight 1 in the means; else |D_n|.
    server_mean: see `aggregation.contribute`.

  Raises:
    UserError: an option is out of range.
  """
  check("inner_steps", inner_steps, inner_steps >= 0, "at least 0")
  check("inner_lr", inner_lr, inner_lr >= 0, "at least 0")
  if not callable(keep):
    check("lam", keep, 0 <= keep <= 1, "in 0..1")

  # The wire carries only what aggregation shares: a relay hands the client half
  # from client to client in place of a download and an upload.
  def hand_on(client):
    return wire.merge(
      traffic(backbone, "up", client.segment, keep),
      traffic(backbone, "down", client.segment, keep),
    )

  def begin(client, server, samples, round, key):
    del samples, key
    down = {}
    if topology != "relay":
      down = traffic(backbone, "down", client.segment, keep)
    if head_down:
      head = bb.select(server.segment, ("head",))
      down = wire.merge(down, wire.parameters("down/server_head", head))
    client = optimizers.begin_round(client, optimizer, round)
    return client, optimizers.begin_round(server, optimizer, round), down

  def finish(client, server, samples, key):
    del samples, key
    up = {}
    if topology != "relay":
      up = traffic(backbone, "up", client.segment, keep)
    kept = client.opt.slots if optimizer.keep else ()
    return client._replace(opt=kept), server, up

  def join(state, clients, active, sums):
    return aggregation.merge(
      state,
      clients,
      active,
      sums,
      keep=keep,
      keep_slots=optimizer.keep,
      local_norm=backbone.local_norm,
    )

  return Method(
    init=initializer(
      backbone, optimizer, exits="client" in answers, whole=whole
    ),
    begin=begin,
    step=step,
    finish=finish,
    contribute=functools.partial(contribute, uniform, server_mean),
    merge=join,
    personalise=finetuning.personaliser(
      backbone, inner_lr, inner_steps, refresh_stats, tuned_on
    ),
    predict=predictor(backbone),
    answers=answers,
    whole=whole,
    views=views,
    rows=rows,
    topology=topology,
    hand_on=hand_on,
    alike=keep == 0 and not backbone.local_norm,
    alone=alone,
  )


def contribute(
  uniform: bool,
  over: aggregation.ServerMean,
  client: Half,
  server: Half,
  weight: Array,
) -> Sums:
  """`aggregation.contribute`, if `uniform` with weight 1 for everybody."""
  weight = (weight > 0).astype(float) if uniform else weight
  return aggregation.contribute(client, server, weight, over)


def client_step(backbone: Backbone, optimizer: Optimizer) -> Callable:
  """A Method's `alone`: one SGD step on l_C, which needs no server."""

  def step(client, batches, key):
    del key
    near = front(backbone, client.segment, batches[0])
    no_server = jnp.zeros_like(near.features)
    grads = near.pull(no_server, jnp.ones(()))
    client = optimizers.descend(client, grads, near.stats, optimizer)
    return client, {"client": near.loss}, {}

  return step


def predictor(backbone: Backbone) -> Callable:
  """A Method's `predict`: the logits of both exits for a batch of images."""

  def predict(client: Half, server: Half, image: Array) -> Logits:
    z, own = client_logits(backbone, client.segment, image)
    depth = bb.depth_of(backbone, client.segment)
    if own is not None and depth == backbone.length:
      return Logits(own, own)
    remote = server_logits(backbone, server.segment, z, depth)
    return Logits(remote if own is None else own, remote)

  return predict
