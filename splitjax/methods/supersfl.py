"""SuperSFL: two gradients fused in the prefix, one set of parameters for all.

Al Asif et al., SuperSFL: Resource-Heterogeneous Federated Split Learning with
Weight-Sharing Super-Networks, 2026. Letters: theta_i is a client's encoder (the
first d_i of L blocks), phi_i its classifier (our exit h), theta_s the server's
copy.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.methods import aggregations, base, optimizers
from splitjax.methods.optimizers import Optimizer
from splitjax.methods.split_pass import back, front
from splitjax.models import backbones
from splitjax.models.backbones import Backbone
from splitjax.models.block import own_norm
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

Fusion = Literal["full", "no_loss", "no_depth", "equal"]
"""Which factors of eq. 3 are in the weight, see `client_weight`."""


EPSILON = 1e-8
"""Epsilon of eq. 3 and 6; the paper gives no value, this one is ours."""


class Losses(NamedTuple):
  """A client's losses in a round, for its weight in the aggregation.

  Attributes:
    total: [] float, the sum of the losses of its local steps. The loss of a
      step is the fused loss, or the client's loss if the server did not answer.
    steps: [] float, the number of these steps.
    reported: [] bool, whether the client has sent its memory and latency. It
      sends them once in a run.
  """

  total: Array
  steps: Array
  reported: Array


def supersfl(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  fusion: Fusion = "full",
  clip: float | None = 0.5,
  lam: float = 0.01,
  sole_source: bool = True,
  normalise: bool = False,
  eps: float = EPSILON,
  answers: Literal["server", "both"] = "server",
) -> Method:
  """SuperSFL: three-phase gradient fusion (Algorithm 2), eq. 3-8.

  The classifier phi_i descends its own loss, and the server descends its own.
  The encoder descends w g_client + (1 - w) g_server with w of `client_weight`.
  While the server does not answer (`faults.server_down`), a client uploads in
  vain, waits five seconds and then trains alone (Algorithm 3).
  Encoders and server share one set of parameters, see `super_network`;
  classifiers stay with their clients. `fleet.allocation=supersfl` derives
  depths from resources.

  Args:
    backbone: the network.
    optimizer: optimiser of both halves; the paper's is plain SGD.
    fusion: the factors in w, see `client_weight`; "full" is the paper's choice,
      the others are its ablations.
    clip: tau, the largest norm of g_client over all blocks of the encoder; None
      for no limit.
    lam: weight of the pull to the server's own copy (eq. 8).
    sole_source: whether a block that only one participant holds is copied from
      that participant, without the pull: "if only one source provides layer l,
      that parameter is used directly" (Section II-D). False: eq. 8 for all
      blocks.
    normalise: whether the weights of eq. 8 are divided by their sum over the
      clients that hold the block. In every block the clients' weights then add
      up to 1, and the server's is lam. False: the equations as printed. The w_i
      of eq. 6 then add up to about 1/N over all N clients, and to less over
      the few clients that hold a deep block. With 50 clients and lam = 0.01 the
      server's copy makes up a third of block 1 and 78 to 93 % of the deepest
      blocks.
    eps: epsilon of eq. 3 and 6; the paper prints no value.
    answers: who predicts at inference: "server", since the paper reports one
      model's accuracy and names no exit, or "both", gated by entropy.

  Raises:
    UserError: an option is out of range.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = supersfl(net, sgd, fusion="equal")
    >>> method.traits.answers
    ('server',)
  """
  base.require("clip", clip, clip is None or clip > 0, "above 0")
  base.require("lam", lam, lam >= 0, "at least 0")
  base.require("eps", eps, eps > 0, "above 0")
  aggregation = super_network(
    backbone,
    lam,
    sole_source=sole_source,
    normalise=normalise,
    eps=eps,
  )._replace(alike=answers == "server" and not backbone.local_norm)

  def arrive(client, server, samples, round, key):
    once = jnp.where(client.memory.reported, 0.0, 8.0)  # m_i and lat_i
    none = Losses(jnp.zeros(()), jnp.zeros(()), jnp.bool_(True))
    sent = wire.price("up/statistics", once)
    return client._replace(memory=none), server, sent

  def leave(client, server, samples, key):  # the loss of eq. 6 goes up
    return client, server, wire.price("up/statistics", 4.0)

  stage = Stage(
    fused_step(backbone, optimizer, fusion, clip, eps),
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
    begin=base.download(backbone, optimizer, aggregation, before=arrive),
    finish=base.upload(backbone, aggregation, before=leave),
  )
  return made._replace(init=_initializer(backbone))


def _initializer(backbone: Backbone) -> Callable:
  """Builds `init`: clients have an exit, the server holds all blocks."""
  nothing = Losses(jnp.zeros(()), jnp.zeros(()), jnp.bool_(False))
  plain = base.initializer(backbone, client_memory=lambda full, fleet: nothing)

  def init(key, fleet, full) -> State:
    state = plain(key, fleet, full)
    whole = backbones.suffix(backbone, full, 0)
    return state._replace(server=Half(whole))

  return init


def client_weight(
  client: Array,
  server: Array,
  share: float,
  fusion: Fusion,
  eps: float = EPSILON,
) -> Array:
  """Computes w_client of eq. 3, [] float.

  w = d_i / (d_i + d_s) * (L_c + eps)^-1 / ((L_c + eps)^-1 + (L_s + eps)^-1).
  "no_loss" leaves out the second factor, "no_depth" the first; with "equal" w
  is a half (Section IV).

  Args:
    client: [] float, L_c, nats.
    server: [] float, L_s.
    share: d_i / (d_i + d_s).
    fusion: which factors are in the weight.
    eps: epsilon.
  """
  ours, theirs = 1 / (client + eps), 1 / (server + eps)
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
  eps: float,
) -> Callable:
  """Builds a Stage's `step`: the three phases of Algorithm 2 on one batch."""

  def step(client, server, batches, key):
    del key
    (batch, *_) = batches
    depth = backbones.depth_of(backbone, client.segment)

    # Phase 1: the client's loss and its gradient.
    near = front(backbone, client.segment, batch)
    nothing = jnp.zeros_like(near.features)
    own = _clipped(backbone, near.pull(nothing, jnp.ones(())), clip)

    # Phase 2: features up; server step; the features' gradient and L_s down.
    z, up = wire.send(backbone.wire, "up/features", near.features, batch)
    far = back(backbone, server.segment, z, depth, batch)
    theta, dz = far.pull(jnp.ones(()))
    dz, down = wire.send(backbone.wire, "down/feature_gradient", dz, batch)
    given = near.pull(dz, jnp.zeros(()))

    # Phase 3: fusion, of the encoder alone.
    share = depth / backbone.length
    weight = client_weight(near.loss, far.loss, share, fusion, eps)
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
    told = wire.price("down/statistics", 4.0 * batch.real.any())
    ledger = wire.merge(up, wire.labels(batch.real), down, told)
    return client, server, {"client": near.loss, "server": far.loss}, ledger

  return step


def _alone(
  backbone: Backbone, optimizer: Optimizer, clip: float | None
) -> Callable:
  """Builds a Stage's `alone` (Algorithm 3): phase 1 moves the encoder too.

  The client has sent the batch before it learns that the server is down.
  """

  def step(client, batches, key):
    del key
    (batch, *_) = batches
    near = front(backbone, client.segment, batch)
    _, up = wire.send(backbone.wire, "up/features", near.features, batch)
    own = near.pull(jnp.zeros_like(near.features), jnp.ones(()))
    client = optimizers.descend(
      _told(client, near.loss, batch.real),
      _clipped(backbone, own, clip),
      near.stats,
      optimizer,
    )
    ledger = wire.merge(up, wire.labels(batch.real))
    return client, {"client": near.loss}, ledger

  return step


def _told(client: Half, loss: Array, real: Array) -> Half:
  """Adds a step's loss to the client's memory, unless the batch is padding."""
  on = real.any().astype(float)
  total, steps, _ = client.memory
  memory = client.memory._replace(
    total=total + jnp.where(on > 0, loss, 0.0), steps=steps + on
  )
  return client._replace(memory=memory)


def _clipped(backbone: Backbone, grads: dict, clip: float | None) -> dict:
  """Clips the joint norm of the encoder's blocks; the exit stays as it is."""
  if clip is None:
    return grads
  inner = {n: g for n, g in grads.items() if n in backbone.blocks}
  return {**grads, **optimizers.clipped(inner, clip)}


def super_network(
  backbone: Backbone,
  lam: float,
  *,
  sole_source: bool = True,
  normalise: bool = False,
  eps: float = EPSILON,
) -> Aggregation:
  """Builds the aggregation of the clients' blocks with the server's (eq. 6-8).

  w_i = d_i / sum_j d_j * (L_i + eps)^-1 / sum_j (L_j + eps)^-1,
  theta <- (sum_i w_i theta_i + lam theta_s) / (sum_i w_i + lam).

  sum_j is over all participants, sum_i over those that hold the block. theta_s
  is the server's own value of the block. If features of participants passed the
  block at the server, theta_s is the mean of these participants' copies,
  weighted by w_i. Else theta_s is the value before the round. A block that no
  participant holds becomes theta_s.

  Args:
    backbone: the network.
    lam: lambda.
    sole_source: whether a block that only one participant holds is copied from
      that participant, without the pull to theta_s (Section II-D, step 3).
    normalise: whether the w_i of the clients that hold a block are divided by
      their sum.
    eps: epsilon.
  """

  def contribute(client: Half, server: Half, weight: Array) -> Sums:
    depth = backbones.depth_of(backbone, client.segment)
    total, steps, _ = client.memory
    sure = 1 / (total / jnp.maximum(steps, 1) + eps)
    on = weight > 0
    sums = aggregations.contribute(
      client, server, jnp.where(on, depth * sure, 0.0)
    )
    extra = {
      "depth": jnp.where(on, float(depth), 0.0),
      "sure": jnp.where(on, sure, 0.0),
    }
    extra |= {f"holders of {name}": on.astype(float) for name in sums.client}
    return sums._replace(extra=extra)

  def server(server, clients, active, sums: Sums):
    del clients, active
    server = aggregations.mean_server(server, sums)
    copy = server.segment
    # The sums weigh by d_i / (L_i + eps), w_i without its two denominators, so
    # lambda is multiplied by their product.
    printed = sums.extra["depth"] * sums.extra["sure"]
    params, stats = dict(server.segment.params), dict(server.segment.stats)
    for name in backbone.names():
      if name not in sums.client:
        continue
      own = params[name], stats[name]
      weight = sums.client_weight[name]
      pull = lam * (weight if normalise else printed)
      if sole_source:
        pull = jnp.where(sums.extra[f"holders of {name}"] > 1, pull, 0.0)
      total = trees.add(sums.client[name], trees.scale(pull, own))
      mean = aggregations.mean(total, weight + pull, own)
      params[name], stats[name] = trees.where(weight > 0, mean, own)
    # With batch_norm=local clients send no normalisation.
    new = own_norm(
      backbone.local_norm, copy._replace(params=params, stats=stats), copy
    )
    return server._replace(segment=new)

  def clients(half, active, sums, server):
    del active, sums
    params, stats = dict(half.segment.params), dict(half.segment.stats)
    count = len(half.memory.steps)
    for name in (n for n in backbone.blocks if n in params):
      new = server.segment.params[name], server.segment.stats[name]
      params[name], stats[name] = trees.repeat(new, count)
    new = half.segment._replace(params=params, stats=stats)
    return half._replace(
      segment=own_norm(backbone.local_norm, new, half.segment)
    )

  def keep(name: str) -> float:
    return float(name not in backbone.blocks)

  return Aggregation(contribute, server, clients, keep)
