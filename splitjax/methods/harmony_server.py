"""The server's side of HARMONY: early view, U-shaped task loss, alignment.

The early view enters the server at a random depth. The late view carries the
task loss, whose labels stay with the client. l_CSA compares both views; it
trains the server's trunk alone. `harmony_client.py` is the client's side.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import wire
from splitjax.losses import csa
from splitjax.models import backbones, drawn_cut
from splitjax.models.backbones import Backbone
from splitjax.types import Array, Batch, Ledger, Segment, Tree


class HarmonyOptions(NamedTuple):
  """HARMONY's hyperparameters, described in `harmony.harmony`."""

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


def early_view(
  backbone: Backbone,
  client: Segment,
  server: Segment,
  batch: Batch,
  key: Array,
  options: HarmonyOptions,
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


def server_side(
  backbone: Backbone,
  server: Segment,
  depth: int,
  features: Array,
  batch: Batch,
  early: Early | None,
  same: Array,
  options: HarmonyOptions,
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
