"""Shifts of a config: they choose each client's training rows and test sets.

A shift takes the data, every client's rows, the config's ratios and a seed, and
its options by keyword; it returns TestSets. Each client's networks run once
over the union of its test sets; each test set is a mask over that union.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from splitjax.data.dataset import Dataset, require
from splitjax.data.partitions import Parts, client_split, padded, turns
from splitjax.types import UserError

# They separate draws of orders and of proxies from others of the same seed.
_PART = 0x9A47
_PROXY = 0x9A12

_RHOS = (0.0, 0.2, 0.4, 0.6, 0.8)  # of SplitGP and HARMONY for ten classes
_Rhos = Sequence[float] | None


class TestSets(NamedTuple):
  """Training rows, test rows and test sets of each client."""

  parts: list[np.ndarray]  #: N arrays [S_n] int64, training rows to train on
  main: np.ndarray  #: [N, C] bool, the classes in each client's training rows
  pool: str  #: "test" or "train", the split that `rows` index
  rows: np.ndarray  #: [N, K] int32, rows of test samples; -1: padding
  label: np.ndarray  #: [N, K] int32, their classes; undefined for padding
  sets: np.ndarray  #: [R, N, K] bool, which of these samples are in each set
  names: tuple[str, ...]  #: R names; a mixture is named by its ratio, as text
  rhos: tuple[float, ...] | None = None  #: R ratios, if the sets are mixtures
  #: N arrays [H_n] int64, training rows held out to choose thresholds, or ()
  validation: Parts = ()
  groups: np.ndarray | None = None  #: [N] int, each client's group (`GROUPS`)

  @property
  def known(self) -> np.ndarray:
    """[N, K] bool, True if the client trained on the sample's class."""
    return np.take_along_axis(self.main, self.label, axis=1)

  def in_random_order(self, seed: int) -> "TestSets":
    """Shuffles each client's test samples; padding stays last."""
    rank = np.random.default_rng((seed, _PART)).random(self.rows.shape)
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


def id_ood(data: Dataset, parts: Parts, rhos: _Rhos, seed: int) -> TestSets:
  """Mixes ID and OOD test samples at every rho, see `id_ood_sets`."""
  rhos = _RHOS if rhos is None else tuple(rhos)
  main = main_classes(data.train_label, parts, data.classes)
  masks = id_ood_sets(data.test_label, main, rhos, seed)
  mixtures = _on_test_split(data, parts, masks, [*map(str, rhos)])
  return mixtures._replace(rhos=rhos)


def whole_test(data: Dataset, parts: Parts, rhos: _Rhos, seed: int) -> TestSets:
  """Tests every client on the whole test split: global accuracy (Hydra)."""
  del rhos, seed
  masks = np.ones((1, len(parts), len(data.test_label)), bool)
  return _on_test_split(data, parts, masks, ("global",))


def own_test(data: Dataset, parts: Parts, rhos: _Rhos, seed: int) -> TestSets:
  """Tests each client on the test samples of its owner (test_client)."""
  del rhos, seed
  owners = data.owners(parts)
  if data.test_client is None or owners is None:
    raise UserError(
      "eval.shift: own_test needs test samples that name their client"
      f" (test_client of {data.name}) and clients as the data have them"
      " (data.partition natural): choose local"
    )
  masks = data.test_client == owners[:, None]
  require(
    masks.any(),
    "eval.shift: own_test finds no test sample of these clients: choose local",
  )
  return _on_test_split(data, parts, masks[None], ("own",))


def by_domain(data: Dataset, parts: Parts, rhos: _Rhos, seed: int) -> TestSets:
  """Tests each client on its classes in every domain of the test split.

  A set "own domain" comes before them, of the domains that the client trains
  in, unless all train in the same. A domain that is called by a number, such as
  2019, has the set "domain 2019": a number alone is a rho.
  """
  del rhos, seed
  domain = data.test_domain
  if domain is None:
    raise UserError(
      "eval.shift: by_domain needs domains: set data.domains or eval.domains,"
      " as in gaussian_blur, or take data that name them (test_domain)"
    )
  main = main_classes(data.train_label, parts, data.classes)
  inside = main[:, data.test_label]
  masks = {}
  if data.train_domain is not None:
    trained = [np.unique(data.train_domain[part]).tolist() for part in parts]
    if any(numbers != trained[0] for numbers in trained):
      within = [np.isin(domain, numbers) for numbers in trained]
      masks["own domain"] = inside & within
  for number in np.unique(domain):
    name = data.domain_names[number]
    name = f"domain {name}" if name[:1].isdigit() else name
    masks[name] = inside & (domain == number)
  return _on_test_split(data, parts, np.stack([*masks.values()]), [*masks])


def local(data: Dataset, parts: Parts, rhos: _Rhos, seed: int) -> TestSets:
  """Tests each client on a quarter of its samples, as PGFedSplit does."""
  del rhos
  train, test = client_split(parts, seed, (0.75, 0.25))
  return _on_train_split(data, train, {"local": test})


def out_of_client(
  data: Dataset, parts: Parts, rhos: _Rhos, seed: int
) -> TestSets:
  """Tests each client on its own test samples and on those of other clients.

  Each client splits its samples into a training, a validation and a test part,
  60, 20 and 20 %. "w/o drift" is the client's test part, "w/ drift" as many
  samples drawn with replacement from the test parts of all others (HARMONY's
  Table 5, after Jiang and Lin, Test-Time Robust Personalization for Federated
  Learning, ICLR 2023, whose code merges the official splits: `data.pool=all`).
  """
  del rhos
  require(
    len(parts) > 1,
    f"num_clients = {len(parts)}: eval.shift out_of_client needs other clients"
    " to draw from; set it to 2 or more",
  )
  train, validation, test = client_split(parts, seed, (0.6, 0.2, 0.2))
  rows = {"w/o drift": test, "w/ drift": _from_others(test, seed)}
  return _on_train_split(data, train, rows)._replace(validation=validation)


def main_classes(labels: np.ndarray, parts: Parts, classes: int) -> np.ndarray:
  """Finds the classes in each client's training samples: [N, C] bool."""
  counts = [np.bincount(labels[rows], minlength=classes) for rows in parts]
  return np.stack(counts) > 0


def id_ood_sets(
  test_label: np.ndarray, main: np.ndarray, rhos: Sequence[float], seed: int
) -> np.ndarray:
  """Draws every client's test set for every rho (HARMONY eq. 11).

  ID: all test samples of the client's classes, `main` [N, C] bool. OOD:
  round(rho #ID) samples of the other classes, or all if there are fewer, drawn
  without replacement, equally many from each class as long as it has samples
  left; the papers leave this open. A client's OOD samples are ordered once, and
  each of R rhos takes a prefix of that order, so that sets are nested. Returns
  [R, N, M] bool over `test_label` [M].
  """
  inside = main[:, test_label]
  sets = np.repeat(inside[None], len(rhos), axis=0)
  streams = np.random.SeedSequence(seed).spawn(len(main))
  for n, stream in enumerate(streams):
    num_id = int(inside[n].sum())
    outside = np.flatnonzero(~inside[n])
    order = np.random.default_rng(stream).permutation(outside)
    # A class's i-th sample comes before any class's next.
    order = order[np.argsort(turns(test_label[order]), kind="stable")]
    for r, rho in enumerate(rhos):
      # An infinite rho takes all, but nothing where there is no ID sample.
      count = min(rho * num_id, len(order)) if num_id else 0
      sets[r, n, order[: round(count)]] = True
  return sets


def realised_rho(sets: np.ndarray, inside: np.ndarray) -> np.ndarray:
  """Computes the ratio #OOD / #ID of the sets as drawn, [R, N] float64.

  It is smaller than the requested rho where the classes that a client lacks
  have too few samples, and NaN without a sample `inside` [N, M] its classes.
  """
  count_id = (sets & inside).sum(axis=-1)
  count_ood = (sets & ~inside).sum(axis=-1)
  return np.where(count_id > 0, count_ood / np.maximum(count_id, 1), np.nan)


def _from_others(test: Parts, seed: int) -> list[np.ndarray]:
  """Draws other clients' rows for each client, as many as it has itself."""
  union = np.concatenate(test)
  starts = np.cumsum([0, *map(len, test[:-1])])
  streams = np.random.SeedSequence((seed, 1)).spawn(len(test))
  drawn = []
  for part, start, stream in zip(test, starts, streams, strict=True):
    size = len(part)
    rng = np.random.default_rng(stream)
    index = rng.integers(0, len(union) - size, size)
    drawn.append(union[np.where(index < start, index, index + size)])
  return drawn


def _on_train_split(
  data: Dataset, train: Parts, test: dict[str, list[np.ndarray]]
) -> TestSets:
  """Builds test sets: set name -> N arrays of rows of the training split."""
  of_clients = zip(*test.values(), strict=True)
  rows = padded([np.concatenate(of_sets) for of_sets in of_clients])
  sizes = np.array([[*map(len, parts)] for parts in test.values()])
  ends = np.cumsum(sizes, axis=0)[..., None]
  starts = ends - sizes[..., None]
  column = np.arange(rows.shape[1])
  sets = (starts <= column) & (column < ends)
  return TestSets(
    parts=list(train),
    main=main_classes(data.train_label, train, data.classes),
    pool="train",
    rows=rows,
    label=data.train_label[rows],
    sets=sets,
    names=tuple(test),
  )


def _on_test_split(
  data: Dataset, parts: Parts, masks: np.ndarray, names: Sequence[str]
) -> TestSets:
  """Builds test sets from masks [R, N, M] over the test split."""
  require(
    len(data.test_label),
    f"eval.shift: {data.name} has no test split, or data.pool='all' leaves"
    " none: choose local or out_of_client, or data.pool='train'",
  )
  rows = padded(list(map(np.flatnonzero, np.any(masks, axis=0))))
  sets = np.take_along_axis(masks, rows[None], axis=2) & (rows >= 0)
  return TestSets(
    parts=list(parts),
    main=main_classes(data.train_label, parts, data.classes),
    pool="test",
    rows=rows,
    label=data.test_label[rows],
    sets=sets,
    names=tuple(names),
  )


SHIFTS: dict[str, Callable[..., TestSets]] = {
  "id_ood": id_ood,
  "out_of_client": out_of_client,
  "global": whole_test,
  "local": local,
  "own_test": own_test,
  "by_domain": by_domain,
}


class Holdout(NamedTuple):
  """The samples on which each client chooses its thresholds."""

  rows: np.ndarray  #: [N, H] int32 of the training split; -1: padding
  label: np.ndarray  #: [N, H] int32, their classes; undefined for padding
  draw: np.ndarray  #: [N, H] int32, seeds of their proxies (`gate.calibration`)


def holdout(label: np.ndarray, parts: Parts, seed: int) -> Holdout:
  """Arranges held-out rows, N arrays [H_n], with the labels [Z]."""
  rows = padded(parts)
  draw = np.zeros_like(rows)
  streams = np.random.SeedSequence((seed, _PROXY)).spawn(len(parts))
  for numbers, part, stream in zip(draw, parts, streams, strict=True):
    rng = np.random.default_rng(stream)
    numbers[: len(part)] = rng.integers(0, 2**31, len(part))
  return Holdout(rows=rows, label=label[rows].astype(np.int32), draw=draw)
