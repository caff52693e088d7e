"""One forward and one backward pass across the cut, message by message.

Each side has its own `jax.vjp`, with the messages between them. A gradient thus
passes the rounding of a message unchanged (a straight-through estimator).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import wire
from splitjax.methods import optimizers
from splitjax.methods.optimizers import Optimizer
from splitjax.models import backbones
from splitjax.models.backbones import Backbone
from splitjax.types import Array, Batch, Ledger, Segment, Tree


class Front(NamedTuple):
  """The client's forward pass on one batch.

  Attributes:
    features: [B, ...], z = phi(x).
    loss: [] float, l_C = CE(h(phi(x)), y); 0 without an exit.
    stats: block name -> new running statistics.
    pull: maps (dz [B, ...], dl_C []) to gradients of phi and h by block name.
  """

  features: Array
  loss: Array
  stats: dict[str, Tree]
  pull: Callable[[Array, Array], dict[str, Tree]]


class Back(NamedTuple):
  """The server's forward pass on one batch.

  Attributes:
    loss: [] float, l_S = CE(theta(z), y).
    stats: block name -> new running statistics.
    pull: maps dl_S [] to (gradients of theta by block name, dz [B, ...]).
  """

  loss: Array
  stats: dict[str, Tree]
  pull: Callable[[Array], tuple[dict[str, Tree], Array]]


class Pass(NamedTuple):
  """The result of one batch across the cut.

  Attributes:
    client: block name -> gradient of phi and h.
    server: block name -> gradient of theta, for the blocks that ran.
    client_stats: block name -> new running statistics.
    server_stats: block name -> new running statistics.
    losses: "client" and "server" -> [] float, nats.
    ledger: the messages of the batch.
  """

  client: dict[str, Tree]
  server: dict[str, Tree]
  client_stats: dict[str, Tree]
  server_stats: dict[str, Tree]
  losses: dict[str, Array]
  ledger: Ledger


def exit_loss(
  backbone: Backbone, client: Segment, z: Array, batch: Batch
) -> Array:
  """Computes l_C = CE(h(z), y) of a client's exit; 0 if it has none.

  z [B, ...] are the features at the client's cut; l_C is [] float, nats.
  """
  name = backbones.classifier(backbone, client)
  if name is None:
    return jnp.zeros(())
  logits, _ = backbones.run_batch(backbone, client, z, (name,), batch)
  return backbone.mean_loss(logits, batch.label, batch.real)


def front(backbone: Backbone, client: Segment, batch: Batch) -> Front:
  """Runs phi and h on a batch (SplitGP eq. 3, HARMONY eq. 1)."""
  names = backbone.names(0, backbones.depth_of(backbone, client))

  def forward(params):
    segment = client._replace(params=params)
    z, stats = backbones.run_batch(backbone, segment, batch.image, names, batch)
    return (z, exit_loss(backbone, segment, z, batch)), stats

  (z, loss), pull, stats = jax.vjp(forward, client.params, has_aux=True)
  return Front(z, loss, stats, lambda dz, dl: pull((dz, dl))[0])


def back(
  backbone: Backbone, server: Segment, z: Array, depth: int, batch: Batch
) -> Back:
  """Runs theta behind a cut on received features z [B, ...]."""
  names = (*backbone.names(depth), "head")

  def forward(params, z):
    segment = server._replace(params=params)
    logits, stats = backbones.run_batch(backbone, segment, z, names, batch)
    return backbone.mean_loss(logits, batch.label, batch.real), stats

  params = {name: server.params[name] for name in names}
  loss, pull, stats = jax.vjp(forward, params, z, has_aux=True)
  return Back(loss, stats, pull)


def local_loss(
  backbone: Backbone, params: dict[str, Tree], stats: dict, batch: Batch
) -> Array:
  """Computes CE((h o phi)(x), y), [] float, nats; drops new statistics.

  `params` and `stats` are those of phi and h by block name.
  """
  client = Segment(params, stats)
  names = backbone.names(0, backbones.depth_of(backbone, client))
  z, _ = backbones.run_batch(backbone, client, batch.image, names, batch)
  return exit_loss(backbone, client, z, batch)


def split_pass(
  backbone: Backbone,
  client: Segment,
  server: Segment,
  batch: Batch,
  *,
  gamma: float,
) -> Pass:
  """Computes the gradient of gamma l_C + (1 - gamma) l_S across the cut.

  SplitGP eq. 3-8; HARMONY eq. 1 and 8.

  Args:
    backbone: the network.
    client: phi and, where gamma > 0, h.
    server: theta from the shallowest cut on; only the blocks behind the
      client's cut run.
    batch: one batch.
    gamma: weight of the client's loss; 1 - gamma is the server's.

  Example:
    >>> import jax, jax.numpy as jnp, splitjax
    >>> from splitjax.models import backbones, drawing
    >>> net = splitjax.BACKBONES["toy"]((2, 2, 1), classes=3)
    >>> full = drawing.init(net, jax.random.key(0))
    >>> own = backbones.prefix(net, full, 1)
    >>> rest = backbones.suffix(net, full, 1)
    >>> label, real = jnp.array([0, 1, 1, 2]), jnp.ones(4, bool)
    >>> batch = splitjax.types.Batch(jnp.ones((4, 4)), label, real)
    >>> passed = splitjax.split_pass(net, own, rest, batch, gamma=0.5)
    >>> sorted(passed.client), sorted(passed.losses)
    (['block1', 'exit1'], ['client', 'server'])
  """
  # Client: x -> z and l_C.
  near = front(backbone, client, batch)
  # Features and labels go up.
  z, up = wire.send(backbone.wire, "up/features", near.features, batch)
  # Server: z -> l_S and its gradient.
  far = back(backbone, server, z, backbones.depth_of(backbone, client), batch)
  theta, dz = far.pull(jnp.asarray(1 - gamma, float))
  # The features' gradient goes down.
  dz, down = wire.send(backbone.wire, "down/feature_gradient", dz, batch)
  # Client: dz and l_C -> the gradient of phi and h.
  return Pass(
    client=near.pull(dz, jnp.asarray(gamma, float)),
    server=theta,
    client_stats=near.stats,
    server_stats=far.stats,
    losses={"client": near.loss, "server": far.loss},
    ledger=wire.merge(up, wire.labels(batch.real), down),
  )


def split_step(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  gamma: float = 0.0,
  l2: tuple[float, float] = (0.0, 0.0),
) -> Callable:
  """Builds a Stage's `step`: both halves descend gamma l_C + (1 - gamma) l_S.

  With gamma = 0 it is the step of SplitFed, whose clients have no exit.

  Args:
    backbone: the network.
    optimizer: optimiser of both halves.
    gamma: weight of the client's loss.
    l2: factors of |phi|^2 / 2 and |theta|^2 / 2 in the loss.
  """

  def step(client, server, batches, key):
    del key
    phi, theta = client.segment, server.segment
    one = split_pass(backbone, phi, theta, batches[0], gamma=gamma)
    down = _with_l2(one.server, theta, l2[1])
    server = optimizers.descend(server, down, one.server_stats, optimizer)
    own = _with_l2(one.client, phi, l2[0])
    client = optimizers.descend(client, own, one.client_stats, optimizer)
    losses = one.losses
    if backbones.classifier(backbone, phi) is None:
      losses = {"server": losses["server"]}
    return client, server, losses, one.ledger

  return step


def _with_l2(
  grads: dict[str, Tree], segment: Segment, l2: float
) -> dict[str, Tree]:
  """Adds the gradient of l2 / 2 times the squared norm of the parameters."""
  if not l2:
    return grads
  return {
    name: jax.tree.map(lambda g, w: g + l2 * w, grad, segment.params[name])
    for name, grad in grads.items()
  }
