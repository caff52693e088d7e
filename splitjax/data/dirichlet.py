"""The Dirichlet partition: every class in random proportions."""

from collections.abc import Iterator

import numpy as np

from splitjax.data.partition_util import (
  owners,
  require,
  require_clients,
  shards_of_rows,
)
from splitjax.types import UserError

_LARGEST_ALPHA = 1e6
"""An even deal: a client's share is off by a thousandth of itself."""

_REDRAWS = 2000
"""Draws for a group of clients before giving up, where they are cheap."""

_WORK = 15_000_000
"""Random numbers before giving up: well under a second unless alpha < 0.1."""

_OVERHEAD = 1000
"""What a draw costs beside its random numbers, in random numbers."""


def dirichlet(
  labels: np.ndarray,
  num_clients: int,
  seed: int,
  *,
  alpha: float = 0.5,
  min_samples: int = 1,
  groups_of: int | None = None,
) -> list[np.ndarray]:
  """Splits every class over the clients in proportions drawn from Dir(alpha).

  All proportions are drawn again until every client has `min_samples`, a number
  of times that is bounded by the work, never by a clock. Hsu et al., Measuring
  the Effects of Non-Identical Data Distribution for Federated Visual
  Classification, 2019; Hydra, HARMONY, PGFedSplit and SuperSFL use it.

  With `groups_of` the shuffled samples are first cut into one share for each
  group of that many successive clients, in proportion to the clients (the last
  group is smaller if need be), and each share is split by a Dirichlet of its
  own. So does the public code of FedTHE (Jiang and Lin, ICLR 2023), in groups
  of 10. That code also gives no further class to a client that has the mean
  already, and at last cuts all clients to equal sizes; neither is done here.

  Args:
    labels: [Z] integer, labels of the training split.
    num_clients: N.
    seed: fixes the draw.
    alpha: concentration, at most 1e6; the smaller, the fewer classes a client
      has.
    min_samples: the fewest samples a client may have.
    groups_of: clients of a group; None, or N and more: one group of all.

  Returns:
    N arrays [S_n] int64, rows of the training split; together all of it.

  Raises:
    UserError: alpha not positive or too large, groups_of < 1, min_samples out
      of range, or no draw gives every client min_samples.
  """
  require_clients(num_clients, len(labels))
  require(
    0 < alpha <= _LARGEST_ALPHA,
    "data.partition.alpha",
    alpha,
    f"must be positive and at most {_LARGEST_ALPHA:.0f}, which deals every "
    "class evenly",
  )
  require(
    groups_of is None or groups_of >= 1,
    "data.partition.groups_of",
    groups_of,
    f"must be at least 1, or None for one group of all {num_clients} clients",
  )
  rng = np.random.default_rng(seed)
  groups = _groups(rng, len(labels), num_clients, groups_of or num_clients)
  most = min(len(rows) // clients for rows, clients in groups)
  require(
    1 <= min_samples <= most,
    "data.partition.min_samples",
    min_samples,
    f"must be between 1 and {most}: {len(labels)} samples for {num_clients} "
    "clients" + (f" in groups of {groups_of}" if groups_of else ""),
  )
  widest = groups[0][1] * len(np.unique(labels))
  draws = min(_REDRAWS * len(groups), _WORK // (widest + _OVERHEAD))
  redraws = iter(range(draws - 1))
  return [
    rows[part]
    for rows, clients in groups
    for part in _split(labels[rows], clients, rng, alpha, min_samples, redraws)
  ]


def _groups(
  rng: np.random.Generator, samples: int, num_clients: int, size: int
) -> list[tuple[np.ndarray, int]]:
  """Sorted rows and number of clients of each group."""
  if size >= num_clients:
    return [(np.arange(samples), num_clients)]
  starts = np.arange(0, num_clients, size)
  cuts = np.rint(starts[1:] * samples / num_clients).astype(np.int64)
  shares = np.split(rng.permutation(samples), cuts)
  clients = np.diff(starts, append=num_clients).tolist()
  return [(np.sort(s), n) for s, n in zip(shares, clients, strict=True)]


def _split(
  labels: np.ndarray,
  num_clients: int,
  rng: np.random.Generator,
  alpha: float,
  min_samples: int,
  redraws: Iterator[int],
) -> list[np.ndarray]:
  """Splits [Z] labels over the clients by the first draw that will do."""
  classes, counts = np.unique(labels, return_counts=True)
  sizes = _draw_sizes(rng, counts, num_clients, alpha, min_samples, redraws)
  rows = [rng.permutation(np.flatnonzero(labels == c)) for c in classes]
  return shards_of_rows(np.concatenate(rows), owners(sizes), num_clients)


def _draw_sizes(
  rng: np.random.Generator,
  counts: np.ndarray,
  num_clients: int,
  alpha: float,
  min_samples: int,
  redraws: Iterator[int],
) -> np.ndarray:
  """Draws samples [C, N] int64 of each class, until all clients have enough."""
  best, draws = 0, 0
  while True:
    share = rng.dirichlet(np.full(num_clients, alpha), size=len(counts))
    cuts = np.rint(np.cumsum(share, axis=1)[:, :-1] * counts[:, None])
    edges = np.pad(cuts.astype(np.int64), ((0, 0), (1, 0)))
    sizes = np.diff(edges, axis=1, append=counts[:, None])
    best, draws = max(best, int(sizes.sum(axis=0).min())), draws + 1
    if best >= min_samples:
      return sizes
    if next(redraws, None) is None:
      break
  raise UserError(
    f"data.partition.min_samples = {min_samples}: in {draws} draws of "
    f"Dirichlet({alpha}) over {num_clients} clients and {counts.sum()} samples "
    f"the smallest client had at most {best}; lower min_samples or "
    "num_clients, or raise data.partition.alpha"
  )
