"""Hydra's partitions: clients with dominant labels and a little of the others.

Hydra: Tirana et al., Data Heterogeneity and Forgotten Labels in Split Federated
Learning.
"""

from typing import Literal

import numpy as np

from splitjax.data.partition_util import (
  owners,
  require,
  require_clients,
  round_fairly,
  shards_of_rows,
  shuffled_by_class,
)


def dominant_label(
  labels: np.ndarray,
  num_clients: int,
  seed: int,
  *,
  p: float = 80.0,
  phi: int | Literal["auto"] = "auto",
) -> list[np.ndarray]:
  """Deals p % of each label to the phi clients for which it is dominant.

  There are N = phi L clients for L labels, and client c has the dominant label
  c mod L. Its phi clients get p % of a label's samples in equal parts, all
  other clients the remaining (100 - p) %, in equal parts too. p = 100 / L is an
  even deal. Nothing is left over: a share is rounded up or down, and who was
  rounded down is first in turn at the next label.

  Hydra section 3.1 and appendix E.1. The latter distributes the remainder
  "among the other labels" of a client and the former "among the other clients";
  for labels of equal size this is the same, and otherwise the former holds
  here, as in Hydra's public code.

  Args:
    labels: [Z] integer, labels of the training split; L of them occur.
    num_clients: N.
    seed: fixes who gets which samples, and which shares are rounded up.
    p: percentage of a label that goes to its own clients, 0 to 100.
    phi: clients for each label; "auto" means N / L.

  Returns:
    N arrays [S_n] int64, rows of the training split; together all of it.

  Raises:
    UserError: N is not phi L, p out of range, one label only, or a client that
      would get nothing.
  """
  classes = _require_shares(labels, num_clients, p, "dominant_label", 2)
  near = num_clients // classes * classes
  require(
    phi != "auto" or near == num_clients,
    "data.partition.phi",
    phi,
    f"{num_clients} clients cannot be the same number for each of {classes} "
    f"labels; set num_clients to {f'{near} or ' * (near > 0)}{near + classes}",
  )
  require(
    phi == "auto" or phi >= 1,
    "data.partition.phi",
    phi,
    "must be 'auto' or at least 1",
  )
  require(
    phi == "auto" or phi * classes == num_clients,
    "data.partition.phi",
    phi,
    f"so many clients for each of {classes} labels are {phi * classes}, and "
    f"num_clients = {num_clients}; set that to {phi * classes}, or phi to "
    "'auto'",
  )
  return _deal(labels, num_clients, seed, p, 1)


def custom_shard(
  labels: np.ndarray,
  num_clients: int,
  seed: int,
  *,
  p: float = 80.0,
  n_dominant: int = 2,
) -> list[np.ndarray]:
  """Deals p % of each label to the n groups for which it is dominant.

  There are L groups for L labels; client c is of group c mod L. Group g has the
  dominant labels g, g + 1, .., g + n - 1 (mod L). Of a label's samples p / n %
  go to each of its n groups, the remaining (100 - p) % to the other L - n
  groups in equal parts; the clients of a group share equally. p = 100 n / L is
  an even deal. Nothing is left over: a share is rounded up or down, and who was
  rounded down is first in turn at the next label.

  Hydra appendix E.3, which leaves open (1) which labels a group has: successive
  ones, as in Hydra's public code; (2) how many clients a group has, as it
  speaks of "the client belonging to the group": N / L, up or down, and p / n is
  the group's percentage, whatever N is; (3) which groups are "the other groups"
  that share the remainder: those for which the label is not dominant. The
  public code, with L = N = 10, n = 2 and p = 80, divides the remainder by N - 1
  instead of N - n, and drops what this leaves.

  Args:
    labels: [Z] integer, labels of the training split; L of them occur.
    num_clients: N, at least L.
    seed: fixes who gets which samples, and which shares are rounded up.
    p: percentage of a label that goes to its own groups, 0 to 100.
    n_dominant: n, dominant labels of a group, at least 2 and less than L.

  Returns:
    N arrays [S_n] int64, rows of the training split; together all of it.

  Raises:
    UserError: n_dominant or p out of range, fewer than 3 labels, fewer clients
      than labels, or a client that would get nothing.
  """
  classes = _require_shares(labels, num_clients, p, "custom_shard", 3)
  require(
    2 <= n_dominant < classes,
    "data.partition.n_dominant",
    n_dominant,
    f"must be between 2 and {classes - 1}: there are {classes} labels, and "
    "some other than the dominant ones",
  )
  require(
    num_clients >= classes,
    "num_clients",
    num_clients,
    f"data.partition custom_shard has a group for each of {classes} labels; "
    f"set it to {classes} or more",
  )
  return _deal(labels, num_clients, seed, p, n_dominant)


def _require_shares(
  labels: np.ndarray, num_clients: int, p: float, name: str, fewest: int
) -> int:
  """The number of labels that occur, after the checks that both share."""
  require_clients(num_clients, len(labels))
  require(
    0 <= p <= 100,
    "data.partition.p",
    p,
    "must be a percentage, between 0 and 100",
  )
  classes = len(np.unique(labels))
  require(
    classes >= fewest,
    "data.partition.name",
    name,
    f"needs {fewest} labels or more; the training samples have {classes}",
  )
  return classes


def _deal(
  labels: np.ndarray, num_clients: int, seed: int, p: float, n: int
) -> list[np.ndarray]:
  """Deals labels to L groups, then each group's samples to its clients."""
  rng = np.random.default_rng(seed)
  classes, counts = np.unique(labels, return_counts=True)
  group = np.arange(len(counts))
  dominant = (group[:, None] - group) % len(group) < n  # [label, group]
  percent = np.where(dominant, p / n, (100 - p) / (len(group) - n))
  sizes = round_fairly(counts[:, None] * percent / 100, rng)
  totals = sizes.sum(axis=0)
  clients = -(-(num_clients - group) // len(group))
  poor = int(np.argmax(clients - totals))
  require(
    bool(totals[poor] >= clients[poor]),
    "num_clients",
    num_clients,
    f"with data.partition.p = {p:g} only {totals[poor]} sample(s) are for the "
    f"{clients[poor]} client(s) whose dominant label is {classes[poor]}; lower "
    f"it, or set p nearer to {100 * n / len(group):g}, an even deal",
  )
  # A group's samples, label after label, are dealt like cards: its clients'
  # shares of a label, and their totals too, differ by at most one.
  mine = owners(sizes)
  order = np.argsort(mine, kind="stable")
  rows, mine = shuffled_by_class(labels, rng)[order], mine[order]
  turn = np.arange(len(rows)) - (np.cumsum(totals) - totals)[mine]
  turn += rng.integers(clients)[mine]
  client = mine + len(group) * (turn % clients[mine])
  return shards_of_rows(rows, client, num_clients)
