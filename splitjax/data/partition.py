"""Partitions: which training samples each client holds.

A partition takes the labels of the training split, the number of clients and a
seed; by keyword it takes the options that a config gives in `data.partition`.
It returns one index array per client. The arrays are disjoint, sorted, not
empty, and the same for the same seed.

Those of Hydra are in `data.dominant`. `client_split` splits each client's
samples after any partition.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np

from splitjax.data.partition_util import (
  COUNT,
  owners,
  require,
  require_clients,
  round_fairly,
  shards_of_rows,
  shuffled_by_class,
)
from splitjax.fields import Bounds
from splitjax.types import UserError

_ALPHA = Bounds(above=0, at_most=1e6)
"""Bounds of alpha. At 1e6 the split is even: shares differ by 0.1 %."""

_DRAWS = 2000
"""The most draws of proportions."""

_SPLIT = 0x5B117
"""Number that separates client_split's draws from others of the same seed."""


def shard(
  labels: np.ndarray,
  num_clients: int,
  seed: int,
  *,
  k: Annotated[int, COUNT] = 2,
  num_shards: int | Literal["auto"] = 100,
) -> list[np.ndarray]:
  """Gives each client k of num_shards equal chunks of label-sorted samples.

  The samples are sorted by label (stably) and cut into `num_shards` equal
  chunks; if there is a remainder, the first chunks have one sample more. Each
  client gets k random chunks, without replacement, so N k chunks are used. If
  the classes are equally large and num_shards is a multiple of their number, a
  client has at most k classes; otherwise a chunk may span several classes.

  This is the Shard-k setting of HARMONY and SplitGP (Han et al., INFOCOM 2023),
  after McMahan et al., AISTATS 2017.

  Args:
    labels: [Z] integer, labels of the training split.
    num_clients: N.
    seed: fixes which chunks a client gets.
    k: chunks per client.
    num_shards: chunks in all; "auto" means N k, for small data.

  Returns:
    N arrays [S_n] int64, rows of the training split.

  Raises:
    UserError: fewer chunks than N k, or more chunks than samples.
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
    np.sort(np.concatenate([chunks[c] for c in own]))
    for own in drawn.reshape(num_clients, k)
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

  All proportions are redrawn until every client has at least `min_samples`
  samples. The partition is that of Hsu et al., Measuring the Effects of
  Non-Identical Data Distribution for Federated Visual Classification, 2019.
  Hydra, HARMONY, PGFedSplit and SuperSFL use it.

  Args:
    labels: [Z] integer, labels of the training split.
    num_clients: N.
    seed: fixes the draw.
    alpha: concentration, at most 1e6. The smaller it is, the fewer classes a
      client gets.
    min_samples: smallest number of samples of a client.
    capped: if true, the classes are split one after another, and a client that
      has reached the mean number of samples gets none of the later classes, as
      in PFLlib and the public code of FedTHE. PFLlib's other settings are
      data.pool=all, min_samples=40 (with batch size 10) and the shift `local`.

  Returns:
    N arrays [S_n] int64; each row of the training split is in one of them.

  Raises:
    UserError: too few samples for min_samples, or no draw gives every client
      min_samples.
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
    # Numbers of samples, [C, N].
    share = rng.dirichlet(np.full(num_clients, alpha), size=len(counts))
    if capped:
      share = _capped(share, counts)
    cuts = np.rint(np.cumsum(share, axis=1)[:, :-1] * counts[:, None])
    edges = np.pad(cuts.astype(np.int64), ((0, 0), (1, 0)))
    sizes = np.diff(edges, axis=1, append=counts[:, None])
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
  return shards_of_rows(np.concatenate(rows), owners(sizes), num_clients)


def _capped(share: np.ndarray, counts: np.ndarray) -> np.ndarray:
  """Caps every client at the mean number of samples; returns shares [C, N].

  Classes are taken in turn. Once a client has reached the mean, its shares of
  the later classes are 0, and the shares of others are rescaled to sum to 1.
  """
  share, held = share.copy(), np.zeros(share.shape[1])
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
  far (ties are random); finally the clients are shuffled. So the k classes are
  distinct, and the numbers of clients per class differ by at most one. The
  holders of a class share all its samples, equally or in proportion to numbers
  drawn from U(0.4, 0.6). If N k is less than the number of classes, some
  classes have no client and are not used.

  McMahan et al., AISTATS 2017, assign shards (see `shard`); Shamsian et al.,
  Personalized Federated Learning using Hypernetworks, ICML 2021, assign
  classes. U(0.4, 0.6) is from the public code of Shamsian et al.; unlike this
  function, that code needs N k to be a multiple of the number of classes, and
  may give a client a class twice. PGFedSplit cites both.

  Args:
    labels: [Z] integer, labels of the training split.
    num_clients: N.
    seed: fixes which client holds which classes and samples.
    k: classes of a client.
    shares: how the holders of a class split its samples.

  Returns:
    N arrays [S_n] int64, rows of the training split; together all samples of
    the classes that at least one client holds.

  Raises:
    UserError: there are fewer than k classes, fewer samples than clients, or a
      class has fewer samples than holders.
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
  sizes = np.column_stack([sizes, counts - sizes.sum(axis=1)])
  return shards_of_rows(
    shuffled_by_class(labels, rng), owners(sizes), num_clients
  )


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


def iid(labels: np.ndarray, num_clients: int, seed: int) -> list[np.ndarray]:
  """Splits the shuffled samples evenly; sizes differ by one at most.

  Args:
    labels: [Z] integer, labels of the training split.
    num_clients: N.
    seed: fixes the shuffle.

  Returns:
    N arrays [S_n] int64; each row of the training split is in one of them.

  Raises:
    UserError: more clients than samples.
  """
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

  Client n is the n-th owner in ascending order. If there are more than N
  owners, N of them are first chosen at random; else the seed has no effect.

  Args:
    owners: [Z] int, the owner of each sample; given instead of labels.
    num_clients: N.
    seed: fixes which owners are chosen.
    min_samples: owners with fewer samples are not chosen.

  Returns:
    N arrays [S_n] int64, rows of the training split.

  Raises:
    UserError: fewer than N owners have min_samples samples.
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
  chosen = np.sort(drawn)
  order = np.argsort(owners, kind="stable")
  sorted_ = owners[order]
  first = np.searchsorted(sorted_, chosen, side="left")
  last = np.searchsorted(sorted_, chosen, side="right")
  return [order[a:b] for a, b in zip(first, last, strict=True)]


natural.of_clients = True  # type: ignore[attr-defined]


def client_split(
  parts: Sequence[np.ndarray],
  seed: int,
  fractions: Sequence[float],
  *,
  stream: int = _SPLIT,
) -> tuple[list[np.ndarray], ...]:
  """Splits each client's samples at random into pieces of given shares.

  A client's samples are shuffled and cut at the rounded cumulative fractions; a
  cut moves if a piece would be empty. Each client has a separate random stream,
  so its split does not depend on the number of clients. PGFedSplit uses (0.75,
  0.25) for training and test. FedTHE (Jiang and Lin, ICLR 2023) uses (0.6, 0.2,
  0.2) for training, validation and test.

  Args:
    parts: N arrays [S_n] of rows, as a partition returns them.
    seed: fixes the shuffles.
    fractions: K positive shares that sum to 1.
    stream: separates the draws of several splits with one seed.

  Returns:
    For each fraction, N sorted arrays of rows, not empty; together they are
    `parts`. A piece differs from its share by at most one sample, unless the
    share is below one sample.

  Raises:
    UserError: fractions are not positive or do not sum to 1, or a client has
      fewer samples than pieces.
  """
  shares = np.asarray(fractions, np.float64)
  require(
    bool(np.all(shares > 0) and abs(shares.sum() - 1) < 1e-9),
    "fractions",
    tuple(fractions),
    f"each must be positive, and the sum 1; it is {shares.sum():g}",
  )
  pieces = len(shares)
  sizes = np.array([len(rows) for rows in parts], np.int64)
  poorest = int(sizes.argmin())
  require(
    bool(sizes[poorest] >= pieces),
    "num_clients",
    len(parts),
    f"client {poorest} has {sizes[poorest]} sample(s) to split into {pieces} "
    f"pieces; set data.partition.min_samples to {pieces} or more where the "
    "partition has it, or lower num_clients",
  )
  # At least j samples lie before the cut after piece j, and at least one for
  # each later piece behind it.
  step = np.arange(1, pieces)
  cuts = np.rint(np.cumsum(shares)[:-1] * sizes[:, None]).astype(np.int64)
  cuts = np.maximum.accumulate(np.maximum(cuts - step, 0), axis=1) + step
  cuts = np.minimum(cuts, sizes[:, None] - (pieces - step))
  streams = np.random.SeedSequence((seed, stream)).spawn(len(parts))
  split = [
    np.split(np.random.default_rng(stream).permutation(rows), cut)
    for rows, cut, stream in zip(parts, cuts, streams, strict=True)
  ]
  return tuple(
    [np.sort(p) for p in piece] for piece in zip(*split, strict=True)
  )
