"""HARMONY: heterogeneity-aware hybrid split federated learning.

Meta-adaptation simulates two personalised extractors per step; one of them
offloads at a random depth; the server aligns both views by class; the labels
stay with the client. The paper calls the early view dagger, the full one double
dagger; here they are `early` and `late`.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from splitjax import backbone as bb
from splitjax import losses, protocol, trees, wire
from splitjax.backbone import Backbone
from splitjax.methods import base
from splitjax.methods.base import Optimizer
from splitjax.types import Array, Batch, Ledger, Method, Row, Segment, Tree
from splitjax.wire import WireDtype


class Options(NamedTuple):
  """HARMONY's hyperparameters; `harmony` says what each is."""

  gamma: float
  inner_lr: float
  inner_steps: int
  csa_weight: float
  csa_margin: float
  csa_normalize: bool
  client_loss_views: str
  stochastic_depth: bool
  meta: str
  wire_dtype: str

  @property
  def early(self) -> bool:
    """Whether anything needs the early view."""
    return self.csa_weight > 0 or self.client_loss_views == "both"


class Early(NamedTuple):
  """The early view at the server.

  Attributes:
    embedding: [B, D], z_S of the early view.
    pull: d embedding -> block name -> gradient of theta's trunk.
    passed: block name -> [] bool.
    ledger: what was sent for it.
  """

  embedding: Array
  pull: Callable[[Array], tuple[dict[str, Tree]]]
  passed: dict[str, Array]
  ledger: Ledger


class Server(NamedTuple):
  """What a step does at the server.

  Attributes:
    grads: block name -> gradient of (1 - gamma) l_S + weight l_CSA.
    stats: block name -> running statistics, written by the late view alone.
    passed: block name -> [] bool; None if only the late view passed.
    dz: gradient of (1 - gamma) l_S at the features of the late view.
    losses: "server", and "csa" where it is on.
    ledger: the messages.
  """

  grads: dict[str, Tree]
  stats: dict[str, Tree]
  passed: dict[str, Array] | None
  dz: Array
  losses: dict[str, Array]
  ledger: Ledger


def adapt(
  backbone: Backbone,
  client: Segment,
  batches: tuple[Batch, ...],
  options: Options,
) -> tuple[dict[str, Tree], ...]:
  """Adapt((phi, h); B): M plain SGD steps on a batch (HARMONY eq. 3).

  Args:
    backbone: the network.
    client: where every adaptation starts from.
    batches: one for each adaptation; they run side by side.
    options: hyperparameters.

  Returns:
    For each batch, block name -> adapted parameters. Running statistics are
    not written.
  """

  def one(batch):
    def inner(segment, _):
      return base.plain_step(backbone, segment, batch, options.inner_lr), None

    segment, _ = jax.lax.scan(inner, client, None, length=options.inner_steps)
    return segment.params

  params = jax.vmap(one)(jax.tree.map(lambda *x: jnp.stack(x), *batches))
  return tuple(trees.take(params, i) for i in range(len(batches)))


def early_view(
  backbone: Backbone,
  client: Segment,
  server: Segment,
  batch: Batch,
  key: Array,
  options: Options,
) -> Early:
  """Stochastic early feature extraction (HARMONY eq. 4 and 6).

  K is uniform over the fleet's cuts that are <= the client's depth, drawn per
  client and step; the features enter the server at depth K. Nothing of this
  has a gradient at the client.
  """
  depth = bb.depth_of(backbone, client)
  cuts = tuple(c for c in backbone.cuts if c <= depth)
  if not options.stochastic_depth:
    cuts = (depth,)
  k = jnp.asarray(cuts)[jax.random.randint(key, (), 0, len(cuts))]
  taps = bb.taps(
    backbone, client, batch.image, cuts, train=True, real=batch.real
  )
  ledger: Ledger = {}
  for cut in cuts:
    taps[cut], up = wire.send(
      "up/features", taps[cut], batch.real, options.wire_dtype
    )
    ledger = wire.merge(ledger, wire.weigh(up, k == cut))

  def trunk(params):
    z, _, passed = bb.inject(
      backbone,
      server._replace(params=params),
      taps,
      k,
      train=True,
      real=batch.real,
    )
    return z.reshape(z.shape[0], -1), passed

  names = backbone.names(cuts[0])
  embedding, pull, passed = jax.vjp(
    trunk, {name: server.params[name] for name in names}, has_aux=True
  )
  return Early(embedding, pull, passed, ledger)


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
  """The U-shaped task loss and contrastive alignment (HARMONY eq. 7-8).

  The server sends its embedding down; the client evaluates the loss with its
  copy of the head and its private labels, and returns the gradients. CSA
  stops at the features: it moves theta's trunk alone.

  Args:
    backbone: the network.
    server: the client's copy of theta.
    depth: the client's cut.
    features: [B, ...] of the late view, as received.
    batch: y1 and the mask; the client's side of the U.
    early: the early view, None with CSA off.
    same: [B] bool, I = 1[y1 = y2].
    options: hyperparameters.
  """
  names = backbone.names(depth)

  def trunk(params, z):
    segment = server._replace(params=params)
    e, stats = bb.run(backbone, segment, z, names, train=True, real=batch.real)
    return e.reshape(e.shape[0], -1), stats

  params = {name: server.params[name] for name in names}
  e, pull, stats = jax.vjp(trunk, params, features, has_aux=True)
  received, down = wire.send("down/embeddings", e, batch.real)

  def task(head, e):
    segment = Segment({"head": head}, {"head": server.stats["head"]})
    logits, _ = bb.run(backbone, segment, e, ("head",), train=True)
    return losses.cross_entropy(logits, batch.label, batch.real)

  loss, pull_task = jax.vjp(task, server.params["head"], received)
  d_head, d_e = pull_task(jnp.float32(1 - options.gamma))
  d_e, up = wire.send("up/embedding_gradient", d_e, batch.real)
  ledger = wire.merge(down, up, wire.parameters("up/head_gradient", d_head))
  _, dz = pull(d_e)
  dz, down = wire.send("down/feature_gradient", dz, batch.real)
  ledger = wire.merge(ledger, down)
  if early is None:
    grads = {**pull(d_e)[0], "head": d_head}
    return Server(grads, stats, None, dz, {"server": loss}, ledger)

  def align(a, b):
    return options.csa_weight * losses.csa(
      a,
      b,
      same,
      batch.real,
      margin=options.csa_margin,
      normalize=options.csa_normalize,
    )

  csa, (d_early, d_late) = jax.value_and_grad(align, (0, 1))(early.embedding, e)
  (grads,) = early.pull(d_early)
  late = pull(d_e + d_late)[0]
  for name in names:
    grads[name] = jax.tree.map(jnp.add, grads[name], late[name])
  return Server(
    {**grads, "head": d_head},
    stats,
    {**early.passed, "head": jnp.bool_(True)},
    dz,
    {"server": loss, "csa": csa / options.csa_weight},
    wire.merge(ledger, early.ledger, wire.match(batch.real)),
  )


def local_step(
  backbone: Backbone, optimizer: Optimizer, options: Options
) -> Callable:
  """One local step of HARMONY, a Method's `step` (two batches)."""

  def step(client, server, batches, key):
    one, two = batches
    start = client.segment

    def adapted(params):
      # Crossed: the late view, adapted to B2, will see x1; the early one x2.
      of = (two, one) if options.early else (two,)
      return adapt(backbone, start._replace(params=params), of, options)

    exact = options.meta == "maml"
    if exact:
      (late, *early), pull_adapt = jax.vjp(adapted, start.params)
    else:
      late, *early = adapted(start.params)
    fore = protocol.front(backbone, start._replace(params=late), one)
    z, up = wire.send(
      "up/features", fore.features, one.real, options.wire_dtype
    )
    seen = None
    if options.csa_weight > 0:
      segment = start._replace(params=early[0])
      seen = early_view(backbone, segment, server.segment, two, key, options)
    back = server_side(
      backbone,
      server.segment,
      bb.depth_of(backbone, start),
      z,
      one,
      seen,
      one.label == two.label,
      options,
    )

    both = options.client_loss_views == "both"
    share = options.gamma * (0.5 if both else 1.0)
    loss = fore.loss
    grads = [fore.pull(back.dz, jnp.float32(share))]
    if both:
      other, at_early = jax.value_and_grad(protocol.local_loss, argnums=1)(
        backbone, early[0], start.stats, two
      )
      loss = 0.5 * (loss + other)
      grads.append(trees.scale(jnp.float32(share), at_early))
    elif early:
      grads.append(jax.tree.map(jnp.zeros_like, early[0]))
    # FOMAML takes the gradient at the adapted point as if it were the start's.
    if exact:
      (meta,) = pull_adapt(tuple(grads))
    else:
      meta = jax.tree.map(lambda *g: sum(g), *grads)

    client = base.descend(client, meta, fore.stats, optimizer.tx)
    server = base.descend(
      server, back.grads, back.stats, optimizer.tx, back.passed
    )
    return (
      client,
      server,
      {"client": loss, **back.losses},
      wire.merge(up, back.ledger),
    )

  return step


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
  wire_dtype: WireDtype = "float16",
  refresh_stats: bool = True,
) -> Method:
  """HARMONY. The paper's ablations are options of this one function.

  Args:
    backbone: the network.
    optimizer: of both halves (beta, momentum, weight decay).
    gamma: weight of the client's loss (eq. 8).
    lam: share of itself that a client keeps (eq. 2); HARMONY's is 0.
    inner_lr: alpha. 0.05 with 3 steps diverged in a small check.
    inner_steps: M; 0 turns meta-adaptation off.
    csa_weight: of l_CSA; 0 turns alignment off.
    csa_margin: m.
    csa_normalize: scale embeddings to length 1 before l_CSA. The paper does
      not say; raw embeddings with weight 1 and margin 1 diverged.
    client_loss_views: views in the client's loss. The paper's eq. 8 leaves it
      open: "late" is the view the server's loss is on, "both" adds the other,
      averaged.
    stochastic_depth: draw the early view's depth K; False: the client's own.
    meta: "fomaml" applies the gradient at the adapted point to the start,
      "maml" differentiates through the inner steps (exact, slow).
    wire_dtype: width of the features on the wire; the paper sends 16 bits.
    refresh_stats: renew batch-norm statistics in the final personalisation.

  References:
    HARMONY sections 3.3-3.5 and figure 3.
  """
  base.check("gamma", gamma, 0 <= gamma <= 1, "in 0..1")
  base.check("csa_weight", csa_weight, csa_weight >= 0, "at least 0")
  base.check("csa_margin", csa_margin, csa_margin > 0, "above 0")
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
    wire_dtype=wire_dtype,
  )
  return base.method(
    backbone,
    optimizer,
    local_step(backbone, optimizer, options),
    keep=lam,
    inner_lr=inner_lr,
    inner_steps=inner_steps,
    refresh_stats=refresh_stats,
    rows=(Row("", True),),
    views=2,
    head_down=True,
  )
