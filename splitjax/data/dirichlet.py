"""The Dirichlet partition: splits each class in random proportions."""

from collections.abc import Iterator
from typing import Annotated

import numpy as np

from splitjax.data.partition_util import (
  COUNT,
  owners,
  require,
  require_clients,
  shards_of_rows,
)
from splitjax.fields import Bounds
from splitjax.types import UserError

_ALPHA = Bounds(above=0, at_most=1e6)
"""Bounds of alpha. At 1e6 the split is even: shares differ by 0.1 %."""

_REDRAWS = 2000
"""Number of draws allowed per group of clients. The allowances of all groups
are added up, and a group may use more than its own."""

_WORK = 15_000_000
"""Limit of random numbers drawn; they take under 1 s unless alpha < 0.1."""

_OVERHEAD = 1000
"""Fixed cost of a draw, counted as this many random numbers."""


def dirichlet(
  labels: np.ndarray,
  num_clients: int,
  seed: int,
  *,
  alpha: Annotated[float, _ALPHA] = 0.5,
  min_samples: Annotated[int, COUNT] = 1,
  groups_of: Annotated[int | None, COUNT] = None,
  capped: bool = False,
) -> list[np.ndarray]:
  """Splits every class over the clients in proportions drawn from Dir(alpha).

  All proportions are redrawn until every client has at least `min_samples`
  samples. The number of draws is limited by how many random numbers they take,
  not by elapsed time. The partition is that of Hsu et al., Measuring the
  Effects of Non-Identical Data Distribution for Federated Visual
  Classification, 2019. Hydra, HARMONY, PGFedSplit and SuperSFL use it.

  With `groups_of`, successive clients form groups of this size (the last group
  may be smaller). The shuffled samples are cut into one share per group, in
  proportion to its number of clients, and a separate Dirichlet draw splits each
  share. The public code of FedTHE (Jiang and Lin, ICLR 2023) does so with
  groups of 10, then cuts all clients to equal sizes; this function does not.

  Args:
    labels: [Z] integer, labels of the training split.
    num_clients: N.
    seed: fixes the draw.
    alpha: concentration, at most 1e6. The smaller it is, the fewer classes a
      client gets.
    min_samples: smallest number of samples of a client.
    groups_of: clients per group. If it is None or at least N, all clients form
      a single group.
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
  rng = np.random.default_rng(seed)
  groups = _groups(rng, len(labels), num_clients, groups_of or num_clients)
  most = min(len(rows) // clients for rows, clients in groups)
  require(
    min_samples <= most,
    "data.partition.min_samples",
    min_samples,
    f"must be at most {most}: {len(labels)} samples for {num_clients} "
    "clients" + (f" in groups of {groups_of}" if groups_of else ""),
  )
  widest = groups[0][1] * len(np.unique(labels))
  draws = min(_REDRAWS * len(groups), _WORK // (widest + _OVERHEAD))
  redraws = iter(range(draws - 1))
  return [
    rows[part]
    for rows, clients in groups
    for part in _split(
      labels[rows], clients, rng, alpha, min_samples, redraws, capped
    )
  ]


def _groups(
  rng: np.random.Generator, samples: int, num_clients: int, size: int
) -> list[tuple[np.ndarray, int]]:
  """Returns for each group its sorted rows and its number of clients."""
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
  capped: bool,
) -> list[np.ndarray]:
  """Splits [Z] labels by the first draw that gives all clients min_samples."""
  classes, counts = np.unique(labels, return_counts=True)
  best, draws = 0, 0
  while True:
    # Numbers of samples, [C, N].
    share = rng.dirichlet(np.full(num_clients, alpha), size=len(counts))
    if capped:
      share = _capped(share, counts)
    cuts = np.rint(np.cumsum(share, axis=1)[:, :-1] * counts[:, None])
    edges = np.pad(cuts.astype(np.int64), ((0, 0), (1, 0)))
    sizes = np.diff(edges, axis=1, append=counts[:, None])
    best, draws = max(best, int(sizes.sum(axis=0).min())), draws + 1
    if best >= min_samples:
      break
    if next(redraws, None) is None:
      raise UserError(
        f"data.partition.min_samples = {min_samples}: in {draws} draws of "
        f"Dirichlet({alpha}) over {num_clients} clients and {len(labels)} "
        f"samples the smallest client had at most {best}; lower min_samples or "
        "num_clients, or raise data.partition.alpha"
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
