"""Helpers of the partitions: checks, rounding of shares, rows per client."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from splitjax.data.dataset import Dataset
from splitjax.fields import Bounds
from splitjax.types import UserError

COUNT = Bounds(at_least=1)
"""Bounds of an option that is a count."""

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
  """Calls a partition and checks its result: N arrays [S_n] int64 of rows.

  Args:
    name: key in PARTITIONS.
    partition: the function.
    basis: [Z] labels or owners, passed read-only.
    num_clients: N.
    seed: the run's seed.
    options: the partition's options.

  Raises:
    UserError: `check_parts` refuses the result.
  """
  basis = basis.view()
  basis.flags.writeable = False
  dealt = partition(basis, num_clients, seed, **options)
  return check_parts(name, dealt, num_clients, len(basis))


def owner_names(
  data: Dataset, partition: Callable[..., Any], parts: Sequence[np.ndarray]
) -> list[str]:
  """Returns the clients' names, which are the names of their samples' owners.

  Returns [] unless the partition assigns samples by their owners, every client
  has samples of a single owner, and no two clients share an owner.

  Args:
    data: the data set.
    partition: the function; it has the attribute `of_clients` if it assigns
      samples by their owners.
    parts: N arrays [S_n], the training rows of each client.
  """
  by_owner = getattr(partition, "of_clients", False)
  owners = data.owners(parts) if by_owner else None
  if owners is None or len(np.unique(owners)) < len(owners):
    return []
  return data.names(owners)


def check_parts(
  name: str, parts: Any, num_clients: int, samples: int
) -> list[np.ndarray]:
  """Checks a partition's result and converts it to N arrays [S_n] int64.

  Args:
    name: key in PARTITIONS.
    parts: the result.
    num_clients: N.
    samples: Z, the size of the training split.

  Raises:
    UserError: `parts` is no list of integer arrays, the number of clients is
      wrong, a client has no samples or has the same sample twice, a row is
      outside the training split, or clients share a row.
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
    if other >= 0:
      raise UserError(
        f"{where}: client {n} has samples of client {other}; give each sample"
        " to one client"
      )
    owner[rows] = n
  return checked


def round_fairly(
  exact: np.ndarray, rng: np.random.Generator, least: np.ndarray | int = 0
) -> np.ndarray:
  """Rounds shares so that the rounding errors of each column nearly cancel.

  Row by row, every share is rounded down. The samples that a row then lacks go,
  one each, to the columns that have lost most by rounding so far; ties are
  broken at random. Shares [C, G] float64, whose rows sum to whole numbers,
  become [C, G] int64 with the same row sums. A result is at least `least`. It
  differs from `exact` by less than 1, unless `least` requires more.
  """
  whole = np.maximum(np.floor(exact + _NOISE).astype(np.int64), least)
  rest = exact - whole
  short = np.rint(exact.sum(axis=1)).astype(np.int64) - whole.sum(axis=1)
  owed = np.zeros(exact.shape[1])
  for row, part, count in zip(whole, rest, short, strict=True):
    owed += part
    # Rounding removes floating-point noise, which must not decide equal claims.
    claim = np.where(part > _NOISE, owed.round(9), -np.inf)
    first = np.lexsort((rng.random(len(owed)), -claim))[:count]
    row[first] += 1
    owed[first] -= 1
  return whole


def shuffled_by_class(
  labels: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
  """Orders all rows [Z] int64 by class, at random within a class."""
  rows = rng.permutation(len(labels))
  return rows[np.argsort(labels[rows], kind="stable")]


def owners(sizes: np.ndarray) -> np.ndarray:
  """Returns the column of `sizes` to which each sample belongs, [Z] int64.

  sizes[c, g] samples of class c belong to column g. Samples are ordered by
  class and, within a class, by column.
  """
  classes, columns = sizes.shape
  return np.repeat(np.tile(np.arange(columns), classes), sizes.ravel())


def shards_of_rows(
  rows: np.ndarray, owner: np.ndarray, num_clients: int
) -> list[np.ndarray]:
  """Collects the sorted rows of each client: N arrays [S_n] int64.

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
  """Assigns parts with higher class labels to clients with deeper cuts.

  Parts are sorted by their highest label and clients by depth; then the i-th
  client gets the i-th part. Takes N arrays of rows, the split's labels [Z] and
  the clients' depths [N]; returns [N] int: client n gets parts[result[n]].
  """
  highest = [labels[part].max(initial=-1) for part in parts]
  result = np.empty(len(parts), int)
  result[np.argsort(depth, kind="stable")] = np.argsort(highest, kind="stable")
  return result


def padded(parts: Sequence[np.ndarray]) -> np.ndarray:
  """Stacks N arrays [H_n] of rows as [N, H] int32, padded with -1."""
  rows = np.full((len(parts), max(map(len, parts))), -1, np.int32)
  for row, part in zip(rows, parts, strict=True):
    row[: len(part)] = part
  return rows


def merged(data: Dataset) -> Dataset:
  """Merges both splits into Z + M training samples and an empty test split."""
  return data._replace(
    train_image=np.concatenate([data.train_image, data.test_image]),
    train_label=np.concatenate([data.train_label, data.test_label]),
    test_image=data.test_image[:0],
    test_label=data.test_label[:0],
    train_client=_joined(data.train_client, data.test_client, data),
    test_client=None,
    train_domain=_joined(data.train_domain, data.test_domain, data),
    test_domain=None,
  )


def _joined(
  train: np.ndarray | None, test: np.ndarray | None, data: Dataset
) -> np.ndarray | None:
  """Joins a field of both splits; None where a split with samples lacks it."""
  if train is None or not len(data.test_label):
    return train
  return None if test is None else np.concatenate([train, test])
