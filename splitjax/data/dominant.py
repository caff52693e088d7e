"""Hydra's partitions: for each client, one or more labels are dominant.

Hydra: Tirana et al., Data Heterogeneity and Forgotten Labels in Split Federated
Learning. Arguments and result are those of `data.partitions`; every sample is
used. Shares are rounded up or down: whoever was rounded down is first in line
at the next label (`round_fairly`).

>>> import numpy as np, splitjax
>>> labels = np.repeat([0, 1], [20, 40])
>>> deal = splitjax.PARTITIONS["dominant_label"]
>>> parts = deal(labels, num_clients=4, seed=0, p=80.0)
>>> [np.bincount(labels[rows]).tolist() for rows in parts]
[[8, 4], [2, 16], [8, 4], [2, 16]]
"""

from typing import Annotated, Literal

import numpy as np

from splitjax.data.partitions import (
  columns,
  require,
  require_clients,
  round_fairly,
  rows_by_client,
  shuffled_by_class,
)
from splitjax.fields import COUNT, Bounds

_PERCENT = Bounds(at_least=0, at_most=100)


def dominant_label(
  labels: np.ndarray,
  num_clients: int,
  seed: int,
  *,
  p: Annotated[float, _PERCENT] = 80.0,
  phi: Annotated[int | Literal["auto"], COUNT] = "auto",
) -> list[np.ndarray]:
  """Gives p % of each label to the phi clients for which it is dominant.

  There are N = phi L clients for L labels ("auto": phi = N / L), and client c
  has the dominant label c mod L. The phi clients of a label share p % of its
  samples equally; all other clients share the remaining (100 - p) % equally.
  p = 100 / L is an even split.

  Hydra section 3.1 and appendix E.1. The appendix distributes the remainder
  "among the other labels" of a client, section 3.1 "among the other clients";
  for labels of unequal size this follows section 3.1, as the public code does.
  """
  classes = _count_labels(labels, num_clients, "dominant_label", 2)
  near = num_clients // classes * classes
  require(
    phi != "auto" or near == num_clients,
    "data.partition.phi",
    phi,
    f"{num_clients} clients are no multiple of the {classes} labels; set "
    f"num_clients to {f'{near} or ' * (near > 0)}{near + classes}",
  )
  require(
    phi == "auto" or phi * classes == num_clients,
    "data.partition.phi",
    phi,
    f"for {classes} labels needs num_clients = {phi * classes}, not "
    f"{num_clients}; set that to {phi * classes}, or phi to 'auto'",
  )
  return _partition(labels, num_clients, seed, p, 1)


def custom_shard(
  labels: np.ndarray,
  num_clients: int,
  seed: int,
  *,
  p: Annotated[float, _PERCENT] = 80.0,
  n_dominant: Annotated[int, Bounds(at_least=2)] = 2,
) -> list[np.ndarray]:
  """Gives p % of each label to the n groups for which it is dominant.

  There are L groups for L labels; client c is in group c mod L. Group g has the
  dominant labels g, g + 1, .., g + n - 1 (mod L), n = `n_dominant` < L. Each of
  the n groups for which a label is dominant gets p / n % of its samples. The
  other L - n groups share the remaining (100 - p) % equally, and the clients of
  a group share the group's samples equally. p = 100 n / L is an even split.

  Hydra appendix E.3 leaves three points open. Here (1) a group's dominant
  labels are successive, as in Hydra's public code; (2) a group has N / L
  clients, rounded up or down (the appendix says "the client belonging to the
  group"), which together get p / n %, whatever N is; (3) the remainder goes to
  the groups for which the label is not dominant (the appendix says "other
  groups"). The public code, with L = N = 10, n = 2 and p = 80, divides the
  remainder by N - 1 instead of N - n, and drops what this division leaves over.
  """
  classes = _count_labels(labels, num_clients, "custom_shard", 3)
  require(
    n_dominant < classes,
    "data.partition.n_dominant",
    n_dominant,
    f"must be at most {classes - 1}: not all of the {classes} labels can be "
    "dominant",
  )
  require(
    num_clients >= classes,
    "num_clients",
    num_clients,
    f"data.partition custom_shard has a group for each of {classes} labels; "
    f"set it to {classes} or more",
  )
  return _partition(labels, num_clients, seed, p, n_dominant)


def groups(labels: np.ndarray, num_clients: int) -> np.ndarray:
  """Returns the first dominant label of each client's group: [N] int64.

  For client c, this is the label at position c mod L of the L sorted labels.
  """
  classes = np.unique(labels)
  return classes[np.arange(num_clients) % len(classes)].astype(np.int64)


def _count_labels(
  labels: np.ndarray, num_clients: int, name: str, fewest: int
) -> int:
  """Counts distinct labels; raises UserError for too few labels or samples."""
  require_clients(num_clients, len(labels))
  classes = len(np.unique(labels))
  require(
    classes >= fewest,
    "data.partition.name",
    name,
    f"needs {fewest} labels or more; the training samples have {classes}",
  )
  return classes


def _partition(
  labels: np.ndarray, num_clients: int, seed: int, p: float, n: int
) -> list[np.ndarray]:
  """Splits labels over L groups, then each group's samples over its clients."""
  # Numbers of samples [label, group]: the percentages, rounded.
  rng = np.random.default_rng(seed)
  classes, counts = np.unique(labels, return_counts=True)
  group = np.arange(len(counts))
  dominant = (group[:, None] - group) % len(group) < n  # [label, group]
  percent = np.where(dominant, p / n, (100 - p) / (len(group) - n))
  sizes = round_fairly(counts[:, None] * percent / 100, rng)
  # Every client of a group needs at least one sample.
  totals = sizes.sum(axis=0)
  clients = -(-(num_clients - group) // len(group))
  poor = int(np.argmax(clients - totals))
  require(
    bool(totals[poor] >= clients[poor]),
    "num_clients",
    num_clients,
    f"with data.partition.p = {p:g} only {totals[poor]} sample(s) are for the "
    f"{clients[poor]} client(s) whose dominant label is {classes[poor]}; lower "
    f"it, or set p nearer to {100 * n / len(group):g}, an even split",
  )
  # The clients of a group take its samples in turn, label after label: their
  # shares of a label, and their totals too, differ by at most one.
  of_group = columns(sizes)
  order = np.argsort(of_group, kind="stable")
  rows = shuffled_by_class(labels, rng)[order]
  of_group = of_group[order]
  turn = np.arange(len(rows)) - (np.cumsum(totals) - totals)[of_group]
  turn += rng.integers(clients)[of_group]
  client = of_group + len(group) * (turn % clients[of_group])
  return rows_by_client(rows, client, num_clients)
