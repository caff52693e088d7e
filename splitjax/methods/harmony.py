"""HARMONY: heterogeneity-aware hybrid split federated learning.

Meta-adaptation simulates two personalised extractors per step; one of them
offloads at a random depth; the server aligns both views by class; the labels
stay with the client. The paper calls the early view dagger, the full one double
dagger; here they are `early` and `late`.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.methods import base, finetune, split_pass
from splitjax.methods import optimizer as optimizers
from splitjax.methods.harmony_server import Options, early_view, server_side
from splitjax.methods.optimizer import Optimizer
from splitjax.models import backbone as bb
from splitjax.models.backbone import Backbone
from splitjax.types import Array, Batch, Method, Row, Segment, Tree
from splitjax.wire import WireDtype


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
      return finetune.plain_step(
        backbone, segment, batch, options.inner_lr
      ), None

    segment, _ = jax.lax.scan(inner, client, None, length=options.inner_steps)
    return segment.params

  params = jax.vmap(one)(jax.tree.map(lambda *x: jnp.stack(x), *batches))
  return tuple(trees.take(params, i) for i in range(len(batches)))


def views(
  backbone: Backbone,
  start: Segment,
  batches: tuple[Batch, ...],
  options: Options,
  early: bool,
) -> tuple[list[dict[str, Tree]], Callable]:
  """Adapts the client to both batches, and knows the way back.

  Args:
    backbone: the network.
    start: the client before the step.
    batches: B1 and B2. Crossed: the late view, adapted to B2, will see x1; the
      early one x2.
    options: hyperparameters.
    early: whether anything needs the early view.

  Returns:
    Parameters of the late view, and of the early one if it is needed; and a
    function from their gradients to that of the start.
  """
  one, two = batches

  def adapted(params):
    of = (two, one) if early else (two,)
    return adapt(backbone, start._replace(params=params), of, options)

  if options.meta == "maml":
    found, pull = jax.vjp(adapted, start.params)
    return list(found), lambda grads: pull(tuple(grads))[0]
  # FOMAML takes the gradient at the adapted point as if it were the start's.
  return list(adapted(start.params)), lambda grads: jax.tree.map(
    lambda *g: sum(g), *grads
  )


def client_side(
  backbone: Backbone,
  fore: split_pass.Front,
  early: list[dict[str, Tree]],
  stats: dict[str, Tree],
  batch: Batch,
  dz: Array,
  weight: float,
  options: Options,
) -> tuple[Array, list[dict[str, Tree]]]:
  """The client's loss and its gradients, at every view that there is.

  Args:
    backbone: the network.
    fore: the late view.
    early: parameters of the early view, if there is one.
    stats: the client's running statistics.
    batch: what the early view sees.
    dz: [B, ...] gradient of the server's loss at the late view's features.
    weight: of the client's loss.
    options: hyperparameters.
  """
  both = options.client_loss_views == "both"
  share = jnp.asarray(weight * (0.5 if both else 1.0), float)
  loss, grads = fore.loss, [fore.pull(dz, share)]
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
  """One local step of HARMONY, a Method's `step` (two batches)."""

  def step(client, server, batches, key):
    one, two = batches
    start = client.segment
    (late, *early), pull = views(
      backbone, start, batches, options, options.early
    )
    fore = split_pass.front(backbone, start._replace(params=late), one)
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
    of = backbone, fore, early, start.stats, two
    loss, grads = client_side(*of, back.dz, options.gamma, options)
    client = optimizers.descend(client, pull(grads), fore.stats, optimizer)
    server = optimizers.descend(
      server, back.grads, back.stats, optimizer, back.passed
    )
    told = {"client": loss, **back.losses}
    return client, server, told, wire.merge(up, back.ledger)

  return step


def step_alone(
  backbone: Backbone, optimizer: Optimizer, options: Options
) -> Callable:
  """The step without a server, a Method's `alone`: l_C alone, no alignment."""

  def alone(client, batches, key):
    del key
    one, two = batches
    start = client.segment
    both = options.client_loss_views == "both"
    (late, *early), pull = views(backbone, start, batches, options, both)
    fore = split_pass.front(backbone, start._replace(params=late), one)
    nothing = jax.tree.map(jnp.zeros_like, fore.features)
    of = backbone, fore, early, start.stats, two
    loss, grads = client_side(*of, nothing, 1.0, options)
    client = optimizers.descend(client, pull(grads), fore.stats, optimizer)
    return client, {"client": loss}, {}

  return alone


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
    refresh_stats: personalising ends with statistics of D_n, see `tuning`.

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
    alone=step_alone(backbone, optimizer, options),
  )
