"""FedAvgM, FedAdam, FedYogi: the server's step on a round's mean update.

The optimiser steps once, at the end of a round, for any method whose clients
get a mean over clients. Local steps, also those of the server's half, are by
another optimiser (`optimizers`).

References:
  Hsu, Qi and Brown, Measuring the Effects of Non-Identical Data Distribution
    for Federated Visual Classification, 2019 (FedAvgM).
  Reddi et al., Adaptive Federated Optimization, ICLR 2021, Algorithm 2.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from splitjax import trees
from splitjax.engine.topologies import topology_of
from splitjax.methods import aggregations
from splitjax.models.block import is_exit
from splitjax.types import Array, Half, Method, Sums, Tree, UserError


class Means(NamedTuple):
  """State of the mean optimiser between rounds (State.means), by block.

  Attributes:
    clients: block name -> w, the parameters after the last step. If lam > 0, a
      client's parameters differ from w, because it keeps a share of its own.
    slots: block name -> optax state of that block.
    server_slots: the same for the server's blocks. Their w is not stored here,
      because it is in the server's half.
  """

  clients: dict[str, Tree]
  slots: dict[str, Tree]
  server_slots: dict[str, Tree]


class Moments(NamedTuple):
  """The optax state of FedAdam and FedYogi: m and v, in the form of w."""

  m: Tree
  v: Tree


def _adaptive(
  beta1: float, beta2: float, tau: float, *, yogi: bool
) -> optax.GradientTransformation:
  """Builds the rule whose step is m / (sqrt(v) + tau), without bias correction.

  v starts at tau^2. Optax's Adam and Yogi correct the bias, Algorithm 2 does
  not.
  """

  def init(params):
    v = jax.tree.map(lambda x: jnp.full_like(x, tau**2), params)
    return Moments(trees.zeros(params), v)

  def second(v, g):
    square = jnp.square(g)
    if yogi:
      return v - (1 - beta2) * square * jnp.sign(v - square)
    return beta2 * v + (1 - beta2) * square

  def update(grads, state, params=None):
    del params
    m = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.m, grads)
    v = jax.tree.map(second, state.v, grads)
    step = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + tau), m, v)
    return step, Moments(m, v)

  return optax.GradientTransformation(init, update)


def make_mean_optimizer(
  name: str, lr: float | None, beta1: float, beta2: float, tau: float
) -> optax.GradientTransformation:
  """Makes a server optimiser for the pseudo-gradient g = w - mean.

  fedavgm: m <- beta1 m + g, w <- w - lr m.
  fedadam and fedyogi: m <- beta1 m + (1 - beta1) g, w <- w - lr m / (sqrt(v) +
  tau). In fedadam v <- beta2 v + (1 - beta2) g^2, in fedyogi
  v <- v - (1 - beta2) g^2 sign(v - g^2).

  Args:
    name: fedavgm, fedadam or fedyogi.
    lr: eta_s. None: 1 for fedavgm, as in Hsu et al.; 0.01 for the others, a
      choice of ours, since Reddi et al. tune it for each task.
    beta1: decay of m.
    beta2: decay of v.
    tau: adaptivity.
  """
  if name == "fedavgm":
    rule, usual = optax.trace(beta1), 1.0
  else:
    rule = _adaptive(beta1, beta2, tau, yogi=name == "fedyogi")
    usual = 0.01
  return optax.chain(rule, optax.scale(-(usual if lr is None else lr)))


def has_mean(method: Method) -> bool:
  """Tells whether the clients of a method get a mean over clients."""
  rule, traits = method.aggregation, method.traits
  kept = not callable(rule.keep) and rule.keep == 1
  alone = kept and traits.depth == "full"  # Local
  relay = topology_of(traits).hands_on
  return not (relay or alone or rule.contribute is aggregations.no_sums)


def with_uniform_weights(method: Method) -> Method:
  """Gives every participant weight 1 in the means of a method.

  The usual weight is |D_n|, or what the method's option `mean` says. A method
  without a mean is returned as it is.
  """
  if not has_mean(method):
    return method
  rule = method.aggregation

  def contribute(client: Half, server: Half, weight: Array) -> Sums:
    return rule.contribute(client, server, (weight > 0).astype(float))

  return method._replace(aggregation=rule._replace(contribute=contribute))


def on_means(method: Method, tx: optax.GradientTransformation) -> Method:
  """Replaces the means of a method by w + tx(w - mean).

  The step applies to the means of prefixes, exits, whole networks and copies of
  a server. It does not apply to running statistics, to blocks that clients do
  not exchange, or to one server that all clients train together. A block that
  no participant updated takes no step. A method without a mean is not changed.

  Raises:
    UserError: clients would not get the mean over clients, because clients and
      server share parameters (SuperSFL).
  """
  if not has_mean(method):
    return method
  rule, copies = method.aggregation, not topology_of(method.traits).one_server

  def init(key, fleet, full):
    state = method.init(key, fleet, full)
    server, held = state.server.segment.params, dict[str, Tree]()
    for half in state.clients:
      params = half.segment.params
      if {n for n in params if not is_exit(n)} <= server.keys():
        raise UserError(
          "mean_optimizer: clients and server share their parameters, so the"
          " mean is not one over clients alone; leave mean_optimizer.name None"
        )
      for name, rows in params.items():
        if aggregations.keep_share(rule.keep, name) < 1:
          held.setdefault(name, trees.take(rows, 0))
    slots = {name: tx.init(w) for name, w in held.items()}
    at_server = {name: tx.init(w) for name, w in server.items() if copies}
    return state._replace(means=Means(held, slots, at_server))

  step = functools.partial(_step, tx)

  def move(means: Means, server: Half, sums: Sums) -> tuple[Means, Sums]:
    held, slots = dict(means.clients), dict(means.slots)
    at_server = dict(means.server_slots)
    clients, servers = dict(sums.client), dict(sums.server)
    for name in (n for n in held if n in clients):
      params, stats = clients[name]
      weight = sums.client_weight[name]
      held[name], slots[name], params = step(
        held[name], slots[name], params, weight
      )
      clients[name] = params, stats
    for name in (n for n in at_server if n in servers):
      params, stats = servers[name]
      old, weight = server.segment.params[name], sums.server_weight[name]
      # One server for each task (MultiHead): weights [tasks].
      each = jax.vmap(step) if weight.ndim else step
      _, at_server[name], params = each(old, at_server[name], params, weight)
      servers[name] = params, stats
    moved = Means(held, slots, at_server)
    return moved, sums._replace(client=clients, server=servers)

  return method._replace(init=init, aggregation=rule._replace(on_means=move))


def _step(
  tx: optax.GradientTransformation,
  w: Tree,
  slots: Tree,
  total: Tree,
  weight: Array,
) -> tuple[Tree, Tree, Tree]:
  """Computes a block's next w and slots.

  Also returns weight * w, which replaces `total` in the round's sums.
  """
  mean = aggregations.mean(total, weight, w)
  gradient = jax.tree.map(jnp.subtract, w, mean)
  step, new = tx.update(gradient, slots, w)
  # Without a participant neither momentum nor moments move.
  w, slots = trees.where(weight > 0, (trees.add(w, step), new), (w, slots))
  return w, slots, trees.scale(weight, w)
