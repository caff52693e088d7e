"""Shared by the partitions: checks, rounding of shares, rows per client."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from splitjax import files
from splitjax.data.sources import Dataset
from splitjax.fields import Bounds
from splitjax.types import UserError

COUNT = Bounds(at_least=1)
"""Of an option that counts something."""

_NOISE = 1e-9
"""Fractions of a sample below this are floating-point noise."""


def require(condition: bool, field: str, value: object, remedy: str) -> None:
  """Raises UserError about `field` unless `condition` holds."""
  if not condition:
    raise UserError(f"{field} = {value!r}: {remedy}")


def require_clients(num_clients: int, samples: int) -> None:
  """Raises UserError unless every client can have a sample."""
  require(
    1 <= num_clients <= samples,
    "num_clients",
    num_clients,
    f"must be between 1 and the {samples} training samples",
  )


def deal(
  name: str,
  partition: Callable[..., Any],
  basis: np.ndarray,
  num_clients: int,
  seed: int,
  options: Mapping[str, Any],
) -> list[np.ndarray]:
  """The rows of each client, N arrays [S_n] int64, checked.

  A partition of the user's own is called twice: a run that is evaluated or
  resumed later deals its samples again.

  Args:
    name: of the partition, in PARTITIONS.
    partition: the function.
    basis: [Z] labels or owners; it gets them read-only.
    num_clients: N.
    seed: of the run.
    options: of the partition.

  Raises:
    UserError: a user's own gives other clients for the same seed, or as of
      `check_parts`.
  """
  where = f"data.partition={name}"
  basis = basis.view()
  basis.flags.writeable = False

  def parts() -> list[np.ndarray]:
    dealt = partition(basis, num_clients, seed, **options)
    overlapping = getattr(partition, "overlapping", False)
    return check_parts(
      name, dealt, num_clients, len(basis), overlapping=overlapping
    )

  first = parts()
  if files.is_own(partition) and not all(map(np.array_equal, first, parts())):
    raise UserError(
      f"{where}: gives other clients for the same seed: draw from"
      " numpy.random.default_rng(seed)"
    )
  return first


def owner_names(
  data: Dataset, partition: Callable[..., Any], parts: Sequence[np.ndarray]
) -> list[str]:
  """The names of the clients of a partition by owners; [] where they have none.

  Clients that share an owner, or have several, have no names.

  Args:
    data: the data set.
    partition: the function, `of_clients` where it deals by owners.
    parts: N arrays [S_n], the training rows of each client.
  """
  if data.train_client is None or not getattr(partition, "of_clients", False):
    return []
  owners = [np.unique(data.train_client[part]) for part in parts]
  first = np.array([each[0] for each in owners])
  alone = all(len(each) == 1 for each in owners)
  return data.names(first) if alone and len(set(first)) == len(first) else []


def check_parts(
  name: str, parts: Any, num_clients: int, samples: int, *, overlapping: bool
) -> list[np.ndarray]:
  """What a partition returned, as N arrays [S_n] int64.

  Args:
    name: of the partition, in PARTITIONS.
    parts: what it returned.
    num_clients: N.
    samples: of the training split.
    overlapping: whether clients may share samples.

  Raises:
    UserError: another number of clients, a client without samples, rows that
      are no rows of the training split, or rows of several clients.
  """
  where = f"data.partition={name}"
  if not isinstance(parts, Sequence | np.ndarray):
    raise UserError(
      f"{where}: gave {type(parts).__name__}; it must give a list, the rows of"
      " each client"
    )
  if len(parts) != num_clients:
    raise UserError(
      f"{where}: gave {len(parts)} clients for num_clients={num_clients}"
    )
  checked = []
  for n, part in enumerate(parts):
    try:
      rows = np.asarray(part)
    except ValueError:  # rows of several lengths
      rows = np.empty((), object)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not rows.size:
      raise UserError(
        f"{where}: client {n} has {rows.dtype}{list(rows.shape)}; it must have"
        " the numbers of its samples, [S] int, one at least"
      )
    if rows.min() < 0 or rows.max() >= samples:
      raise UserError(
        f"{where}: client {n} has samples {rows.min()} to {rows.max()}; they"
        f" must be among 0..{samples - 1}, the training samples"
      )
    checked.append(rows.astype(np.int64))
  owner = np.full(samples, -1)
  for n, rows in enumerate(checked):
    if len(np.unique(rows)) < len(rows):
      raise UserError(
        f"{where}: client {n} has a sample more than once; give each one time"
      )
    other = owner[rows].max()
    if other >= 0 and not overlapping:
      raise UserError(
        f"{where}: client {n} has samples of client {other}; a partition whose"
        " clients share samples says so by the attribute `overlapping = True`"
      )
    owner[rows] = n
  return checked


def round_fairly(
  exact: np.ndarray, rng: np.random.Generator, least: np.ndarray | int = 0
) -> np.ndarray:
  """Rounds shares up or down so that no column loses again and again.

  Row by row, every share is rounded down, and the remaining samples go, one
  each, to the columns with the largest rounding loss so far. Ties are random.
  Shares [C, G] float64, whose rows sum to whole numbers, become [C, G] int64
  with the same row sums, less than one from `exact` unless `least` is more.
  """
  whole = np.maximum(np.floor(exact + _NOISE).astype(np.int64), least)
  rest = exact - whole
  short = np.rint(exact.sum(axis=1)).astype(np.int64) - whole.sum(axis=1)
  owed = np.zeros(exact.shape[1])
  for row, part, count in zip(whole, rest, short, strict=True):
    owed += part
    # Equal claims differ by noise, which must not decide: they are rounded.
    claim = np.where(part > _NOISE, owed.round(9), -np.inf)
    first = np.lexsort((rng.random(len(owed)), -claim))[:count]
    row[first] += 1
    owed[first] -= 1
  return whole


def shuffled_by_class(
  labels: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
  """All rows [Z] int64, class by class, in random order within a class."""
  rows = rng.permutation(len(labels))
  return rows[np.argsort(labels[rows], kind="stable")]


def owners(sizes: np.ndarray) -> np.ndarray:
  """Sizes [C, G] -> the column of each sample, class by class, [Z] int64."""
  classes, columns = sizes.shape
  return np.repeat(np.tile(np.arange(columns), classes), sizes.ravel())


def shards_of_rows(
  rows: np.ndarray, owner: np.ndarray, num_clients: int
) -> list[np.ndarray]:
  """The sorted rows of each client: N arrays [S_n] int64.

  Args:
    rows: [Z] int64, every row once.
    owner: [Z] int64, client of each row; num_clients for an unused row.
    num_clients: N.
  """
  by_row = np.empty_like(owner)
  by_row[rows] = owner
  sizes = np.bincount(by_row, minlength=num_clients)[:num_clients]
  order = np.argsort(by_row, kind="stable")
  return np.split(order, np.cumsum(sizes))[:num_clients]


def by_depth(
  parts: Sequence[np.ndarray], labels: np.ndarray, depth: np.ndarray
) -> np.ndarray:
  """Correlates split depths and classes: which part each client gets.

  Parts in the order of their highest class go to clients in the order of their
  depth. From N arrays of rows, the split's labels [Z] and the clients' depths
  [N] to [N] int; client n gets parts[result[n]].
  """
  highest = [labels[part].max(initial=-1) for part in parts]
  result = np.empty(len(parts), int)
  result[np.argsort(depth, kind="stable")] = np.argsort(highest, kind="stable")
  return result


def padded(parts: Sequence[np.ndarray]) -> np.ndarray:
  """N arrays [H_n] of rows as one, [N, H] int32, padded with -1."""
  rows = np.full((len(parts), max(map(len, parts))), -1, np.int32)
  for row, part in zip(rows, parts, strict=True):
    row[: len(part)] = part
  return rows
