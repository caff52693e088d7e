"""Partitions: which training samples each client holds.

Each function takes the labels of the training split, the number of clients and
a seed, then its own parameters by keyword; it returns one index array per
client. Index sets are disjoint, sorted, never empty, and the same for the same
seed. The keyword parameters are the options of `data.partition` in a config.
"""

import math
from typing import Literal

import numpy as np

from splitjax.types import UserError

_REDRAWS = 2000
"""Dirichlet draws before giving up: well under a second at N = 50, C = 100."""


def _require(condition: bool, field: str, value: object, remedy: str) -> None:
  """Raises UserError about `field` unless `condition` holds."""
  if not condition:
    raise UserError(f"{field} = {value!r}: {remedy}")


def _require_clients(num_clients: int, samples: int) -> None:
  """Raises UserError unless every client can have a sample."""
  _require(
    1 <= num_clients <= samples,
    "num_clients",
    num_clients,
    f"must be between 1 and the {samples} training samples",
  )


def shard(
  labels: np.ndarray,
  num_clients: int,
  seed: int,
  *,
  k: int = 2,
  num_shards: int | Literal["auto"] = 100,
) -> list[np.ndarray]:
  """Deals k of num_shards equal runs of the label-sorted samples to a client.

  The samples are sorted by label (stably) and cut into `num_shards` equal
  chunks; a remainder is spread by one over the first chunks. Each client gets k
  chunks at random, without replacement, so N k of the chunks are in use. Where
  num_shards is a multiple of the number of equally large classes, a client has
  at most k classes; otherwise a chunk may straddle two classes.

  The Shard-k setting of HARMONY and SplitGP (Han et al., INFOCOM 2023), after
  McMahan et al., AISTATS 2017.

  Args:
    labels: [Z] integer, labels of the training split.
    num_clients: N.
    seed: fixes which chunks a client gets.
    k: chunks per client.
    num_shards: chunks in all; "auto" means N k, for small data.

  Returns:
    N arrays [S_n] int64, rows of the training split.

  Raises:
    UserError: k < 1, fewer chunks than N k, or more chunks than samples.
  """
  _require_clients(num_clients, len(labels))
  _require(k >= 1, "data.partition.k", k, "must be at least 1")
  needed = num_clients * k
  total = needed if num_shards == "auto" else num_shards
  _require(
    needed <= total,
    "data.partition.num_shards",
    num_shards,
    f"{num_clients} clients with k = {k} need {needed} shards; set it to "
    f"{needed} or more or to 'auto', or lower num_clients or k",
  )
  _require(
    total <= len(labels),
    "data.partition.num_shards",
    num_shards,
    f"{total} shards cannot be cut from {len(labels)} samples; lower "
    "num_shards, num_clients or k",
  )
  chunks = np.array_split(np.argsort(labels, kind="stable"), total)
  deal = np.random.default_rng(seed).permutation(total)[:needed]
  return [
    np.sort(np.concatenate([chunks[c] for c in hand]))
    for hand in deal.reshape(num_clients, k)
  ]


def dirichlet(
  labels: np.ndarray,
  num_clients: int,
  seed: int,
  *,
  alpha: float = 0.5,
  min_samples: int = 1,
) -> list[np.ndarray]:
  """Splits every class over the clients in proportions drawn from Dir(alpha).

  All proportions are drawn again until every client has `min_samples`, a
  bounded number of times. Hsu et al., Measuring the Effects of Non-Identical
  Data Distribution for Federated Visual Classification, 2019; Hydra, HARMONY,
  PGFedSplit and SuperSFL use it.

  Args:
    labels: [Z] integer, labels of the training split.
    num_clients: N.
    seed: fixes the draw.
    alpha: concentration; the smaller, the fewer classes a client has.
    min_samples: the fewest samples a client may have.

  Returns:
    N arrays [S_n] int64, rows of the training split; together all of it.

  Raises:
    UserError: alpha not positive and finite, min_samples < 1, or no draw gives
      every client min_samples.
  """
  _require_clients(num_clients, len(labels))
  _require(
    alpha > 0 and math.isfinite(alpha),
    "data.partition.alpha",
    alpha,
    "must be positive and finite",
  )
  most = len(labels) // num_clients
  _require(
    1 <= min_samples <= most,
    "data.partition.min_samples",
    min_samples,
    f"must be between 1 and {most}: {len(labels)} samples for {num_clients} "
    "clients",
  )
  rng = np.random.default_rng(seed)
  classes, counts = np.unique(labels, return_counts=True)
  cuts = _draw_cuts(rng, counts, num_clients, alpha, min_samples)
  hands: list[list[np.ndarray]] = [[] for _ in range(num_clients)]
  for label, cut in zip(classes, cuts, strict=True):
    rows = rng.permutation(np.flatnonzero(labels == label))
    for hand, piece in zip(hands, np.split(rows, cut), strict=True):
      hand.append(piece)
  return [np.sort(np.concatenate(hand)) for hand in hands]


def _draw_cuts(
  rng: np.random.Generator,
  counts: np.ndarray,
  num_clients: int,
  alpha: float,
  min_samples: int,
) -> np.ndarray:
  """Draws cuts [C, N - 1] int64 of each class, until all have enough."""
  best = 0
  for _ in range(_REDRAWS):
    share = rng.dirichlet(np.full(num_clients, alpha), size=len(counts))
    cuts = np.rint(np.cumsum(share, axis=1)[:, :-1] * counts[:, None])
    cuts = cuts.astype(np.int64)
    edges = np.pad(cuts, ((0, 0), (1, 0)))
    sizes = np.diff(edges, axis=1, append=counts[:, None]).sum(axis=0)
    best = max(best, int(sizes.min()))
    if best >= min_samples:
      return cuts
  raise UserError(
    f"data.partition.min_samples = {min_samples}: in {_REDRAWS} draws of "
    f"Dirichlet({alpha}) over {num_clients} clients and {counts.sum()} samples "
    f"the smallest client had at most {best}; lower min_samples or "
    "num_clients, or raise data.partition.alpha"
  )


def iid(labels: np.ndarray, num_clients: int, seed: int) -> list[np.ndarray]:
  """Deals the shuffled samples evenly; a remainder is spread by one.

  Args:
    labels: [Z] integer, labels of the training split.
    num_clients: N.
    seed: fixes the shuffle.

  Returns:
    N arrays [S_n] int64, rows of the training split; together all of it.

  Raises:
    UserError: more clients than samples.
  """
  _require_clients(num_clients, len(labels))
  order = np.random.default_rng(seed).permutation(len(labels))
  return [np.sort(rows) for rows in np.array_split(order, num_clients)]
