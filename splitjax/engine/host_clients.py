"""Keeps a cohort's clients in the host's memory; rounds get only sampled ones.

The end of a round may change clients that did not participate: with lam = 0,
all clients get the mean. Writing every client's half would take time and memory
that grow with the number of clients. A leaf is therefore stored as one value
common to all clients, and a row for each client whose own value was written
after the common value was set.

Spare rows are appended to the rows of the sampled clients, to find out what a
round does to clients that do not participate. The spare rows have two different
contents. If they come back unchanged, clients that do not participate keep
their values. If they come back all alike, their content is now the value of all
clients.
"""

import math
import mmap
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from splitjax import trees
from splitjax.types import Half, Shard, Tree, UserError

_BLOCK = 64
"""Rows that are compared at a time."""


def spare_rows(row: Tree, count: int) -> Tree:
  """Makes alternating rows of zeros and ones: [count, ...] with count >= 2."""
  content = np.arange(count) % 2
  return jax.tree.map(
    lambda x: np.broadcast_to(
      content.reshape(-1, *(1,) * np.ndim(x)), (count, *np.shape(x))
    ).astype(x.dtype),
    row,
  )


def data_of(
  image: np.ndarray,
  label: np.ndarray,
  shards: Sequence[Shard],
  places: Sequence[np.ndarray],
  on: Sequence[np.ndarray],
  size: int,
  public: int = 0,
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[tuple, ...]]:
  """Collects the images and labels of those clients that a round takes.

  Args:
    image: [Z + P, ...], the training split, then the public samples.
    label: [Z] int32.
    shards: for each cohort the shards of all its clients.
    places: for each cohort [S] int, the clients' positions in the cohort.
    on: for each cohort [S] bool, which of these clients need their images; the
      rows of the others point to image 0.
    size: number of images returned before the public ones; static.
    public: P, the number of public samples.

  Returns:
    Images [size + P, ...] and labels [size] of these clients, and for each
    cohort the other fields of its clients' Shard. Among these, `rows` and
    `held` index the returned images.
  """
  # Image 0 stands first: padding reads it, as in the whole split.
  wanted, own, used = [np.zeros(1, int)], [], 1
  for shard, at, active in zip(shards, places, on, strict=True):
    mine = Shard(*shard[:2], *trees.take(tuple(shard[2:]), at))
    for name in ("rows", "held"):
      table = getattr(mine, name)
      if isinstance(table, tuple):
        continue
      real = (table >= 0) & active[:, None]
      local = np.minimum(table, 0)
      local[real] = np.arange(used, used + real.sum())
      wanted.append(table[real])
      used += int(real.sum())
      mine = mine._replace(**{name: local})
    own.append(tuple(mine[2:]))
  rows = np.concatenate(wanted)
  images = np.zeros((size + public, *image.shape[1:]), image.dtype)
  images[size:] = image[len(image) - public :]
  labels = np.zeros(size, np.int32)
  images[: len(rows)], labels[: len(rows)] = image[rows], label[rows]
  return (images, labels), tuple(own)


class HostClients:
  """The halves of all clients of one cohort, in the host's memory.

  A place is a client's position in the cohort.
  """

  def __init__(self, half: Half, spare: int):
    """Stores a cohort's halves.

    Args:
      half: NumPy leaves [N, ...]. If a leaf's rows are all equal, only one row
        is kept. Other leaves are updated in place; read-only ones are copied.
      spare: number of spare rows.
    """
    leaves, self._structure = jax.tree.flatten(half)
    self._leaves = [_Leaf(leaf) for leaf in leaves]
    row = jax.tree.unflatten(self._structure, [leaf[0] for leaf in leaves])
    self._spare = jax.tree.leaves(spare_rows(row, spare))

  def take(self, places: np.ndarray) -> Half:
    """Reads the halves at these places, leaves [len(places), ...]."""
    return self._tree([leaf.take(places) for leaf in self._leaves])

  def with_spare(self, places: np.ndarray) -> Half:
    """Reads a round's input: the halves at `places`, then the spare rows."""
    rows = [leaf.take(places) for leaf in self._leaves]
    pairs = zip(rows, self._spare, strict=True)
    return self._tree([np.concatenate(pair) for pair in pairs])

  def put(self, places: np.ndarray, on: np.ndarray, new: Half) -> None:
    """Writes the result of a round.

    Args:
      places: [S] int, the clients' places, in the order of the rows.
      on: [S] bool, the sampled clients; the others' rows are not read.
      new: leaves [S + spare, ...].

    Raises:
      UserError: the aggregation changes clients that do not participate, but
        not to a value that is common to all clients.
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
    """Returns all halves, [N, ...]. They are read-only and valid until a `put`.

    If all clients have a leaf's common value, the leaf is a view of this value.
    Otherwise the common value is first written to the rows of the clients that
    have it.
    """
    return self._tree([leaf.whole() for leaf in self._leaves])

  def _tree(self, leaves: Sequence[np.ndarray]) -> Any:
    return jax.tree.unflatten(self._structure, leaves)


def common_value(
  before: np.ndarray, after: np.ndarray, name: str
) -> np.ndarray | None:
  """Finds the value that a round gives to all clients; None if there is none.

  `before` and `after` are one leaf's spare rows, [spare, ...], as they were
  before the round and as they came back.

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
  """One leaf of all clients: a common value, and the rows written after it."""

  def __init__(self, rows: np.ndarray):
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
  """Makes an array of zeros that takes memory only where rows are written.

  Its pages are small. NumPy would ask Linux for pages of 2 MB; one row written
  in each of these pages would take as much memory as the whole array.
  """
  count = math.prod(shape)
  memory = mmap.mmap(-1, max(count * dtype.itemsize, 1))
  return np.frombuffer(memory, dtype, count).reshape(shape)


def _alike(rows: np.ndarray) -> bool:
  """Tells whether all rows have the same bits; compares block by block."""
  blocks = range(0, 0 if rows.strides[0] == 0 else len(rows), _BLOCK)
  return all(_same(rows[i : i + _BLOCK], rows[:1]).all() for i in blocks)


def _same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
  """Compares the bits of rows a [n, ...] with b [n or 1, ...]: [n] bool."""
  if not a.size:
    return np.ones(len(a), bool)
  return (_bits(a) == _bits(b)).all(axis=1)


def _bits(rows: np.ndarray) -> np.ndarray:
  """Views rows [n, ...] as bytes [n, bytes]."""
  flat = np.ascontiguousarray(rows).reshape(len(rows), -1)
  return flat.view(np.uint8)
