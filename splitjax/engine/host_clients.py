"""The clients of a cohort in the host's memory; a round takes the sampled ones.

The end of a round may change clients that took no part in it: with lam = 0 all
get the mean. To write every client's half would take time and memory that grow
with their number, so a leaf is kept as one value that all clients have, and the
rows of those that were written since. Which clients a round changes shows in
spare rows that are appended to the sampled ones: clients that take no part, of
two contents. Where both come back as they were, such clients keep their own;
where both come back alike, all clients have that value now.
"""

import math
import mmap
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from splitjax.types import Half, Tree, UserError

_BLOCK = 64
"""Rows that are compared at a time."""


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
      self._own = _reserved(rows.shape, rows.dtype)
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


def _reserved(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
  """Zeros whose memory is taken page by page, when a row is written.

  NumPy asks Linux for pages of 2 MB: a few rows would take all of them.
  """
  count = math.prod(shape)
  memory = mmap.mmap(-1, max(count * dtype.itemsize, 1))
  return np.frombuffer(memory, dtype, count).reshape(shape)


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
