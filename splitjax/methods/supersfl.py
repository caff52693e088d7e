"""SuperSFL: two gradients fused in the prefix, one set of parameters for all.

Al Asif et al., SuperSFL: Resource-Heterogeneous Federated Split Learning with
Weight-Sharing Super-Networks, 2026. Letters: theta_i is a client's encoder of
d_i of L blocks, phi_i its classifier (our exit h), theta_s the server's copy.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.methods import aggregation as aggregations
from splitjax.methods import base
from splitjax.methods import optimizer as optimizers
from splitjax.methods.optimizer import Optimizer
from splitjax.methods.split_pass import back, front
from splitjax.models import backbone as bb
from splitjax.models.backbone import Backbone
from splitjax.types import (
  Aggregation,
  Array,
  Half,
  Method,
  Stage,
  State,
  Sums,
  Traits,
  Work,
)
from splitjax.wire import WireDtype

Fusion = Literal["full", "no_loss", "no_depth", "equal"]
"""Which terms of eq. 3 count, see `client_weight`."""

EPSILON = 1e-8
"""The epsilon of eq. 3 and 6, which is not printed; ours."""


class Losses(NamedTuple):
  """A client's losses in a round, for its weight in the aggregation.

  Attributes:
    total: [] float, the sum over its local steps of the fused loss, or of the
      client's alone where the server did not answer.
    steps: [] float.
  """

  total: Array
  steps: Array


def supersfl(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  fusion: Fusion = "full",
  clip: float | None = 0.5,
  lam: float = 0.01,
  answers: Literal["server", "both"] = "server",
  wire_dtype: WireDtype = "float32",
) -> Method:
  """SuperSFL: three-phase gradient fusion (Algorithm 2), eq. 3-8.

  The classifier phi_i descends its own loss, the server its own, and the
  encoder w g_client + (1 - w) g_server with w of `client_weight`. While the
  server does not answer (`faults.server_down`), clients train alone (Algorithm
  3). Blocks of the encoders and of the server are one set of parameters,
  `super_network`; classifiers stay with their clients. Depths from resources
  are `fleet.allocation=supersfl`.

  Args:
    backbone: the network.
    optimizer: of both halves; the paper's is plain SGD.
    fusion: the terms of the weight; "full" is the paper's, the others are its
      ablations.
    clip: tau, the largest norm of g_client over all blocks of the encoder; None
      for none.
    lam: the pull to the server's own copy (eq. 8).
    answers: who predicts at inference. The paper names the accuracy of a model
      and no exit: the server. "both": gated by entropy.
    wire_dtype: width of the features on the wire.

  Raises:
    UserError: an option is out of range.
  """
  base.check("clip", clip, clip is None or clip > 0, "above 0")
  base.check("lam", lam, lam >= 0, "at least 0")
  aggregation = super_network(backbone, optimizer, lam)
  receive = base.download(backbone, optimizer, aggregation)

  def begin(client, server, samples, round, key):
    none = Losses(jnp.zeros(()), jnp.zeros(()))
    return receive(client._replace(memory=none), server, samples, round, key)

  stage = Stage(
    fused_step(backbone, optimizer, fusion, clip, wire_dtype),
    alone=_alone(backbone, optimizer, clip),
    work=Work(client=5.0),  # two gradients of the encoder
  )
  sides = ("client", "server") if answers == "both" else ("server",)
  made = base.method(
    backbone,
    optimizer,
    (stage,),
    aggregation,
    traits=Traits(answers=sides),
    begin=begin,
    finish=_upload(backbone, optimizer, aggregation),
  )
  return made._replace(init=_initializer(backbone, optimizer))


def _initializer(backbone: Backbone, optimizer: Optimizer) -> Callable:
  """Clients have an exit, and the server all blocks, those of clients too."""
  nothing = Losses(jnp.zeros(()), jnp.zeros(()))
  plain = base.initializer(
    backbone, optimizer, client_memory=lambda full, fleet: nothing
  )

  def init(key, fleet, full) -> State:
    state = plain(key, fleet, full)
    whole = bb.suffix(backbone, full, 0)
    opt = optimizers.slots(optimizer.tx, whole) if optimizer.keep else ()
    return state._replace(server=Half(whole, opt, ()))

  return init


def client_weight(
  client: Array, server: Array, share: float, fusion: Fusion
) -> Array:
  """w_client of eq. 3, [] float.

  w = d_i / (d_i + d_s) * (L_c + eps)^-1 / ((L_c + eps)^-1 + (L_s + eps)^-1).
  Without the loss term the second factor is left out, without the depth term
  the first; with neither ("equal") w is a half (Section IV).

  Args:
    client: [] float, L_c, nats.
    server: [] float, L_s.
    share: d_i / (d_i + d_s).
    fusion: the terms that count.
  """
  ours, theirs = 1 / (client + EPSILON), 1 / (server + EPSILON)
  certain = ours / (ours + theirs)
  return {
    "full": share * certain,
    "no_loss": jnp.full_like(certain, share),
    "no_depth": certain,
    "equal": jnp.full_like(certain, 0.5),
  }[fusion]


def fused_step(
  backbone: Backbone,
  optimizer: Optimizer,
  fusion: Fusion,
  clip: float | None,
  wire_dtype: WireDtype,
) -> Callable:
  """A Stage's `step`: the three phases of Algorithm 2 on one batch."""

  def step(client, server, batches, key):
    del key
    (batch, *_) = batches
    depth = bb.depth_of(backbone, client.segment)

    # Phase 1: the client's loss and its gradient.
    near = front(backbone, client.segment, batch)
    nothing = jnp.zeros_like(near.features)
    own = _clipped(near.pull(nothing, jnp.ones(())), clip)

    # Phase 2: features up; the server descends; their gradient down.
    z, up = wire.send("up/features", near.features, batch.real, wire_dtype)
    far = back(backbone, server.segment, z, depth, batch)
    theta, dz = far.pull(jnp.ones(()))
    dz, down = wire.send("down/feature_gradient", dz, batch.real)
    given = near.pull(dz, jnp.zeros(()))

    # Phase 3: fusion, of the encoder alone.
    weight = client_weight(near.loss, far.loss, depth / backbone.length, fusion)
    fused = {
      name: trees.add(
        trees.scale(weight, own[name]), trees.scale(1 - weight, given[name])
      )
      if name in backbone.blocks
      else own[name]
      for name in own
    }
    loss = weight * near.loss + (1 - weight) * far.loss
    client = optimizers.descend(
      _told(client, loss, batch.real), fused, near.stats, optimizer
    )
    server = optimizers.descend(server, theta, far.stats, optimizer)
    ledger = wire.merge(up, wire.labels(batch.real), down)
    return client, server, {"client": near.loss, "server": far.loss}, ledger

  return step


def _alone(
  backbone: Backbone, optimizer: Optimizer, clip: float | None
) -> Callable:
  """A Stage's `alone`: Algorithm 3, phase 1 moves the encoder too."""

  def step(client, batches, key):
    del key
    (batch, *_) = batches
    near = front(backbone, client.segment, batch)
    own = near.pull(jnp.zeros_like(near.features), jnp.ones(()))
    client = optimizers.descend(
      _told(client, near.loss, batch.real),
      _clipped(own, clip),
      near.stats,
      optimizer,
    )
    return client, {"client": near.loss}, {}

  return step


def _told(client: Half, loss: Array, real: Array) -> Half:
  """The client with a step's loss added; steps of padding do not count."""
  on = real.any().astype(float)
  total, steps = client.memory
  memory = Losses(total + jnp.where(on > 0, loss, 0.0), steps + on)
  return client._replace(memory=memory)


def _clipped(grads: dict, clip: float | None) -> dict:
  """Clips the joint norm of the encoder's blocks; the exit stays as it is."""
  if clip is None:
    return grads
  inner = {n: g for n, g in grads.items() if not n.startswith("exit")}
  return {**grads, **optimizers.clipped(inner, clip)}


def _upload(
  backbone: Backbone, optimizer: Optimizer, aggregation: Aggregation
) -> Callable:
  """A Method's `finish`: the encoder and the loss of eq. 6."""
  send = base.upload(backbone, optimizer, aggregation)

  def finish(client, server, samples, key):
    client, server, up = send(client, server, samples, key)
    return client, server, wire.merge(up, wire.price("up/statistics", 4.0))

  return finish


def super_network(
  backbone: Backbone, optimizer: Optimizer, lam: float
) -> Aggregation:
  """Eq. 6-8: block by block over the clients that hold it, and the server.

  w_i = d_i / sum_j d_j * (L_i + eps)^-1 / sum_j (L_j + eps)^-1,
  theta <- (sum_i w_i theta_i + lam theta_s) / (sum_i w_i + lam).

  theta_s is the server's own copy: of the blocks behind a client's cut the mean
  of the copies that served clients, with the same weights; where no features
  passed, as before the round. A block that no participant holds is theta_s.

  Args:
    backbone: the network.
    optimizer: for the slots that it keeps.
    lam: lambda.
  """

  def contribute(client: Half, server: Half, weight: Array) -> Sums:
    depth = bb.depth_of(backbone, client.segment)
    total, steps = client.memory
    sure = 1 / (total / jnp.maximum(steps, 1) + EPSILON)
    on = weight > 0
    sums = aggregations.contribute(
      client, server, jnp.where(on, depth * sure, 0.0)
    )
    extra = {
      "depth": jnp.where(on, float(depth), 0.0),
      "sure": jnp.where(on, sure, 0.0),
    }
    return sums._replace(extra=extra)

  def server(server, clients, active, sums: Sums):
    del clients, active
    server = aggregations.mean_server(server, sums, optimizer.keep)
    copy = server.segment
    # Sums are of d_i / (L_i + eps): lambda by the two sums of eq. 6.
    pull = lam * sums.extra["depth"] * sums.extra["sure"]
    params, stats = dict(server.segment.params), dict(server.segment.stats)
    for name in backbone.names():
      if name not in sums.client:
        continue
      own = params[name], stats[name]
      weight = sums.client_weight[name]
      total = trees.add(sums.client[name], trees.scale(pull, own))
      mean = aggregations.mean(total, weight + pull, own)
      params[name], stats[name] = trees.where(weight > 0, mean, own)
    # With batch_norm=local clients send no normalisation.
    new = base.own_norm(
      backbone, copy._replace(params=params, stats=stats), copy
    )
    return server._replace(segment=new)

  def clients(half, active, sums, server):
    del active, sums
    params, stats = dict(half.segment.params), dict(half.segment.stats)
    count = len(half.memory.steps)
    for name in params.keys() & backbone.blocks.keys():
      new = server.segment.params[name], server.segment.stats[name]
      params[name], stats[name] = trees.repeat(new, count)
    new = half.segment._replace(params=params, stats=stats)
    return half._replace(segment=base.own_norm(backbone, new, half.segment))

  def keep(name: str) -> float:
    return float(name not in backbone.blocks)

  return Aggregation(contribute, server, clients, keep)
