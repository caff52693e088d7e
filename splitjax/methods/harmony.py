"""HARMONY: heterogeneity-aware hybrid split federated learning.

In every step meta-adaptation simulates two personalised extractors, one per
view. The early view's features enter the server at a random depth, the late
view's at the client's cut, and the server aligns both views by class. Labels
stay with the client. The paper marks the early view by a dagger, the late one
by a double dagger.

The file reads in the paper's order: adaptation (eq. 3) and the views, the early
view at the server (eq. 4 and 6), the task loss and alignment (eq. 7), the
client's loss (eq. 8), the step that joins them, and the method.
"""

import dataclasses
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.losses import csa
from splitjax.methods import base, finetuning, optimizers, split_pass
from splitjax.methods.aggregations import ServerMean
from splitjax.methods.finetuning import Tuning
from splitjax.methods.optimizers import Optimizer
from splitjax.models import backbones, drawn_cut, target
from splitjax.models.backbones import Backbone
from splitjax.types import (
  Array,
  Batch,
  Ledger,
  Method,
  Row,
  Segment,
  Stage,
  Traits,
  Tree,
  Work,
)


class Options(NamedTuple):
  """HARMONY's hyperparameters, described in `harmony`."""

  gamma: float
  inner_lr: float
  inner_steps: int
  csa_weight: float
  csa_margin: float
  csa_normalize: bool
  client_loss_views: str
  stochastic_depth: bool
  meta: str

  @property
  def early(self) -> bool:
    """Tells whether the early view is needed."""
    return self.csa_weight > 0 or self.client_loss_views == "both"


def adapt(
  backbone: Backbone,
  client: Segment,
  batches: tuple[Batch, ...],
  options: Options,
) -> tuple[dict[str, Tree], ...]:
  """Computes Adapt((phi, h); B): M plain SGD steps on a batch (HARMONY eq. 3).

  M times (phi, h) <- (phi, h) - alpha grad CE((h o phi)(x), y). Each batch has
  its own adaptation; all start from `client`.

  Returns:
    For each batch, block name -> adapted parameters of phi and h. Running
    statistics do not change.
  """

  def one(batch):
    def inner(segment, _):
      return finetuning.sgd_step(
        backbone, segment, batch, options.inner_lr
      ), None

    segment, _ = jax.lax.scan(inner, client, None, length=options.inner_steps)
    return segment.params

  stacked = jax.tree.map(lambda *x: jnp.stack(x), *batches)
  # On a CPU one after the other: a view's activations stay in the CPU's cache.
  if target.current().platform == "cpu":
    params = jax.lax.map(one, stacked)
  else:
    params = jax.vmap(one)(stacked)
  return tuple(trees.take(params, i) for i in range(len(batches)))


def views(
  backbone: Backbone,
  start: Segment,
  batches: tuple[Batch, ...],
  options: Options,
  early: bool,
) -> tuple[list[dict[str, Tree]], Callable]:
  """Adapts the client for each view; builds the function for the meta-gradient.

  `start` is the client before the step, `batches` are B1 and B2. The views are
  crossed: the late view is adapted to B2 and takes x1. If `early` is true,
  there is also an early view, which is adapted to B1 and takes x2.

  Returns:
    The adapted parameters by block name, for the late view and, if `early`, for
    the early view. Also a function that maps the list of gradients at these
    parameters to the gradient at `start`, by MAML or FOMAML.
  """
  one, two = batches

  def adapted(params):
    adapt_to = (two, one) if early else (two,)
    return adapt(backbone, start._replace(params=params), adapt_to, options)

  if options.meta == "maml":
    params, pull = jax.vjp(adapted, start.params)
    return list(params), lambda grads: pull(tuple(grads))[0]
  # FOMAML applies the gradient at the adapted point to the start.
  return list(adapted(start.params)), lambda grads: jax.tree.map(
    lambda *g: sum(g), *grads
  )


class Early(NamedTuple):
  """The early view at the server.

  Attributes:
    embedding: [B, D], z_S of the early view.
    pull: maps the gradient at the embedding to the gradients of theta's trunk,
      by block name.
    passed: block name -> [] bool, whether the view passed the block.
    ledger: the view's messages.
  """

  embedding: Array
  pull: Callable[[Array], tuple[dict[str, Tree]]]
  passed: dict[str, Array]
  ledger: Ledger


def early_view(
  backbone: Backbone,
  client: Segment,
  server: Segment,
  batch: Batch,
  key: Array,
  options: Options,
) -> Early:
  """Computes the early view, cut at a random depth K (HARMONY eq. 4 and 6).

  K is drawn for every client and step, uniformly from the fleet's cuts up to
  the client's depth; without stochastic_depth it is the client's depth. The
  features enter the server at depth K. No gradient of the view reaches the
  client.

  `client` holds phi of the early view, `server` the client's copy of theta;
  `batch` is B2, and the step's `key` [] draws K.
  """
  # K, and the features at every cut that K may be.
  depth = backbones.depth_of(backbone, client)
  cuts = tuple(c for c in backbone.cuts if c <= depth)
  if not options.stochastic_depth:
    cuts = (depth,)
  k = jnp.asarray(cuts, jnp.int32)[
    jax.random.randint(key, (), 0, len(cuts), jnp.int32)
  ]
  taps = drawn_cut.taps(
    backbone,
    client,
    batch.image,
    cuts,
    train=True,
    real=batch.real,
    key=batch.key,
    last=k,
  )

  # The client sends the features at K alone.
  taps, ledger = wire.send_one(backbone.wire, "up/features", taps, k, batch)

  # The server's trunk from depth K on.
  def trunk(params):
    z, _, passed = drawn_cut.inject(
      backbone,
      server._replace(params=params),
      taps,
      k,
      train=True,
      real=batch.real,
      key=batch.key,
    )
    return z.reshape(z.shape[0], -1), passed

  names = backbone.names(cuts[0])
  embedding, pull, passed = jax.vjp(
    trunk, {name: server.params[name] for name in names}, has_aux=True
  )
  return Early(embedding, pull, passed, ledger)


class Server(NamedTuple):
  """The result of a step at the server.

  Attributes:
    grads: block name -> gradient of (1 - gamma) l_S + csa_weight l_CSA.
    stats: block name -> running statistics, of the late view alone.
    passed: block name -> [] bool, whether a view passed the block; None: all
      blocks in `grads` were passed.
    dz: [B, ...], gradient of (1 - gamma) l_S at the late view's features.
    losses: "server" and, with alignment, "csa" -> [] float.
    ledger: the messages.
  """

  grads: dict[str, Tree]
  stats: dict[str, Tree]
  passed: dict[str, Array] | None
  dz: Array
  losses: dict[str, Array]
  ledger: Ledger


def server_side(
  backbone: Backbone,
  server: Segment,
  depth: int,
  features: Array,
  batch: Batch,
  early: Early | None,
  same: Array,
  options: Options,
) -> Server:
  """Computes the U-shaped task loss and l_CSA (HARMONY eq. 7-8).

  The server sends its embedding down. The client evaluates the loss with its
  copy of the head and its private labels, and returns the gradients. The
  gradient of l_CSA stops at the features: it trains theta's trunk alone.

  Args:
    backbone: the network.
    server: the client's copy of theta.
    depth: the client's cut.
    features: [B, ...] of the late view, as received.
    batch: B1, whose labels and mask the client uses.
    early: the early view; None if alignment is off.
    same: [B] bool, I = 1[y1 = y2].
    options: hyperparameters.
  """
  # Server: the embedding of the late view, which goes down.
  names = backbone.names(depth)

  def trunk(params, z):
    segment = server._replace(params=params)
    e, stats = backbones.run_batch(backbone, segment, z, names, batch)
    return e.reshape(e.shape[0], -1), stats

  params = {name: server.params[name] for name in names}
  e, pull, stats = jax.vjp(trunk, params, features, has_aux=True)
  received, down = wire.send(backbone.wire, "down/embeddings", e, batch)

  # Client: the task loss; gradients of head and embedding go up.
  def task(head, e):
    segment = Segment({"head": head}, {"head": server.stats["head"]})
    logits, _ = backbones.run(
      backbone, segment, e, ("head",), train=True, key=batch.key
    )
    return backbone.mean_loss(logits, batch.label, batch.real)

  loss, pull_task = jax.vjp(task, server.params["head"], received)
  d_head, d_e = pull_task(jnp.asarray(1 - options.gamma, float))
  d_e, up = wire.send(backbone.wire, "up/embedding_gradient", d_e, batch)
  ledger = wire.merge(down, up, wire.parameters("up/head_gradient", d_head))

  # Server: the gradient at the features goes down.
  _, dz = pull(d_e)
  dz, down = wire.send(backbone.wire, "down/feature_gradient", dz, batch)
  ledger = wire.merge(ledger, down)
  if early is None:
    grads = {**pull(d_e)[0], "head": d_head}
    return Server(grads, stats, None, dz, {"server": loss}, ledger)

  # Server: alignment of both embeddings.
  def align(a, b):
    return options.csa_weight * csa(
      a,
      b,
      same,
      batch.real,
      margin=options.csa_margin,
      normalize=options.csa_normalize,
    )

  aligned, (d_early, d_late) = jax.value_and_grad(align, (0, 1))(
    early.embedding, e
  )
  (grads,) = early.pull(d_early)  # of all blocks; 0 where not passed
  late = pull(d_e + d_late)[0]
  for name in names:
    grads[name] = jax.tree.map(jnp.add, grads[name], late[name])
  return Server(
    {**grads, "head": d_head},
    stats,
    {**early.passed, "head": jnp.bool_(True)},
    dz,
    {"server": loss, "csa": aligned / options.csa_weight},
    wire.merge(ledger, early.ledger, wire.match(same, batch.real)),
  )


def client_side(
  backbone: Backbone,
  late: split_pass.Front,
  early: list[dict[str, Tree]],
  stats: dict[str, Tree],
  batch: Batch,
  dz: Array,
  weight: float,
  options: Options,
) -> tuple[Array, list[dict[str, Tree]]]:
  """Computes the client's loss and its gradients at each view's parameters.

  Args:
    backbone: the network.
    late: the late view's forward pass, on B1.
    early: parameters of the early view; empty if it is not needed.
    stats: the client's running statistics.
    batch: the early view's input, B2.
    dz: [B, ...] gradient of (1 - gamma) l_S at the late view's features.
    weight: weight of the client's loss: gamma, or 1 without the server.
    options: hyperparameters.

  Returns:
    l_C [] float, nats, the loss of the late view or the mean over both views.
    Also a list with the gradients by block name: first at the late view's
    parameters, then, if there is an early view, at its parameters.
  """
  both = options.client_loss_views == "both"
  share = jnp.asarray(weight * (0.5 if both else 1.0), float)
  loss, grads = late.loss, [late.pull(dz, share)]
  if both:
    other, at_early = jax.value_and_grad(split_pass.local_loss, argnums=1)(
      backbone, early[0], stats, batch
    )
    loss = 0.5 * (loss + other)
    grads.append(trees.scale(share, at_early))
  elif early:
    grads.append(jax.tree.map(jnp.zeros_like, early[0]))
  return loss, grads


def local_step(
  backbone: Backbone, optimizer: Optimizer, options: Options
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
  backbone: Backbone, optimizer: Optimizer, options: Options
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


def _work(options: Options) -> Work:
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

  Raises:
    UserError: an option is out of range.

  References:
    HARMONY sections 3.3-3.5 and figure 3.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = harmony(net, sgd, inner_lr=0.05, inner_steps=5)
    >>> method.traits.views, method.traits.answers
    (2, ('client', 'server'))
  """
  base.require("gamma", gamma, 0 <= gamma <= 1, "in 0..1")
  base.require("csa_weight", csa_weight, csa_weight >= 0, "at least 0")
  base.require("csa_margin", csa_margin, csa_margin > 0, "above 0")
  options = Options(
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
  aggregation = base.mean(backbone, lam, server_mean=server_mean)
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
    tuning=Tuning(inner_lr, inner_steps, refresh_stats),
    begin=base.download(backbone, optimizer, aggregation, head_down=True),
  )
