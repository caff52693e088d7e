"""The Dirichlet partition: splits each class in random proportions."""

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

_DRAWS = 2000
"""The most draws of proportions."""


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
