"""Partitions: which training samples each client holds.

A partition takes `labels` [Z] of the training split, the number of clients N
and a seed; a config gives its options in `data.partition`. It returns N arrays
[S_n] int64 of row numbers: sorted, disjoint, not empty, and the same for the
same seed. It raises UserError where a client would get no sample. Those of
Hydra are in `data.dominant`.

>>> import numpy as np, splitjax
>>> labels = np.array([1, 0, 1, 0, 1, 0])
>>> deal = splitjax.PARTITIONS["shard"]
>>> parts = deal(labels, num_clients=2, seed=0, k=1, num_shards=2)
>>> sorted(labels[rows].tolist() for rows in parts)
[[0, 0, 0], [1, 1, 1]]
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np

from splitjax.fields import COUNT, Bounds
from splitjax.types import UserError

_ALPHA = Bounds(above=0, at_most=1e6)
"""Bounds of alpha. At 1e6 the split is even: shares differ by 0.1 %."""

_DRAWS = 2000
"""The most draws of proportions."""

_NOISE = 1e-9
"""Fractions of a sample below this are floating-point noise."""


def shard(
  labels: np.ndarray,
  num_clients: int,
  seed: int,
  *,
  k: Annotated[int, COUNT] = 2,
  num_shards: int | Literal["auto"] = 100,
) -> list[np.ndarray]:
  """Gives each client k of num_shards equal chunks of label-sorted samples.

  The first chunks have one sample more if there is a remainder. Each client
  gets k random chunks; "auto" means N k. This is the Shard-k of HARMONY and
  SplitGP (Han et al., INFOCOM 2023), after McMahan et al., AISTATS 2017.
  """
  require_clients(num_clients, len(labels))
  check_shards(num_clients, k=k, num_shards=num_shards)
  needed = num_clients * k
  total = needed if num_shards == "auto" else num_shards
  require(
    total <= len(labels),
    "data.partition.num_shards",
    num_shards,
    f"{total} shards cannot be cut from {len(labels)} samples; lower "
    "num_shards, num_clients or k",
  )
  chunks = np.array_split(np.argsort(labels, kind="stable"), total)
  drawn = np.random.default_rng(seed).permutation(total)[:needed]
  return [
    np.sort(np.concatenate([chunks[c] for c in chosen]))
    for chosen in drawn.reshape(num_clients, k)
  ]


def check_shards(
  num_clients: int, *, k: int, num_shards: int | Literal["auto"]
) -> None:
  """Raises UserError where there are fewer chunks than N k."""
  needed = num_clients * k
  require(
    num_shards == "auto" or needed <= num_shards,
    "data.partition.num_shards",
    num_shards,
    f"{num_clients} clients with k = {k} need {needed} shards; set it to "
    f"{needed} or more or to 'auto', or lower num_clients or k",
  )


def iid(labels: np.ndarray, num_clients: int, seed: int) -> list[np.ndarray]:
  """Splits the shuffled samples evenly; sizes differ by one at most."""
  require_clients(num_clients, len(labels))
  order = np.random.default_rng(seed).permutation(len(labels))
  return [np.sort(rows) for rows in np.array_split(order, num_clients)]


def natural(
  owners: np.ndarray,
  num_clients: int,
  seed: int,
  *,
  min_samples: Annotated[int, COUNT] = 1,
) -> list[np.ndarray]:
  """Gives each client all samples of one owner: a hospital, writer or device.

  It takes the owner of each sample, [Z] int, instead of labels. Client n is the
  n-th owner in ascending order, of N chosen at random if there are more than N
  with `min_samples`.
  """
  names, counts = np.unique(owners, return_counts=True)
  names = names[counts >= min_samples]
  require(
    num_clients <= len(names),
    "num_clients",
    num_clients,
    f"the data have {len(names)} clients of at least {min_samples} samples"
    " (data.partition.min_samples)",
  )
  drawn = np.random.default_rng(seed).permutation(names)[:num_clients]
  order = np.argsort(owners, kind="stable")
  bounds = np.searchsorted(owners[order], np.sort(drawn)[:, None] + (0, 1))
  return [order[start:end] for start, end in bounds]


natural.of_clients = True  # type: ignore[attr-defined]


def dirichlet(
  labels: np.ndarray,
  num_clients: int,
  seed: int,
  *,
  alpha: Annotated[float, _ALPHA] = 0.5,
  min_samples: Annotated[int, COUNT] = 1,
  capped: bool = False,
) -> list[np.ndarray]:
  """Splits every class over the clients in proportions drawn from Dir(alpha).

  All proportions are redrawn until every client has at least `min_samples`.
  The partition is that of Hsu et al., Measuring the Effects of Non-Identical
  Data Distribution for Federated Visual Classification, 2019; Hydra, HARMONY,
  PGFedSplit and SuperSFL use it.

  With `capped` the classes are split one after another, and a client that has
  reached the mean number of samples gets none of the later classes, as in
  PFLlib and the public code of FedTHE. PFLlib's other settings are
  data.pool=all, min_samples=40 (with batch size 10) and the shift `local`.
  """
  require_clients(num_clients, len(labels))
  most = len(labels) // num_clients
  require(
    min_samples <= most,
    "data.partition.min_samples",
    min_samples,
    f"must be at most {most}: {len(labels)} samples for {num_clients} clients",
  )
  rng = np.random.default_rng(seed)
  classes, counts = np.unique(labels, return_counts=True)
  best = 0
  for _ in range(_DRAWS):
    sizes = _drawn_sizes(rng, counts, num_clients, alpha, capped)
    best = max(best, int(sizes.sum(axis=0).min()))
    if best >= min_samples:
      break
  else:
    raise UserError(
      f"data.partition.min_samples = {min_samples}: in {_DRAWS} draws of"
      f" Dirichlet({alpha}) over {num_clients} clients and {len(labels)}"
      f" samples the smallest client had at most {best}; lower min_samples or"
      " num_clients, or raise data.partition.alpha"
    )
  rows = [rng.permutation(np.flatnonzero(labels == c)) for c in classes]
  return rows_by_client(np.concatenate(rows), columns(sizes), num_clients)


def _drawn_sizes(
  rng: np.random.Generator,
  counts: np.ndarray,
  num_clients: int,
  alpha: float,
  capped: bool,
) -> np.ndarray:
  """Draws how many of each class's samples each client gets: [C, N] int64."""
  share = rng.dirichlet(np.full(num_clients, alpha), size=len(counts))
  if capped:
    share = _capped(share, counts)
  cuts = np.rint(np.cumsum(share, axis=1)[:, :-1] * counts[:, None])
  edges = np.pad(cuts.astype(np.int64), ((0, 0), (1, 0)))
  return np.diff(edges, axis=1, append=counts[:, None])


def _capped(share: np.ndarray, counts: np.ndarray) -> np.ndarray:
  """Caps every client at the mean number of samples; returns shares [C, N].

  Classes are taken in turn. Once a client has reached the mean, its shares of
  the later classes are 0, and the shares of others are rescaled to sum to 1.
  """
  share = share.copy()
  held = np.zeros(share.shape[1])
  for row, count in zip(share, counts, strict=True):
    row *= held < counts.sum() / len(held)
    row /= max(row.sum(), np.finfo(float).tiny)
    cuts = np.floor(np.cumsum(row)[:-1] * count)
    held += np.diff(cuts, prepend=0, append=count)
  return share


def pathological(
  labels: np.ndarray,
  num_clients: int,
  seed: int,
  *,
  k: Annotated[int, COUNT] = 2,
  shares: Literal["equal", "uniform"] = "equal",
) -> list[np.ndarray]:
  """Gives each client samples of exactly k classes.

  One client after another takes the k classes that the fewest clients hold so
  far (ties are random); finally the clients are shuffled. So the numbers of
  clients per class differ by at most one; with N k below the number of classes,
  some have none and are not used. The holders of a class share all its samples,
  equally or in proportion to numbers drawn from U(0.4, 0.6).

  McMahan et al., AISTATS 2017, assign shards (see `shard`); Shamsian et al.,
  Personalized Federated Learning using Hypernetworks, ICML 2021, assign
  classes. U(0.4, 0.6) is from the public code of Shamsian et al., which may
  give a client a class twice. PGFedSplit cites both.
  """
  require_clients(num_clients, len(labels))
  classes, counts = np.unique(labels, return_counts=True)
  require(
    k <= len(classes),
    "data.partition.k",
    k,
    f"must be at most {len(classes)}, the classes that occur",
  )
  rng = np.random.default_rng(seed)
  holds = _assign_classes(rng, num_clients, k, len(classes))
  holders = holds.sum(axis=1)
  worst = int(np.argmax(holders - counts))
  require(
    bool(holders[worst] <= counts[worst]),
    "num_clients",
    num_clients,
    f"with data.partition.k = {k} the {counts[worst]} samples of class "
    f"{classes[worst]} are for {holders[worst]} clients; lower it or k",
  )
  weight = rng.uniform(0.4, 0.6, holds.shape) if shares == "uniform" else 1.0
  weight = holds * weight
  total = np.where(holders > 0, weight.sum(axis=1), 1.0)
  exact = counts[:, None] * weight / total[:, None]
  # Every holder gets at least one sample (`least`). Weights differ by a factor
  # of 1.5 at most: if a share below 1 becomes 1, the others are at most 1.5 and
  # are rounded down to 1, so that the class has enough samples.
  sizes = round_fairly(exact, rng, holds)
  unused = counts - sizes.sum(axis=1)
  sizes = np.column_stack([sizes, unused])
  rows = shuffled_by_class(labels, rng)
  return rows_by_client(rows, columns(sizes), num_clients)


def _assign_classes(
  rng: np.random.Generator, num_clients: int, k: int, classes: int
) -> np.ndarray:
  """Assigns k classes to each client: [C, N] bool, k per column."""
  holds = np.zeros((num_clients, classes), bool)
  load = np.zeros(classes, np.int64)
  for client in holds:
    client[np.argsort(load + rng.random(classes))[:k]] = True
    load += client
  return rng.permutation(holds).T


def round_fairly(
  exact: np.ndarray, rng: np.random.Generator, least: np.ndarray | int = 0
) -> np.ndarray:
  """Rounds shares so that the rounding errors of each column nearly cancel.

  Row by row, every share is rounded down. The samples that a row then lacks go,
  one each, to the columns that have lost most by rounding so far; ties are
  broken at random. Shares [C, G] float64, whose rows sum to whole numbers,
  become [C, G] int64 with the same row sums, each at least `least`.
  """
  whole = np.maximum(np.floor(exact + _NOISE).astype(np.int64), least)
  rest = exact - whole
  short = np.rint(exact.sum(axis=1)).astype(np.int64) - whole.sum(axis=1)
  owed = np.zeros(exact.shape[1])
  for row, part, count in zip(whole, rest, short, strict=True):
    owed += part
    # Rounding removes floating-point noise, which must not decide equal claims.
    claim = np.where(part > _NOISE, owed.round(9), -np.inf)
    favoured = np.lexsort((rng.random(len(owed)), -claim))[:count]
    row[favoured] += 1
    owed[favoured] -= 1
  return whole


def shuffled_by_class(
  labels: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
  """Orders all rows [Z] int64 by class, at random within a class."""
  rows = rng.permutation(len(labels))
  return rows[np.argsort(labels[rows], kind="stable")]


def columns(sizes: np.ndarray) -> np.ndarray:
  """Returns the column of `sizes` to which each sample belongs, [Z] int64.

  sizes[c, g] samples of class c, which come first by class, then by column.
  """
  classes, groups = sizes.shape
  return np.repeat(np.tile(np.arange(groups), classes), sizes.ravel())


def rows_by_client(
  rows: np.ndarray, client: np.ndarray, num_clients: int
) -> list[np.ndarray]:
  """Collects the sorted rows of each client: N arrays [S_n] int64.

  `client` [Z] has the client of each of `rows` [Z], or num_clients for none.
  """
  by_row = np.empty_like(client)
  by_row[rows] = client
  order = np.argsort(by_row, kind="stable")
  ends = np.cumsum(np.bincount(by_row, minlength=num_clients))
  return np.split(order, ends)[:num_clients]


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
  """Calls a partition, which gets the labels or owners [Z] read-only.

  `name` is its key in PARTITIONS; `check_parts` checks what it returns.
  """
  basis = basis.view()
  basis.flags.writeable = False
  dealt = partition(basis, num_clients, seed, **options)
  return check_parts(name, dealt, num_clients, len(basis))


def check_parts(
  name: str, parts: Any, num_clients: int, samples: int
) -> list[np.ndarray]:
  """Checks what a partition returned; converts it to N arrays [S_n] int64.

  Raises:
    UserError: it is no list of N integer arrays of rows below `samples`, a
      client has no sample, or a sample is dealt twice.
  """
  where = f"data.partition={name}"
  if not isinstance(parts, Sequence | np.ndarray) or len(parts) != num_clients:
    count = f" of {len(parts)}" if hasattr(parts, "__len__") else ""
    raise UserError(
      f"{where}: gave {type(parts).__name__}{count}; it must give a list, the"
      f" rows of each of {num_clients} clients"
    )
  dealt = []
  used = np.zeros(samples, bool)
  for n, part in enumerate(parts):
    try:
      rows = np.asarray(part)
    except ValueError:  # rows of several lengths
      rows = np.empty(0)
    fits = rows.ndim == 1 and rows.dtype.kind in "iu" and len(rows)
    if not fits or rows.min() < 0 or rows.max() >= samples:
      raise UserError(
        f"{where}: client {n} has {part!r:.60}; it must have the numbers of its"
        f" training samples, [S] int among 0..{samples - 1}, one at least"
      )
    if len(np.unique(rows)) < len(rows) or used[rows].any():
      raise UserError(
        f"{where}: client {n} has a sample twice, or one of another client;"
        " give each sample to one client, once"
      )
    used[rows] = True
    dealt.append(rows.astype(np.int64))
  return dealt
