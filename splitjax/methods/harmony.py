"""HARMONY: heterogeneity-aware hybrid split federated learning.

In every step meta-adaptation simulates two personalised extractors, one per
view. The early view's features enter the server at a random depth, the late
view's at the client's cut, and the server aligns both views by class. Labels
stay with the client. The paper marks the early view by a dagger, the late one
by a double dagger.
"""

import dataclasses
from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp

from splitjax import wire
from splitjax.methods import base, optimizers, split_pass
from splitjax.methods.aggregations import ServerMean
from splitjax.methods.finetuning import TunedOn, Tuning
from splitjax.methods.harmony_client import client_side, views
from splitjax.methods.harmony_server import (
  HarmonyOptions,
  early_view,
  server_side,
)
from splitjax.methods.optimizers import Optimizer
from splitjax.models import backbones
from splitjax.models.backbones import Backbone
from splitjax.types import (
  Method,
  Row,
  Stage,
  Traits,
  Work,
)


def local_step(
  backbone: Backbone, optimizer: Optimizer, options: HarmonyOptions
) -> Callable:
  """Builds a Stage's `step`: HARMONY's local step on two batches."""

  def step(client, server, batches, key):
    one, two = batches
    start = client.segment

    # Client: adapt to both batches (eq. 3); the late view's features go up.
    (adapted, *early), pull = views(
      backbone, start, batches, options, options.early
    )
    late = split_pass.front(backbone, start._replace(params=adapted), one)
    z, up = wire.send(backbone.wire, "up/features", late.features, one)

    # The early view enters the server at a random depth (eq. 4 and 6).
    early_pass = None
    if options.csa_weight > 0:
      view = start._replace(params=early[0])
      early_pass = early_view(backbone, view, server.segment, two, key, options)

    # Server: task loss with private labels, alignment of the views (eq. 7).
    depth, same = backbones.depth_of(backbone, start), one.label == two.label
    back = server_side(
      backbone, server.segment, depth, z, one, early_pass, same, options
    )

    # Client: its loss (eq. 8), the gradient at the start, optimiser steps.
    loss, grads = client_side(
      backbone, late, early, start.stats, two, back.dz, options.gamma, options
    )
    client = optimizers.descend(client, pull(grads), late.stats, optimizer)
    server = optimizers.descend(
      server, back.grads, back.stats, optimizer, back.passed
    )
    losses = {"client": loss, **back.losses}
    return client, server, losses, wire.merge(up, back.ledger)

  return step


def step_alone(
  backbone: Backbone, optimizer: Optimizer, options: HarmonyOptions
) -> Callable:
  """Builds a Stage's `alone`: the step on l_C, without server and alignment."""

  def alone(client, batches, key):
    del key
    one, two = batches
    start = client.segment
    both = options.client_loss_views == "both"
    (adapted, *early), pull = views(backbone, start, batches, options, both)
    late = split_pass.front(backbone, start._replace(params=adapted), one)
    no_server = jnp.zeros_like(late.features)
    loss, grads = client_side(
      backbone, late, early, start.stats, two, no_server, 1.0, options
    )
    client = optimizers.descend(client, pull(grads), late.stats, optimizer)
    return client, {"client": loss}, {}

  return alone


def _work(options: HarmonyOptions) -> Work:
  """Counts the work of a step.

  A view costs M inner steps and a forward pass. A view that is part of l_C also
  costs the outer backward pass. The early view is computed if alignment or l_C
  needs it.
  """
  inner, aligned = 3 * options.inner_steps, options.csa_weight > 0
  late, both = inner + 3, options.client_loss_views == "both"
  early = late if both else (inner + 1) * aligned
  return Work(
    late + early, 3.0 * (1 + aligned), trips=2, alone=late * (1 + both)
  )


def harmony(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  gamma: float = 0.5,
  lam: float = 0.0,
  inner_lr: float = 0.01,
  inner_steps: int = 3,
  csa_weight: float = 1.0,
  csa_margin: float = 1.0,
  csa_normalize: bool = True,
  client_loss_views: Literal["late", "both"] = "late",
  stochastic_depth: bool = True,
  meta: Literal["fomaml", "maml"] = "fomaml",
  wire_dtype: Literal["float32", "float16", "bfloat16"] = "float16",
  refresh_stats: bool = True,
  server_mean: ServerMean = "touched",
  tuned_on: TunedOn = "epochs",
  lam_exit: float | None = None,
) -> Method:
  """HARMONY; the paper's ablations are options of this function.

  Args:
    backbone: the network.
    optimizer: optimiser of both halves (beta, momentum, weight decay).
    gamma: weight of the client's loss (eq. 8).
    lam: share of its parameters that a client keeps (eq. 2); 0 in HARMONY.
    inner_lr: alpha. 0.05 with 3 steps diverged in a small check.
    inner_steps: M; 0 turns meta-adaptation off.
    csa_weight: weight of l_CSA (eq. 7); 0 turns alignment off.
    csa_margin: m, the margin of l_CSA.
    csa_normalize: whether to scale embeddings to length 1 before l_CSA; the
      paper leaves it open. Raw embeddings with weight 1 and margin 1 diverged.
    client_loss_views: which views the client's loss uses; eq. 8 leaves this
      open. "late" uses the view of the server's loss, "both" averages the
      losses of both views.
    stochastic_depth: whether the early view's depth K is drawn at random.
      False: K is the client's depth.
    meta: "fomaml" moves the unadapted parameters by the gradient at the adapted
      ones; "maml" differentiates through the inner steps (exact, slow).
    wire_dtype: form of the features where wire.features.form is None; the paper
      sends 16 bits.
    refresh_stats: whether personalisation ends by recomputing batch-norm
      statistics on the client's own data.
    server_mean: which copies of a block of theta are averaged. "touched" leaves
      out the copies of clients whose features did not pass the block; such
      copies would hold deep blocks back. "all" is eq. 2 to the letter.
    tuned_on: which samples the personalisation steps take (eq. 5), see
      `finetuning.Tuning`. The default, "epochs", takes mini-batches, since
      the paper's M steps are SGD.
    lam_exit: lam of the exit h alone; None: lam. Eq. 2 prints one lam for both.

  Raises:
    UserError: an option is out of range.

  References:
    HARMONY sections 3.3-3.5 and figure 3.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.optimizers.make("sgd", lr=0.05)
    >>> method = harmony(net, sgd, inner_lr=0.05, inner_steps=5)
    >>> method.traits.views, method.traits.answers
    (2, ('client', 'server'))
  """
  base.require("gamma", gamma, 0 <= gamma <= 1, "in 0..1")
  base.require("csa_weight", csa_weight, csa_weight >= 0, "at least 0")
  base.require("csa_margin", csa_margin, csa_margin > 0, "above 0")
  options = HarmonyOptions(
    gamma=gamma,
    inner_lr=inner_lr,
    inner_steps=inner_steps,
    csa_weight=csa_weight,
    csa_margin=csa_margin,
    csa_normalize=csa_normalize,
    client_loss_views=client_loss_views,
    stochastic_depth=stochastic_depth,
    meta=meta,
  )
  # The config's form of features, if it has one, wins over the paper's.
  backbone = dataclasses.replace(
    backbone, wire=backbone.wire.otherwise(wire_dtype)
  )
  aggregation = base.mean(
    backbone, optimizer, base.keep(lam, lam_exit), server_mean=server_mean
  )
  stage = Stage(
    local_step(backbone, optimizer, options),
    alone=step_alone(backbone, optimizer, options),
    work=_work(options),
  )
  return base.method(
    backbone,
    optimizer,
    (stage,),
    aggregation,
    traits=Traits(views=2, rows=(Row("", True),)),
    tuning=Tuning(inner_lr, inner_steps, refresh_stats, tuned_on),
    begin=base.download(backbone, optimizer, aggregation, head_down=True),
  )
