"""Checks that a client's aggregation uses other clients only through sums."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from splitjax import trees
from splitjax.data.feed import BatchPlan
from splitjax.engine import memory
from splitjax.engine.fleets import Fleet
from splitjax.engine.host_clients import common_value
from splitjax.engine.rounds import blind
from splitjax.models.backbones import Backbone
from splitjax.types import Aggregation, Half, Method, Sums, Tree, UserError


def check_aggregation(
  method: Method, net: Backbone, fleet: Fleet, plans: Sequence[BatchPlan]
) -> None:
  """Raises a UserError if an aggregation reads the halves of other clients.

  Raises it at once if `Aggregation.by_sums` is False. Otherwise tests the
  aggregation: traces its function `server` without clients, and computes its
  function `clients` on random numbers and on NaN. `plans` has one entry for
  each cohort.
  """
  if not method.aggregation.by_sums:
    raise UserError(
      "system.clients_on=host: the aggregation reads the halves of all clients"
      " (Aggregation.by_sums is False); leave it 'device'"
    )
  rule = blind(method.aggregation)
  for c, plan in enumerate(plans):
    state, _, _, sums = memory.round_shapes(method, net, fleet, plan, c)
    given = state.clients[c], state.server, sums
    try:
      jax.eval_shape(
        lambda _, *rest: rule.server(rest[0], (), (), rest[1]), *given
      )
    except Exception as error:  # without clients it may raise anything
      raise _wrong("its `server` reads the clients") from error
    _try_clients(rule, *given)


def _wrong(what: str) -> UserError:
  return UserError(f"Aggregation.by_sums is True, but {what}: set it to False")


def _try_clients(
  rule: Aggregation, half: Half, server: Half, sums: Sums
) -> None:
  """Checks `rule.clients` on four clients, two of which participate.

  A client's result must stay the same if the other clients' halves change, and
  if there are no other clients. A client that does not participate must keep
  its half or get a value that all clients get. `half`, `server` and `sums` are
  shapes.
  """
  rng = np.random.default_rng(0)

  def draw(x, *rows):
    shape = (*rows, *x.shape[len(rows) :])
    if jnp.issubdtype(x.dtype, jnp.inexact):
      return rng.uniform(0.5, 1.5, shape).astype(x.dtype)
    return rng.integers(0, 2, shape).astype(x.dtype)

  def broken(x, row):
    x = x.copy()
    if jnp.issubdtype(x.dtype, jnp.inexact):
      x[row] = np.nan
    return x

  def four(rows, active, sums, server):
    server = rule.server(server, (), (), sums)

    def alone(row, on):
      one = trees.repeat(row, 1), on[None]
      return trees.take(rule.clients(*one, sums, server), 0)

    together = rule.clients(rows, active, sums, server)
    return together, jax.vmap(alone)(rows, active)

  # Compiled without optimisation: it runs five times, on four rows.
  program = jax.jit(
    four, compiler_options={"xla_backend_optimization_level": 0}
  )
  active = np.array([True, False, True, False])
  rows = jax.tree.map(lambda x: draw(x, 4), half)
  others = jax.tree.map(draw, (sums, server))
  together, alone = program(rows, active, *others)
  for one in range(4):
    spoilt = jax.tree.map(lambda x, i=one: broken(x, i), rows)
    found, _ = program(spoilt, active, *others)
    rest = np.arange(4) != one
    _compare(trees.take(together, rest), trees.take(found, rest))
  _compare(together, alone)
  leaves = jax.tree_util.tree_leaves_with_path(together)
  for (path, new), old in zip(leaves, jax.tree.leaves(rows), strict=True):
    name = jax.tree_util.keystr(path)
    common_value(old[1::2], np.asarray(new)[1::2], name)


def _compare(one: Tree, two: Tree) -> None:
  """Raises a UserError if two computations give a client different values."""
  leaves = jax.tree_util.tree_leaves_with_path(one)
  for (path, a), b in zip(leaves, jax.tree.leaves(two), strict=True):
    if not np.allclose(a, b, 1e-3, 1e-3, equal_nan=True):
      name = jax.tree_util.keystr(path)
      raise _wrong(f"its `clients` makes {name} of a client from others")
