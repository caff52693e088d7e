"""Partitions: which training samples each client holds, and splits of them.

A partition takes `labels` [Z] of the training split, the number of clients N,
at most Z, and a seed; a config gives its options in `data.partition`. It
returns N arrays [S_n] int64 of row numbers: sorted, disjoint, not empty, and
the same for the same seed. It raises UserError where a client would get no
sample. A config's partition is called by `deal`, which checks what it returns.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np

from splitjax.data.dataset import require
from splitjax.fields import Bounds, Count

Parts = Sequence[np.ndarray]
"""N arrays [S_n] int64, rows of each client."""

# At an alpha of 1e6 the split is even: shares differ by 0.1 %.
_Alpha = Annotated[float, Bounds(above=0, at_most=1e6)]
_Percent = Annotated[float, Bounds(at_least=0, at_most=100)]

_DRAWS = 2000  # the most draws of proportions
_NOISE = 1e-9  # fractions of a sample below this are floating-point noise

# They separate draws of `client_split` with the same seed: for test sets, for
# choosing thresholds, and for validation in training.
SPLIT = 0x5B117
HOLD = 0x401D
VALIDATE = 0x7A11


def shard(
  labels: np.ndarray,
  num_clients: int,
  seed: int,
  *,
  k: Count = 2,
  num_shards: Count = 100,
) -> list[np.ndarray]:
  """Gives each client k random ones of num_shards chunks of sorted samples.

  Chunks are equal. This is the Shard-k of HARMONY and SplitGP, after McMahan et
  al., AISTATS 2017.
  """
  needed = num_clients * k
  require(
    needed <= num_shards <= len(labels),
    f"data.partition.num_shards = {num_shards}: {num_clients} clients with"
    f" k = {k} need {needed} shards, of {len(labels)} samples; set it between"
    " them, or lower num_clients or k",
  )
  chunks = np.array_split(np.argsort(labels, kind="stable"), num_shards)
  order = np.random.default_rng(seed).permutation(num_shards)
  return [
    np.sort(np.concatenate([chunks[c] for c in numbers]))
    for numbers in order[:needed].reshape(num_clients, k)
  ]


def iid(labels: np.ndarray, num_clients: int, seed: int) -> list[np.ndarray]:
  """Splits the shuffled samples evenly; sizes differ by one at most."""
  order = np.random.default_rng(seed).permutation(len(labels))
  return [np.sort(rows) for rows in np.array_split(order, num_clients)]


def natural(
  owners: np.ndarray, num_clients: int, seed: int
) -> list[np.ndarray]:
  """Gives each client all samples of one owner: a hospital, writer or device.

  It takes the owner of each sample, [Z] int, instead of labels. Client n is the
  n-th owner in ascending order, of N random ones if there are more.
  """
  names = np.unique(owners)
  require(
    num_clients <= len(names),
    f"num_clients = {num_clients}: the data have {len(names)} clients",
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
  alpha: _Alpha = 0.5,
  min_samples: Count = 1,
  capped: bool = False,
) -> list[np.ndarray]:
  """Splits every class in proportions drawn from Dir(alpha) (Hsu et al., 2019).

  They are redrawn until every client has `min_samples`. With `capped` a client
  that has reached the mean number of samples gets none of the later classes, as
  in PFLlib and the public code of FedTHE.
  """
  rng = np.random.default_rng(seed)
  classes, counts = np.unique(labels, return_counts=True)
  best = 0
  for _ in range(_DRAWS):
    share = rng.dirichlet(np.full(num_clients, alpha), size=len(counts))
    sizes = _sizes(_capped(share, counts) if capped else share, counts)
    best = max(best, int(sizes.sum(axis=0).min()))
    if best >= min_samples:
      break
  require(
    best >= min_samples,
    f"data.partition.min_samples = {min_samples}: in {_DRAWS} draws of"
    f" Dirichlet({alpha}) over {num_clients} clients and {len(labels)} samples"
    f" the smallest client had at most {best}; lower min_samples or"
    " num_clients, or raise data.partition.alpha",
  )
  rows = [rng.permutation(np.flatnonzero(labels == c)) for c in classes]
  return _rows_by_client(np.concatenate(rows), _columns(sizes), num_clients)


def _sizes(share: np.ndarray, counts: np.ndarray) -> np.ndarray:
  """Rounds shares [C, N] of `counts` [C] samples to whole ones, int64."""
  cuts = np.rint(np.cumsum(share, axis=1)[:, :-1] * counts[:, None])
  edges = np.pad(cuts.astype(np.int64), ((0, 0), (1, 0)))
  return np.diff(edges, axis=1, append=counts[:, None])


def _capped(share: np.ndarray, counts: np.ndarray) -> np.ndarray:
  """Sets shares [C, N] to 0 once a client has reached the mean, class by class.

  Those of the other clients are rescaled to sum to 1.
  """
  share = share.copy()
  totals = np.zeros(share.shape[1])
  for row, count in zip(share, counts, strict=True):
    row *= totals < counts.sum() / len(totals)
    row /= max(row.sum(), np.finfo(float).tiny)
    cuts = np.floor(np.cumsum(row)[:-1] * count)
    totals += np.diff(cuts, prepend=0, append=count)
  return share


def pathological(
  labels: np.ndarray,
  num_clients: int,
  seed: int,
  *,
  k: Count = 2,
  shares: Literal["equal", "uniform"] = "equal",
) -> list[np.ndarray]:
  """Gives each client samples of exactly k classes.

  One client after another takes the k classes that the fewest clients hold so
  far (ties are random); finally the clients are shuffled. The holders of a
  class share all its samples, equally or in proportion to draws from U(0.4,
  0.6), as in the public code of Shamsian et al., ICML 2021, which may give a
  class twice.
  """
  classes, counts = np.unique(labels, return_counts=True)
  require(
    k <= len(classes),
    f"data.partition.k = {k}: must be at most {len(classes)}, the classes that"
    " occur",
  )
  rng = np.random.default_rng(seed)
  holds = np.zeros((num_clients, len(classes)), bool)
  load = np.zeros(len(classes), np.int64)
  for client in holds:
    client[np.argsort(load + rng.random(len(classes)))[:k]] = True
    load += client
  holds = rng.permutation(holds).T  # [C, N]
  holders = holds.sum(axis=1)
  worst = int(np.argmax(holders - counts))
  require(
    holders[worst] <= counts[worst],
    f"num_clients = {num_clients}: with data.partition.k = {k} the"
    f" {counts[worst]} samples of class {classes[worst]} are for"
    f" {holders[worst]} clients; lower it or k",
  )
  weight = rng.uniform(0.4, 0.6, holds.shape) if shares == "uniform" else 1.0
  weight = holds * weight
  total = np.where(holders > 0, weight.sum(axis=1), 1.0)
  exact = counts[:, None] * weight / total[:, None]
  # Every holder gets at least one sample. Weights differ by a factor of 1.5 at
  # most: if a share below 1 becomes 1, the others are rounded down to 1.
  sizes = round_fairly(exact, rng, holds)
  sizes = np.column_stack([sizes, counts - sizes.sum(axis=1)])  # the unused
  rows = _shuffled_by_class(labels, rng)
  return _rows_by_client(rows, _columns(sizes), num_clients)


def dominant_label(
  labels: np.ndarray, num_clients: int, seed: int, *, p: _Percent = 80.0
) -> list[np.ndarray]:
  """Gives p % of each label to the phi clients for which it is dominant.

  There are N = phi L clients for L labels, and client c has the dominant label
  c mod L. A label's phi clients share p % of its samples equally, all others
  the rest, as in Hydra's section 3.1 and its public code. (Appendix E.1 differs
  for labels of unequal size.)

  Example:
    >>> labels = np.repeat([0, 1], [20, 40])
    >>> parts = dominant_label(labels, num_clients=4, seed=0, p=80.0)
    >>> [np.bincount(labels[rows]).tolist() for rows in parts]
    [[8, 4], [2, 16], [8, 4], [2, 16]]
  """
  return _by_dominance(labels, num_clients, seed, p, 1)


def custom_shard(
  labels: np.ndarray,
  num_clients: int,
  seed: int,
  *,
  p: _Percent = 80.0,
  n_dominant: Annotated[int, Bounds(at_least=2)] = 2,
) -> list[np.ndarray]:
  """Gives p % of each label to the n groups for which it is dominant.

  There are L groups for L labels; client c is in group c mod L. Group g has the
  dominant labels g, g + 1, .., g + n - 1 (mod L), n = `n_dominant` < L. A
  label's n groups share p % of its samples equally, the other L - n groups the
  rest, and the clients of a group what the group has. Hydra's appendix E.3
  leaves a group's labels and clients open. Its code, with L = N = 10, n = 2 and
  p = 80, divides the rest by N - 1 instead of N - n, and drops what is left.
  """
  return _by_dominance(labels, num_clients, seed, p, n_dominant)


def _dominant_groups(labels: np.ndarray, num_clients: int) -> np.ndarray:
  """Returns the lowest dominant label of each client's group: [N] int64."""
  classes = np.unique(labels)
  return classes[np.arange(num_clients) % len(classes)].astype(np.int64)


def _by_dominance(
  labels: np.ndarray, num_clients: int, seed: int, p: float, n: int
) -> list[np.ndarray]:
  """Splits labels over L groups, then each group's samples over its clients."""
  classes, counts = np.unique(labels, return_counts=True)
  require(
    n < len(classes),
    f"data.partition: {n} dominant label(s) need {n + 1} labels or more; the"
    f" training samples have {len(classes)}",
  )
  require(
    num_clients >= len(classes) and (n > 1 or num_clients % len(classes) == 0),
    f"num_clients = {num_clients}: each of {len(classes)} labels has a group of"
    f" clients; set it to {'a multiple' if n == 1 else 'that number or more'}",
  )
  # Numbers of samples [label, group]: the percentages, rounded.
  rng = np.random.default_rng(seed)
  group = np.arange(len(counts))
  dominant = (group[:, None] - group) % len(group) < n  # [label, group]
  percent = np.where(dominant, p / n, (100 - p) / (len(group) - n))
  sizes = round_fairly(counts[:, None] * percent / 100, rng)
  # Every client of a group needs at least one sample.
  totals = sizes.sum(axis=0)
  clients = -(-(num_clients - group) // len(group))
  poor = int(np.argmax(clients - totals))
  require(
    totals[poor] >= clients[poor],
    f"num_clients = {num_clients}: with data.partition.p = {p:g} only"
    f" {totals[poor]} sample(s) are for the {clients[poor]} client(s) whose"
    f" dominant label is {classes[poor]}; lower it, or set p nearer to"
    f" {100 * n / len(group):g}, an even split",
  )
  # The clients of a group take its samples in turn, label after label: their
  # shares of a label, and their totals too, differ by at most one.
  of_group = _columns(sizes)
  order = np.argsort(of_group, kind="stable")
  rows = _shuffled_by_class(labels, rng)[order]
  of_group = of_group[order]
  turn = turns(of_group) + rng.integers(clients)[of_group]
  client = of_group + len(group) * (turn % clients[of_group])
  return _rows_by_client(rows, client, num_clients)


def round_fairly(
  exact: np.ndarray, rng: np.random.Generator, least: np.ndarray | int = 0
) -> np.ndarray:
  """Rounds shares so that the rounding errors of each column nearly cancel.

  Row by row, shares [C, G] are rounded down; the samples that a row then lacks
  go, one each, to the columns that have lost most so far (ties are random). The
  row sums, whole numbers, stay; each share is at least `least`.
  """
  floor = np.maximum(np.floor(exact + _NOISE).astype(np.int64), least)
  lost = exact - floor
  short = np.rint(exact.sum(axis=1)).astype(np.int64) - floor.sum(axis=1)
  owed = np.zeros(exact.shape[1])
  for row, part, count in zip(floor, lost, short, strict=True):
    owed += part
    # Rounding removes floating-point noise, which must not decide equal claims.
    claim = np.where(part > _NOISE, owed.round(9), -np.inf)
    favoured = np.lexsort((rng.random(len(owed)), -claim))[:count]
    row[favoured] += 1
    owed[favoured] -= 1
  return floor


def _shuffled_by_class(
  labels: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
  """Orders all rows [Z] int64 by class, at random within a class."""
  rows = rng.permutation(len(labels))
  return rows[np.argsort(labels[rows], kind="stable")]


def _columns(sizes: np.ndarray) -> np.ndarray:
  """Returns g for each of sizes[c, g] samples, class by class: [Z] int64."""
  classes, groups = sizes.shape
  return np.repeat(np.tile(np.arange(groups), classes), sizes.ravel())


def _rows_by_client(
  rows: np.ndarray, client: np.ndarray, num_clients: int
) -> list[np.ndarray]:
  """Collects the sorted rows of each client: N arrays [S_n] int64.

  `client` [Z] has the client of each of `rows`, or num_clients for none.
  """
  by_row = np.empty_like(client)
  by_row[rows] = client
  return [np.flatnonzero(by_row == n) for n in range(num_clients)]


PARTITIONS: dict[str, Callable[..., list[np.ndarray]]] = {
  "shard": shard,
  "dirichlet": dirichlet,
  "dominant_label": dominant_label,
  "custom_shard": custom_shard,
  "pathological": pathological,
  "iid": iid,
  "natural": natural,
}

GROUPS = dict.fromkeys(("dominant_label", "custom_shard"), _dominant_groups)
"""Name of a partition with groups -> `(labels, num_clients) -> [N] int`, each
client's group."""


def deal(
  name: str,
  basis: np.ndarray,
  num_clients: int,
  seed: int,
  options: Mapping[str, Any],
) -> list[np.ndarray]:
  """Calls a partition, which gets the labels or owners [Z] read-only.

  UserError unless it returns N integer arrays of rows, none empty, none twice.
  """
  require(
    1 <= num_clients <= len(basis),
    f"num_clients = {num_clients}: must be between 1 and the {len(basis)}"
    " training samples",
  )
  basis = basis.view()
  basis.flags.writeable = False
  parts = PARTITIONS[name](basis, num_clients, seed, **options)
  for client, part in enumerate(parts):
    require(len(part), f"data.partition={name}: client {client} has no sample")
  rows = np.concatenate(parts)
  require(
    len(parts) == num_clients
    and rows.dtype.kind in "iu"
    and len(np.unique(rows)) == len(rows)
    and 0 <= rows.min()
    and rows.max() < len(basis),
    f"data.partition={name}: gave {parts!r:.60}; it must give {num_clients}"
    " lists of numbers of training samples, [S] int among"
    f" 0..{len(basis) - 1}, one at least and no sample twice",
  )
  return [np.asarray(part, np.int64) for part in parts]


def client_split(
  parts: Parts, seed: int, fractions: Sequence[float], *, stream: int = SPLIT
) -> tuple[list[np.ndarray], ...]:
  """Splits each client's rows at random into pieces of given fractions.

  Rows are shuffled and cut at the rounded cumulative fractions; a cut moves if
  a piece would be empty. `stream` separates the draws of several splits with
  one seed. Returns N sorted arrays of rows for each fraction. UserError if a
  client has too few samples.

  Example:
    >>> rows = [np.arange(8), np.arange(8, 12)]
    >>> train, test = client_split(rows, seed=0, fractions=(0.75, 0.25))
    >>> [len(part) for part in train], [len(part) for part in test]
    ([6, 3], [2, 1])
  """
  pieces = len(fractions)
  sizes = np.array([len(rows) for rows in parts], np.int64)
  poorest = int(sizes.argmin())
  require(
    sizes[poorest] >= pieces,
    f"num_clients = {len(parts)}: client {poorest} has {sizes[poorest]}"
    f" sample(s) to split into {pieces} pieces; set data.partition.min_samples"
    f" to {pieces} or more where the partition has it, or lower num_clients",
  )
  # At least j samples lie before the cut after piece j, and at least one for
  # each later piece behind it.
  step = np.arange(1, pieces)
  cuts = np.rint(np.cumsum(fractions)[:-1] * sizes[:, None]).astype(np.int64)
  cuts = np.maximum.accumulate(np.maximum(cuts - step, 0), axis=1) + step
  cuts = np.minimum(cuts, sizes[:, None] - (pieces - step))
  streams = np.random.SeedSequence((seed, stream)).spawn(len(parts))
  split = [
    np.split(np.random.default_rng(draws).permutation(rows), cut)
    for rows, cut, draws in zip(parts, cuts, streams, strict=True)
  ]
  return tuple(
    [np.sort(rows) for rows in piece] for piece in zip(*split, strict=True)
  )


def turns(kind: np.ndarray) -> np.ndarray:
  """Counts the earlier samples of the same `kind` [Z] int >= 0: [Z] int64."""
  by_kind = np.argsort(kind, kind="stable")
  sizes = np.bincount(kind)
  turn = np.empty(len(kind), np.int64)
  starts = np.cumsum(sizes) - sizes
  turn[by_kind] = np.arange(len(kind)) - np.repeat(starts, sizes)
  return turn


def padded(parts: Parts) -> np.ndarray:
  """Stacks N arrays [H_n] of rows as [N, H] int32, padded with -1; H >= 1."""
  most = max(1, *map(len, parts))
  rows = np.full((len(parts), most), -1, np.int32)
  for row, part in zip(rows, parts, strict=True):
    row[: len(part)] = part
  return rows
