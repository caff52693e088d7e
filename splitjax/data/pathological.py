"""The pathological partition: few classes for each client, exactly so many."""

from typing import Literal, get_args

import numpy as np

from splitjax.data.partition_util import (
  owners,
  require,
  require_clients,
  round_fairly,
  shards_of_rows,
  shuffled_by_class,
)

Shares = Literal["equal", "uniform"]


def pathological(
  labels: np.ndarray,
  num_clients: int,
  seed: int,
  *,
  k: int = 2,
  shares: Shares = "equal",
) -> list[np.ndarray]:
  """Gives each client samples of exactly k classes.

  One client after the other takes the k classes that the fewest hold so far
  (ties drawn), and the clients are shuffled at last: the k are distinct, and
  the numbers of clients that hold a class differ by at most one. The holders of
  a class share all its samples: equally, or in proportion to numbers drawn from
  U(0.4, 0.6). Where N k is less than the number of classes, some are held by
  nobody and not in use.

  McMahan et al., AISTATS 2017, who deal shards (see `shard`); as classes,
  Shamsian et al., Personalized Federated Learning using Hypernetworks, ICML
  2021, whose public code has the uniform shares (it needs N k to be a multiple
  of the number of classes, and may give a client one class twice). PGFedSplit
  names both.

  Args:
    labels: [Z] integer, labels of the training split.
    num_clients: N.
    seed: fixes who holds which classes and samples.
    k: classes of a client.
    shares: how the holders of a class split it.

  Returns:
    N arrays [S_n] int64, rows of the training split; together all samples of
    the classes that somebody holds.

  Raises:
    UserError: k or shares out of range, or a class with fewer samples than
      holders.
  """
  require_clients(num_clients, len(labels))
  require(
    shares in get_args(Shares),
    "data.partition.shares",
    shares,
    f"must be one of {', '.join(map(repr, get_args(Shares)))}",
  )
  classes, counts = np.unique(labels, return_counts=True)
  require(
    1 <= k <= len(classes),
    "data.partition.k",
    k,
    f"must be between 1 and {len(classes)}, the classes that occur",
  )
  rng = np.random.default_rng(seed)
  holds = _deal_classes(rng, num_clients, k, len(classes))
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
  # A holder's share may lie below one sample, but it is to hold the class.
  # Weights within a factor of 1.5 leave enough for that: where one share is
  # below one, none is above 1.5.
  sizes = round_fairly(exact, rng, holds)
  sizes = np.column_stack([sizes, counts - sizes.sum(axis=1)])
  return shards_of_rows(
    shuffled_by_class(labels, rng), owners(sizes), num_clients
  )


def _deal_classes(
  rng: np.random.Generator, num_clients: int, k: int, classes: int
) -> np.ndarray:
  """Who holds what: [C, N] bool, k in each column, rows differ by one."""
  holds = np.zeros((num_clients, classes), bool)
  load = np.zeros(classes, np.int64)
  for hand in holds:
    hand[np.argsort(load + rng.random(classes))[:k]] = True
    load += hand
  return rng.permutation(holds).T
