"""The pathological partition: exactly k classes for each client."""

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
