"""Shifts of a config: they choose each client's training rows and test sets.

A shift takes the data, every client's rows, the config's ratios and a seed, and
its options by keyword; it returns TestSets. Each client's networks run once
over the union of its test sets; each test set is a mask over that union.

>>> import numpy as np, splitjax
>>> from splitjax.data import Dataset
>>> image, label = np.zeros((8, 2, 2, 1), np.uint8), np.arange(8) % 4
>>> data = Dataset("x", 4, image, label, image, label)
>>> parts = [np.flatnonzero(label < 2)]  # one client, of classes 0 and 1
>>> test_sets = splitjax.SHIFTS["id_ood"](data, parts, (0.0, 0.5), seed=0)
>>> test_sets.names, test_sets.sets.sum(axis=-1).tolist()
(('0.0', '0.5'), [[4], [6]])
"""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np

from splitjax.data.dataset import Dataset
from splitjax.data.splits import client_split, padded
from splitjax.fields import Bounds
from splitjax.types import UserError

_FRACTION = Bounds(above=0, below=1)

_PART = 0x9A47
"""Number that separates the draw of orders from others of the same seed."""

RHOS = (0.0, 0.2, 0.4, 0.6, 0.8)
"""The ratios of SplitGP and HARMONY for ten classes."""

OWN_DOMAIN = "own domain"
"""Name of the test set in the domains that a client trains in."""

Ood = Literal["balanced", "natural"]
"""Class frequencies of OOD samples: equal, or as in the test split."""

Parts = Sequence[np.ndarray]
"""N arrays [S_n] int64, rows of each client."""

Rhos = Sequence[float] | None


class TestSets(NamedTuple):
  """Training rows, test rows and test sets of each client.

  Attributes:
    parts: N arrays [S_n] int64, rows of the training split to train on.
    main: [N, C] bool, the classes in each client's training rows.
    pool: "test" or "train", the split that `rows` index.
    rows: [N, K] int32, rows of test samples; -1: padding.
    label: [N, K] int32, their classes; undefined for padding.
    sets: [R, N, K] bool, which of these samples are in each test set.
    names: R names of the sets; a mixture is named by its ratio, as text.
    rhos: the R ratios; None if the sets are not mixtures.
    validation: N arrays [H_n] int64, rows of the training split held out to
      choose thresholds (`splits.Holdout`); () if there are none.
    groups: [N] int, the group of each client (`GROUPS`), or None.
  """

  parts: list[np.ndarray]
  main: np.ndarray
  pool: str
  rows: np.ndarray
  label: np.ndarray
  sets: np.ndarray
  names: tuple[str, ...]
  rhos: tuple[float, ...] | None
  validation: Sequence[np.ndarray] = ()
  groups: np.ndarray | None = None

  @property
  def known(self) -> np.ndarray:
    """[N, K] bool, True if the client trained on the sample's class."""
    return np.take_along_axis(self.main, self.label, axis=1)

  def in_random_order(self, seed: int) -> "TestSets":
    """Shuffles each client's test samples, so that any prefix is a random part.

    Clients with the same samples get different orders. Padding comes last.
    """
    rng = np.random.default_rng((seed, _PART))
    rank = rng.random(self.rows.shape)
    rank[self.rows < 0] = 1  # above all others
    order = rank.argsort(axis=1)
    return self._replace(
      rows=np.take_along_axis(self.rows, order, axis=1),
      label=np.take_along_axis(self.label, order, axis=1),
      sets=np.take_along_axis(self.sets, order[None], axis=2),
    )

  def first(self, count: int) -> "TestSets":
    """Keeps `count` samples of every client, or all if it has fewer."""
    return self._replace(
      rows=self.rows[:, :count],
      label=self.label[:, :count],
      sets=self.sets[:, :, :count],
    )


def id_ood(
  data: Dataset, parts: Parts, rhos: Rhos, seed: int, *, ood: Ood = "balanced"
) -> TestSets:
  """Mixes ID and OOD samples of the test split at every rho (None: RHOS).

  See `id_ood_sets`, SplitGP section VI and HARMONY section 5, eq. 11. Both
  kinds of samples are in domains that the client trains in, if the data have
  domains. The papers leave `ood` open. Raises UserError if the data have no
  test split.
  """
  require_test_split(data)
  rhos = RHOS if rhos is None else tuple(rhos)
  main = main_classes(data.train_label, parts, data.classes)
  within = in_own_domain(data, parts)
  masks = id_ood_sets(data.test_label, main, rhos, seed, ood, within)
  names = tuple(map(str, rhos))
  return _on_test_split(data, parts, masks, names)._replace(rhos=rhos)


def whole_test(data: Dataset, parts: Parts, rhos: Rhos, seed: int) -> TestSets:
  """Tests every client on the whole test split: global accuracy (Hydra)."""
  del seed
  require_no_rhos(rhos, "global")
  require_test_split(data)
  masks = np.ones((1, len(parts), len(data.test_label)), bool)
  return _on_test_split(data, parts, masks, ("global",))


def own_test(data: Dataset, parts: Parts, rhos: Rhos, seed: int) -> TestSets:
  """Tests each client on the test samples that the data name as its own.

  These are the samples of its owner (test_client), in a domain that the client
  trains in. Raises UserError if the data do not name them, a client has samples
  of several owners, or no client has a test sample.
  """
  del seed
  require_no_rhos(rhos, "own_test")
  require_test_split(data)
  if data.test_client is None or data.train_client is None:
    raise UserError(
      f"eval.shift: own_test needs data that name each test sample's client"
      f" (test_client); {data.name} does not: choose local"
    )
  owners = data.owners(parts)
  if owners is None:
    raise UserError(
      "eval.shift: own_test needs clients as the data have them: choose"
      " data.partition natural"
    )
  masks = (data.test_client == owners[:, None]) & in_own_domain(data, parts)
  if not masks.any():
    raise UserError(
      "eval.shift: own_test finds no test sample of these clients: choose local"
    )
  return _on_test_split(data, parts, masks[None], ("own",))


def by_domain(data: Dataset, parts: Parts, rhos: Rhos, seed: int) -> TestSets:
  """Tests each client on its classes in every domain of the test split.

  There is a set for each domain, by its name: all test samples of the client's
  classes in this domain. A set "own domain" comes before them, of the domains
  that the client trains in, unless all clients train in the same ones.
  """
  del seed
  require_no_rhos(rhos, "by_domain")
  require_test_split(data)
  if data.test_domain is None:
    raise UserError(
      "eval.shift: by_domain needs domains: set data.domains or eval.domains,"
      " as in gaussian_blur, or take data that name them (test_domain)"
    )
  main = main_classes(data.train_label, parts, data.classes)
  rows = padded([np.flatnonzero(held[data.test_label]) for held in main])
  real = rows >= 0
  domain = data.test_domain[rows]
  numbers = np.unique(data.test_domain)
  names = [domain_name(data, number) for number in numbers]
  sets = [real & (domain == number) for number in numbers]
  if data.train_domain is not None:
    trained = [np.unique(data.train_domain[part]) for part in parts]
    if not all(np.array_equal(trained[0], domains) for domains in trained):
      within = map(np.isin, domain, trained)
      names.insert(0, OWN_DOMAIN)
      sets.insert(0, real & np.stack([*within]))
  return _test_sets(data, parts, "test", rows, np.stack(sets), names)


def local(
  data: Dataset,
  parts: Parts,
  rhos: Rhos,
  seed: int,
  *,
  train_fraction: Annotated[float, _FRACTION] = 0.75,
) -> TestSets:
  """Tests each client on those of its samples that it does not train on.

  PGFedSplit tests on 25 %. The rows are of the training split.
  """
  require_no_rhos(rhos, "local")
  kept, held = client_split(parts, seed, (train_fraction, 1 - train_fraction))
  return _on_train_split(data, kept, {"local": held})


def out_of_client(
  data: Dataset,
  parts: Parts,
  rhos: Rhos,
  seed: int,
  *,
  train_fraction: Annotated[float, _FRACTION] = 0.6,
  validation_fraction: Annotated[float, _FRACTION] = 0.2,
) -> TestSets:
  """Tests each client on its own test samples and on those of other clients.

  Each client splits its samples into a training, a validation and a test part.
  The set "w/o drift" is the client's test part. The set "w/ drift" has as many
  samples of other clients, drawn with replacement from all their test parts.
  Both have rows of the training split; thresholds may be chosen on the
  validation part (eval.threshold_rule). HARMONY's Table 5 follows Jiang and Lin
  (Test-Time Robust Personalization for Federated Learning, ICLR 2023), whose
  public code first merges the official splits (`data.pool=all`), then splits
  them by Dirichlet draws within groups of ten clients.
  """
  require_no_rhos(rhos, "out_of_client")
  test_fraction = 1 - train_fraction - validation_fraction
  if test_fraction <= 0:
    raise UserError(
      f"eval.shift: train_fraction = {train_fraction:g} + validation_fraction ="
      f" {validation_fraction:g} must be below 1"
    )
  if len(parts) < 2:
    raise UserError(
      f"num_clients = {len(parts)}: eval.shift out_of_client needs other "
      "clients to draw from; set it to 2 or more"
    )
  fractions = train_fraction, validation_fraction, test_fraction
  kept, validation, held = client_split(parts, seed, fractions)
  rows = {"w/o drift": held, "w/ drift": _from_others(held, seed)}
  return _on_train_split(data, kept, rows)._replace(validation=validation)


def main_classes(labels: np.ndarray, parts: Parts, classes: int) -> np.ndarray:
  """Finds the classes in each client's training samples: [N, C] bool."""
  counts = [np.bincount(labels[rows], minlength=classes) for rows in parts]
  return np.stack(counts) > 0


def in_own_domain(data: Dataset, parts: Parts) -> np.ndarray:
  """Finds the test samples in domains that each client trains in.

  Returns [N, M] bool, all true if the data have no domains.
  """
  if data.train_domain is None or data.test_domain is None:
    return np.ones((len(parts), len(data.test_label)), bool)
  trained = [data.train_domain[rows] for rows in parts]
  return np.stack([np.isin(data.test_domain, domains) for domains in trained])


def domain_name(data: Dataset, number: int) -> str:
  """Returns a domain's name, "domain-3" where the data have none."""
  return data.domain_names[number] if data.domain_names else f"domain-{number}"


def id_ood_sets(
  test_label: np.ndarray,
  main: np.ndarray,
  rhos: Sequence[float],
  seed: int,
  ood: Ood = "balanced",
  within: np.ndarray | None = None,
) -> np.ndarray:
  """Draws every client's test set for every rho (HARMONY eq. 11).

  ID: all test samples of the client's classes. OOD: round(rho #ID) samples of
  the other classes, or all of them if there are fewer (see `realised_rho`),
  drawn without replacement. "balanced" draws equally many from each class, to
  within one, as long as the class has samples left; "natural" draws uniformly
  from all samples of the other classes. A client's OOD samples are ordered
  once, and each rho takes a prefix of that order: sets are nested, and depend
  neither on the other rhos nor on the other clients.

  Args:
    test_label: [M] integer, labels of the test split.
    main: [N, C] bool, the classes that each client trained on.
    rhos: R ratios #OOD / #ID, each at least 0.
    seed: fixes the order of the OOD samples.
    ood: see `Ood`.
    within: [N, M] bool, the test samples to choose from; None: all.

  Returns:
    [R, N, M] bool, the test samples in each set.
  """
  inside = main[:, test_label]
  outside = ~inside
  if within is not None:
    inside &= within
    outside &= within
  sets = np.repeat(inside[None], len(rhos), axis=0)
  streams = np.random.SeedSequence(seed).spawn(len(main))
  for n, stream in enumerate(streams):
    num_id = int(inside[n].sum())
    rng = np.random.default_rng(stream)
    order = rng.permutation(np.flatnonzero(outside[n]))
    if ood == "balanced":
      order = _balanced(test_label, order)
    for r, rho in enumerate(rhos):
      # An infinite rho takes all, but nothing where there is no ID sample.
      count = min(rho * num_id, len(order)) if num_id else 0
      sets[r, n, order[: round(count)]] = True
  return sets


def _balanced(label: np.ndarray, rows: np.ndarray) -> np.ndarray:
  """Reorders shuffled rows so that every prefix is class-balanced.

  The first rows of all classes come before the second rows, and so on. First
  rows keep their random order, as do second rows: no class is favoured.
  """
  by_class = np.argsort(label[rows], kind="stable")
  sizes = np.bincount(label[rows])
  starts = np.cumsum(sizes) - sizes
  turn = np.empty(len(rows), np.int64)
  turn[by_class] = np.arange(len(rows)) - np.repeat(starts, sizes)
  return rows[np.argsort(turn, kind="stable")]


def realised_rho(sets: np.ndarray, known: np.ndarray) -> np.ndarray:
  """Computes the ratio #OOD / #ID of the sets as drawn, [R, N] float64.

  It differs from the requested rho by at most 0.5 / #ID, unless the classes
  that the client lacks have too few samples: then it is smaller. It is NaN for
  a client without a test sample of its classes, `known` [N, M].
  """
  count_id = (sets & known).sum(axis=-1)
  count_ood = (sets & ~known).sum(axis=-1)
  return np.where(count_id > 0, count_ood / np.maximum(count_id, 1), np.nan)


def _from_others(held: Parts, seed: int) -> list[np.ndarray]:
  """Draws other clients' rows for each client, as many as it has itself."""
  union = np.concatenate(held)
  sizes = np.array([len(rows) for rows in held])
  starts = np.cumsum(sizes) - sizes
  streams = np.random.SeedSequence((seed, 1)).spawn(len(held))
  drawn = []
  for start, size, stream in zip(starts, sizes, streams, strict=True):
    rng = np.random.default_rng(stream)
    index = rng.integers(0, len(union) - size, size)
    drawn.append(union[np.where(index < start, index, index + size)])
  return drawn


def _on_train_split(
  data: Dataset, kept: Parts, test_rows: dict[str, list[np.ndarray]]
) -> TestSets:
  """Builds test sets: set name -> N arrays of rows of the training split.

  `kept` are the rows to train on.
  """
  of_clients = zip(*test_rows.values(), strict=True)
  rows = padded([np.concatenate(of_sets) for of_sets in of_clients])
  sizes = np.array([[*map(len, parts)] for parts in test_rows.values()])
  ends = np.cumsum(sizes, axis=0)[..., None]
  starts = ends - sizes[..., None]
  column = np.arange(rows.shape[1])
  sets = (starts <= column) & (column < ends)
  return _test_sets(data, kept, "train", rows, sets, [*test_rows])


def _on_test_split(
  data: Dataset, parts: Parts, masks: np.ndarray, names: Sequence[str]
) -> TestSets:
  """Builds test sets from masks [R, N, M] over the test split."""
  rows = padded(list(map(np.flatnonzero, np.any(masks, axis=0))))
  sets = np.take_along_axis(masks, rows[None], axis=2) & (rows >= 0)
  return _test_sets(data, parts, "test", rows, sets, names)


def _test_sets(
  data: Dataset,
  kept: Parts,
  pool: str,
  rows: np.ndarray,
  sets: np.ndarray,
  names: Sequence[str],
) -> TestSets:
  """Adds the classes of the rows, and those that the clients train on."""
  label = data.train_label if pool == "train" else data.test_label
  return TestSets(
    parts=list(kept),
    main=main_classes(data.train_label, kept, data.classes),
    pool=pool,
    rows=rows,
    label=label[rows],
    sets=sets,
    names=tuple(names),
    rhos=None,
  )


def require_no_rhos(rhos: Rhos, name: str) -> None:
  """Raises UserError if a shift that mixes no samples is given ratios."""
  if rhos is not None:
    raise UserError(
      f"eval.rhos = {list(rhos)}: eval.shift {name} mixes no samples; leave "
      "it None, or choose eval.shift id_ood"
    )


def require_test_split(data: Dataset) -> None:
  """Raises UserError if the data have no test samples."""
  if not len(data.test_label):
    raise UserError(
      f"eval.shift: {data.name} has no test split, or data.pool='all' leaves"
      " none: choose local or out_of_client, or data.pool='train'"
    )
