"""The clients of a cohort in the host's memory; a round takes the sampled ones.

The end of a round may change clients that took no part in it: with lam = 0 all
get the mean. To write every client's half would take time and memory that grow
with their number, so a leaf is kept as one value that all clients have, and the
rows of those that were written since. Which clients a round changes shows in
spare rows that are appended to the sampled ones: clients that take no part, of
two contents. Where both come back as they were, such clients keep their own;
where both come back alike, all clients have that value now.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from splitjax import trees
from splitjax.data.feed import Plan
from splitjax.engine import memory
from splitjax.engine.fleet import Fleet
from splitjax.engine.round import blind
from splitjax.models.backbone import Backbone
from splitjax.types import Aggregation, Half, Method, Sums, Tree, UserError

_BLOCK = 64
"""Rows that are compared at a time."""


def check_aggregation(
  method: Method, net: Backbone, fleet: Fleet, plans: Sequence[Plan]
) -> None:
  """Raises UserError if a round's end must know clients that are not in it.

  What `Aggregation.by_sums` says is tried: the server's part is traced without
  clients, and the clients' part is computed of random numbers and of NaN.

  `plans` has one entry for each cohort.
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
    except Exception as error:  # whatever code raises that meets no clients
      raise _wrong("its `server` reads the clients") from error
    _try_clients(rule, *given)


def _wrong(what: str) -> UserError:
  return UserError(f"Aggregation.by_sums is True, but {what}: set it to False")


def _try_clients(
  rule: Aggregation, half: Half, server: Half, sums: Sums
) -> None:
  """Tries a clients' rule, as `check_aggregation` has it, on four clients.

  Two participate. Each must come out as it does alone, whatever another has,
  and those that take no part with their own or with what all get. Arguments are
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
    each = [
      rule.clients(trees.window(rows, i, 1), active[i : i + 1], sums, server)
      for i in range(4)
    ]
    alone = jax.tree.map(lambda *x: jnp.concatenate(x), *each)
    return rule.clients(rows, active, sums, server), alone

  # Hasty: it runs four times on four rows.
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
  """Raises UserError where clients differ between two computations."""
  leaves = jax.tree_util.tree_leaves_with_path(one)
  for (path, a), b in zip(leaves, jax.tree.leaves(two), strict=True):
    if not np.allclose(a, b, 1e-3, 1e-3, equal_nan=True):
      name = jax.tree_util.keystr(path)
      raise _wrong(f"its `clients` makes {name} of a client from others")


def spare_rows(row: Tree, count: int) -> Tree:
  """Rows [count, ...] of zeros and of ones in turn, at least two."""
  content = np.arange(count) % 2
  return jax.tree.map(
    lambda x: np.broadcast_to(
      content.reshape(-1, *(1,) * np.ndim(x)), (count, *np.shape(x))
    ).astype(x.dtype),
    row,
  )


class HostClients:
  """The halves of one cohort's clients, one row for each place."""

  def __init__(self, half: Half, spare: int):
    """Takes over a cohort's halves.

    Args:
      half: NumPy leaves [N, ...]; where all rows are alike, one is kept. Others
        are written to if they may be.
      spare: number of spare rows.
    """
    leaves, self._structure = jax.tree.flatten(half)
    self._leaves = [_Leaf(leaf) for leaf in leaves]
    row = jax.tree.unflatten(self._structure, [leaf[0] for leaf in leaves])
    self._spare = jax.tree.leaves(spare_rows(row, spare))

  def take(self, places: np.ndarray) -> Half:
    """The halves at these places, leaves [len(places), ...]."""
    return self._tree([leaf.take(places) for leaf in self._leaves])

  def with_spare(self, places: np.ndarray) -> Half:
    """As `take`, with the spare rows behind them: what a round gets."""
    rows = [leaf.take(places) for leaf in self._leaves]
    pairs = zip(rows, self._spare, strict=True)
    return self._tree([np.concatenate(pair) for pair in pairs])

  def put(self, places: np.ndarray, on: np.ndarray, new: Half) -> None:
    """Writes what a round returns.

    Args:
      places: [S] int, of its rows.
      on: [S] bool, the sampled clients; the others' rows are not read.
      new: leaves [S + spare, ...].

    Raises:
      UserError: the aggregation gives a client that takes no part something
        that is neither its own nor the same for all.
    """
    count = len(places)
    leaves = jax.tree_util.tree_leaves_with_path(new)
    for kept, spare, (path, leaf) in zip(
      self._leaves, self._spare, leaves, strict=True
    ):
      rows = np.asarray(leaf)
      common = common_value(spare, rows[count:], jax.tree_util.keystr(path))
      kept.put(places[on], rows[:count][on], common)

  def whole(self) -> Half:
    """All clients, leaves [N, ...], read-only and valid until the next `put`.

    What all clients share is a view of one value; a leaf with own rows is
    filled up.
    """
    return self._tree([leaf.whole() for leaf in self._leaves])

  def _tree(self, leaves: Sequence[np.ndarray]) -> Any:
    return jax.tree.unflatten(self._structure, leaves)


def common_value(
  before: np.ndarray, after: np.ndarray, name: str
) -> np.ndarray | None:
  """What all clients have after a round, by its spare rows; None: their own.

  `before` and `after` are a leaf's spare rows [spare, ...] around the round.

  Raises:
    UserError: as `HostClients.put`.
  """
  if _same(after, before).all():
    return None
  if _same(after, after[:1]).all():
    return after[0].copy()
  raise UserError(
    f"system.clients_on=host: clients that take no part get {name} of their own"
    " from the aggregation; leave it 'device'"
  )


class _Leaf:
  """One leaf of all clients: a common value, and own rows that are newer."""

  def __init__(self, rows: np.ndarray):
    """From rows [N, ...]."""
    count = len(rows)
    self._time, self._set = 0, 0
    self._common = rows[0].copy()
    if _alike(rows):
      # Memory of zeros is reserved, and taken when a row is written.
      self._own = np.zeros(rows.shape, rows.dtype)
      self._written = np.full(count, -1)
    else:
      self._own = rows if rows.flags.writeable else rows.copy()
      self._written = np.zeros(count, int)

  def take(self, places: np.ndarray) -> np.ndarray:
    own = self._written[places] >= self._set
    shape = (len(places), *self._common.shape)
    out = np.broadcast_to(self._common, shape).copy()
    out[own] = self._own[places[own]]
    return out

  def put(
    self, places: np.ndarray, rows: np.ndarray, common: np.ndarray | None
  ) -> None:
    self._time += 1
    if common is not None:
      self._common, self._set = common, self._time
      if _same(rows, common[None]).all():
        return
    self._own[places] = rows
    self._written[places] = self._time

  def whole(self) -> np.ndarray:
    old = self._written < self._set
    if old.all():
      return np.broadcast_to(self._common, self._own.shape)
    self._own[old] = self._common
    self._written[old] = self._set
    view = self._own.view()
    view.flags.writeable = False
    return view


def _alike(rows: np.ndarray) -> bool:
  """Whether all rows have the same bits; looked at block by block."""
  blocks = range(0, 0 if rows.strides[0] == 0 else len(rows), _BLOCK)
  return all(_same(rows[i : i + _BLOCK], rows[:1]).all() for i in blocks)


def _same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
  """[n] bool: rows of a [n, ...] with the bits of b's [n or 1, ...]."""
  if not a.size:
    return np.ones(len(a), bool)
  return (_bits(a) == _bits(b)).all(axis=1)


def _bits(rows: np.ndarray) -> np.ndarray:
  """Rows [n, ...] as bytes [n, bytes]."""
  flat = np.ascontiguousarray(rows).reshape(len(rows), -1)
  return flat.view(np.uint8)
