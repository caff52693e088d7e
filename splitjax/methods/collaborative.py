"""FedAMP and FedGH: the server mixes the clients' networks, or trains a head.

Clients hold the whole network.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.methods import aggregations, base, optimizers, prototypes
from splitjax.methods.optimizers import Optimizer
from splitjax.models.backbones import Backbone
from splitjax.models.block import own_norm
from splitjax.types import Aggregation, Array, Half, Method, Segment, Tree

PULL = 0.1
"""FedAMP's lam / alpha_k where lam is not given."""


def fedamp(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  sigma: float | None = None,
  alpha_k: float | None = None,
  lam: float | None = None,
) -> Method:
  """FedAMP: in a client's cloud model, similar networks have more weight.

  The cloud model is u_i = (1 - sum_{j != i} a_ij) w_i + sum_{j != i} a_ij w_j
  with a_ij = alpha_k A'(|w_i - w_j|^2), A(x) = 1 - e^(-x / sigma), so A'(x) =
  e^(-x / sigma) / sigma (eq. 4-6). The client then starts at u_i and finds
  w_i = argmin F_i(w) + lam / (2 alpha_k) |w - u_i|^2 by SGD (eq. 7). j runs
  over the participants of the round. u_i must be a convex combination: if the
  a_ij of a client add up to more than 1, they are divided by their sum, and
  nothing of w_i is left in u_i.

  The paper tunes all three options; the defaults are ours. The defaults follow
  the squared distance between networks, because it differs by orders of
  magnitude between settings. On one small network it was 0.1 or 12, depending
  on the weight of the proximal term.

  Args:
    backbone: the network.
    optimizer: the client's optimiser.
    sigma: scale of A; None: the mean squared distance between two participants
      of the round. It must be of that order: a far larger sigma gives all other
      participants the same weight, a far smaller one gives them none.
    alpha_k: the step size; None: sigma divided by the number of participants.
      alpha_k / sigma is the largest weight that another participant can have.
    lam: weight of the proximal term; None: alpha_k / 10. lam / alpha_k
      multiplies w - u_i in the gradient: it should be well below 1, or the pull
      undoes the training. One public implementation detaches the term, so that
      it has no gradient and FedAMP is nearly Local.

  Raises:
    UserError: an option is out of range, or `lam` is given without `alpha_k`.

  References:
    Huang et al., Personalized Cross-Silo Federated Learning on Non-IID Data,
    AAAI 2021.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = fedamp(net, sgd, sigma=0.1, alpha_k=1.0, lam=0.1)
    >>> method.traits.depth
    'full'
  """
  base.require("sigma", sigma, sigma is None or sigma > 0, "above 0")
  base.require("alpha_k", alpha_k, alpha_k is None or alpha_k > 0, "above 0")
  base.require("lam", lam, lam is None or lam >= 0, "at least 0")
  given = lam is None or alpha_k is not None
  base.require("lam", lam, given, "None where alpha_k is None")
  pull = PULL if lam is None or alpha_k is None else lam / alpha_k
  aggregation = attention(sigma, alpha_k)

  def cloud(client: Half) -> Segment:
    return own_norm(backbone.local_norm, client.memory, client.segment)

  def arrive(client, server, samples, round, key):
    return client._replace(segment=cloud(client)), server, {}

  def proximal(client: Half):
    return base.pull(pull, client.segment.params, cloud(client).params)

  return base.method(
    backbone,
    optimizer,
    (base.client_stage(backbone, optimizer, add=proximal),),
    aggregation,
    traits=base.FULL,
    begin=base.download(backbone, optimizer, aggregation, before=arrive),
    client_memory=lambda full, fleet: base.whole_network(backbone, full),
  )


def attention(sigma: float | None, alpha_k: float | None) -> Aggregation:
  """FedAMP's message passing: u_i becomes the memory of client i.

  `sigma` and `alpha_k` are as in `fedamp`.
  """

  def weights(params: Tree, active: Array) -> Array:
    """Computes a_ij [N, N]: 0 on the diagonal and for inactive clients."""

    def square(one):  # loops over clients: [N, N, parameters] does not fit
      gaps = jax.tree.map(
        lambda w, own: jnp.square(w - own).reshape(len(w), -1).sum(axis=1),
        params,
        one,
      )
      return sum(jax.tree.leaves(gaps))

    # Squared distances, and the a_ij of eq. 4-6.
    apart = jax.lax.map(square, params)
    others = (
      active[:, None] & active[None, :] & ~jnp.eye(len(active), dtype=bool)
    )
    mean = jnp.where(others, apart, 0.0).sum() / jnp.maximum(others.sum(), 1)
    mean = jnp.where(mean > 0, mean, 1.0)  # 0 if all networks are equal
    scale = mean if sigma is None else jnp.asarray(sigma)
    share = 1 / jnp.maximum(active.sum(), 1)
    most = share if alpha_k is None else alpha_k / scale
    a = jnp.where(others, most * jnp.exp(-apart / scale), 0.0)
    return a / jnp.maximum(a.sum(axis=1, keepdims=True), 1.0)

  def clients(half, active, sums, server):
    del sums, server
    a = weights(half.segment.params, active)
    mix = a + jnp.diag(1 - a.sum(axis=1))
    cloud = aggregations.combine(mix, half.segment)
    return half._replace(memory=trees.where(active, cloud, half.memory))

  return Aggregation(aggregations.no_sums, aggregations.same_server, clients)


def fedgh(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  server_lr: float = 0.01,
) -> Method:
  """FedGH: bodies are private; the server trains one head on class means.

  Every client starts with the global head, trains its whole network and sends
  p_il, the mean feature of each class l that it holds. The server takes one SGD
  step on CE(h(p_il), l) for each client i and each of its classes l, in the
  order of the clients and classes. It then sends the head to all clients.

  Args:
    backbone: the network.
    optimizer: the client's optimiser.
    server_lr: eta, learning rate of the server's head. The default is ours.

  References:
    Yi et al., FedGH: Heterogeneous Federated Learning with Generalized Global
    Header, ACM MM 2023, Algorithm 1.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = fedgh(net, sgd, server_lr=0.05)
    >>> method.traits.depth
    'full'
  """
  base.require("server_lr", server_lr, server_lr >= 0, "at least 0")
  aggregation = Aggregation(
    aggregations.no_sums,
    lambda server, clients, active, sums: train_header(
      backbone, server_lr, server, clients, active
    ),
    lambda clients, active, sums, server: with_header(clients, server),
    keep=lambda name: float(base.is_body(name)),
  )

  def begin(client, server, samples, round, key):
    del samples, key
    head = {"head": client.segment.params["head"]}
    client = optimizers.begin_round(client, optimizer, round)
    return client, server, wire.parameters("down/head", head)

  def finish(client, server, samples, key):
    del key
    stats = prototypes.class_stats(backbone, client.segment, samples)
    held = (stats.samples > 0).sum()
    size = 4 * (1 + stats.mean.shape[1]) * held  # a class and its mean
    client = client._replace(opt=(), memory=(stats.mean, stats.samples))
    return client, server, wire.price("up/prototypes", size)

  def memory(full, fleet):
    del full, fleet
    c = backbone.classes
    return jnp.zeros((c, prototypes.width(backbone))), jnp.zeros(c)

  return base.method(
    backbone,
    optimizer,
    (base.client_stage(backbone, optimizer),),
    aggregation,
    traits=base.FULL,
    begin=begin,
    finish=finish,
    client_memory=memory,
    server_memory=lambda full, fleet: full.params["head"],
  )


def train_header(
  backbone: Backbone,
  lr: float,
  server: Half,
  clients: Sequence[Half],
  active: Sequence[Array],
) -> Half:
  """Takes one SGD step of the head for every class mean of every participant.

  `clients` and `active` have one entry per cohort. An entry of `active` is [N]
  bool; the head takes no step for clients whose value is false.
  """
  mean, count = (
    jnp.concatenate([half.memory[i] for half in clients]) for i in range(2)
  )
  on = (jnp.concatenate(active)[:, None] & (count > 0)).ravel()
  label = jnp.tile(jnp.arange(count.shape[1]), len(count))
  head_stats = trees.take(clients[0].segment.stats["head"], 0)

  def loss(head, z, y):
    segment = Segment({"head": head}, {"head": head_stats})
    out = prototypes.logits(backbone, segment, z[None])
    return backbone.mean_loss(out, y[None], jnp.ones(1, bool))

  def step(head, inputs):
    z, y, on = inputs
    grads = jax.grad(loss)(head, z, y)
    rate = jnp.where(on, lr, 0.0)
    return jax.tree.map(lambda w, g: w - rate * g, head, grads), None

  inputs = mean.reshape(-1, mean.shape[-1]), label, on
  head, _ = jax.lax.scan(step, server.memory, inputs)
  return server._replace(memory=head)


def with_header(clients: Half, server: Half) -> Half:
  """Gives all clients the server's head."""
  head = trees.repeat(server.memory, len(clients.memory[1]))
  params = {**clients.segment.params, "head": head}
  return clients._replace(segment=clients.segment._replace(params=params))
