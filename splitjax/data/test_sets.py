"""Shifts of a config: they choose each client's training rows and test sets.

A shift takes the data, every client's rows, the config's ratios and a seed, and
its options by keyword; it returns TestSets. Each client's networks run once
over the union of its test sets; each test set is a mask over that union.
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np

from splitjax.data.dataset import Dataset
from splitjax.data.domains import Domains
from splitjax.data.ood_mixture import Ood, id_ood_sets, main_classes
from splitjax.data.partition import client_split
from splitjax.data.partition_util import padded
from splitjax.fields import Bounds
from splitjax.types import UserError

_FRACTION = Bounds(above=0, below=1)

_PART = 0x9A47
"""Number that separates the draw of orders from others of the same seed."""

RHOS = (0.0, 0.2, 0.4, 0.6, 0.8)
"""The ratios of SplitGP and HARMONY for ten classes."""

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
      choose thresholds (`holdout`); () if there are none.
    groups: [N] int, the group of each client (`GROUPS`), or None.
    domains: the clients' domains; None: all images stay as they are.
    looks: L looks (`data.drift`). Row number l M + m stands for image m of the
      test split under look l. (): every image is in its client's domain.
    unseen: a corruption that no client may train on; "": none.
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
  domains: Domains | None = None
  looks: tuple[tuple[str, ...], ...] = ()
  unseen: str = ""

  @property
  def known(self) -> np.ndarray:
    """[N, K] bool, True if the client trained on the sample's class."""
    return np.take_along_axis(self.main, self.label, axis=1)

  def in_random_order(self, seed: int) -> "TestSets":
    """Shuffles each client's test samples, so that any prefix is a random part.

    Every client has a different order, fixed by `seed`, so that clients with
    the same samples are judged on different parts of them. Padding comes last.
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
  """Mixes ID and OOD samples of the test split at every rho (HARMONY eq. 11).

  See `id_ood_sets`, SplitGP section VI and HARMONY section 5.

  Args:
    data: the data set.
    parts: training rows.
    rhos: R ratios; None: RHOS.
    seed: fixes which OOD samples a client gets.
    ood: "balanced": the classes of the OOD samples are equally frequent;
      "natural": they are as frequent as in the test split. The papers leave
      this open.

  Returns:
    For each rho, one test set that has rows of the test split. Raises UserError
    if the data have no test split.
  """
  require_test_split(data)
  rhos = RHOS if rhos is None else tuple(rhos)
  main = main_classes(data.train_label, parts, data.classes)
  masks = id_ood_sets(data.test_label, main, rhos, seed, ood)
  names = tuple(map(str, rhos))
  return _on_test_split(data, parts, masks, names)._replace(rhos=rhos)


def whole_test(data: Dataset, parts: Parts, rhos: Rhos, seed: int) -> TestSets:
  """Tests every client on the whole test split: global accuracy (Hydra).

  Arguments are those of `id_ood`; there is one set, "global". Raises UserError
  if rhos are given or there is no test split.
  """
  del seed
  require_no_rhos(rhos, "global")
  require_test_split(data)
  masks = np.ones((1, len(parts), len(data.test_label)), bool)
  return _on_test_split(data, parts, masks, ("global",))


def own_test(data: Dataset, parts: Parts, rhos: Rhos, seed: int) -> TestSets:
  """Tests each client on the test samples that the data name as its own.

  Arguments are those of `id_ood`; there is one set, "own". Raises UserError if
  rhos are given, the data do not name the clients of test samples, a client
  mixes samples of several owners, or no client has a test sample.
  """
  del seed
  require_no_rhos(rhos, "own_test")
  if data.test_client is None or data.train_client is None:
    raise UserError(
      f"eval.shift: own_test needs data that name each test sample's client"
      f" (client_test of npz:PATH); {data.name} does not: choose local"
    )
  owners = data.owners(parts)
  if owners is None:
    raise UserError(
      "eval.shift: own_test needs clients as the data have them: choose"
      " data.partition natural"
    )
  own = data.test_client == owners[:, None]
  if not own.any():
    told = "own_test finds no test sample of these clients"
    raise UserError(f"eval.shift: {told}: choose local")
  return _on_test_split(data, parts, own[None], ("own",))


def local(
  data: Dataset,
  parts: Parts,
  rhos: Rhos,
  seed: int,
  *,
  train_fraction: Annotated[float, _FRACTION] = 0.75,
) -> TestSets:
  """Tests each client on those of its samples that it does not train on.

  PGFedSplit tests on 25 %. Arguments are those of `id_ood`; there is one set,
  "local", of rows of the training split. Raises UserError if rhos are given, or
  if a client has fewer than two samples.
  """
  require_no_rhos(rhos, "local")
  kept, own = client_split(parts, seed, (train_fraction, 1 - train_fraction))
  return of_rows(data, kept, [own], ("local",))


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
  Both have rows of the training split. HARMONY's Table 5 follows Jiang and Lin
  (Test-Time Robust Personalization for Federated Learning, ICLR 2023), whose
  public code first merges the official splits (`data.pool=all`), then splits
  them by Dirichlet draws within groups of ten clients.

  Arguments are those of `id_ood`; thresholds may be chosen on the validation
  part (eval.threshold_rule). Raises UserError if rhos are given, the fractions
  leave no test part, there are fewer than two clients, or a client has fewer
  than three samples.
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
  kept, validation, own = client_split(parts, seed, fractions)
  names, sets = ("w/o drift", "w/ drift"), [own, _from_others(own, seed)]
  shown = of_rows(data, kept, sets, names)
  return shown._replace(validation=validation)


def _from_others(own: Parts, seed: int) -> list[np.ndarray]:
  """Draws other clients' rows for each client, as many as it has of its own."""
  union = np.concatenate(own)
  sizes = np.array([len(rows) for rows in own])
  starts = np.cumsum(sizes) - sizes
  streams = np.random.SeedSequence((seed, 1)).spawn(len(own))
  drawn = []
  for start, size, stream in zip(starts, sizes, streams, strict=True):
    rng = np.random.default_rng(stream)
    place = rng.integers(0, len(union) - size, size)
    drawn.append(union[np.where(place < start, place, place + size)])
  return drawn


def of_rows(
  data: Dataset,
  kept: Parts,
  test_rows: Sequence[Parts],
  names: Sequence[str],
  looks: tuple[tuple[str, ...], ...] = (),
) -> TestSets:
  """Builds test sets: set r of client n has the rows test_rows[r][n].

  Without `looks`, the test rows are rows of the training split. With `looks`,
  they are rows of the test split under these looks, numbered as in `TestSets`.
  `kept` are the rows to train on.
  """
  main = main_classes(data.train_label, kept, data.classes)
  rows = padded([np.concatenate(each) for each in zip(*test_rows, strict=True)])
  sizes = np.array([list(map(len, parts)) for parts in test_rows])[..., None]
  ends, place = np.cumsum(sizes, axis=0), np.arange(rows.shape[1])
  sets = (ends - sizes <= place) & (place < ends)
  if not looks:
    label, pool = data.train_label[rows], "train"
  else:
    label, pool = data.test_label[rows % len(data.test_label)], "test"
  made = TestSets(list(kept), main, pool, rows, label, sets, tuple(names), None)
  return made._replace(looks=looks)


def _on_test_split(
  data: Dataset, parts: Parts, masks: np.ndarray, names: tuple[str, ...]
) -> TestSets:
  """Builds test sets from masks [R, N, M] over the test split."""
  used = masks.any(axis=0)
  most = max(1, int(used.sum(axis=1).max()))
  rows = np.argsort(~used, axis=1, kind="stable")[:, :most]
  real = np.take_along_axis(used, rows, axis=1)
  sets = np.take_along_axis(masks, rows[None], axis=2) & real
  rows = np.where(real, rows, -1).astype(np.int32)
  main = main_classes(data.train_label, parts, data.classes)
  label = data.test_label[rows]
  return TestSets(list(parts), main, "test", rows, label, sets, names, None)


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
      f"eval.shift: {data.name} has no test split (x_test of npz:PATH), or"
      " data.pool='all' leaves none: choose local or out_of_client, or"
      " data.pool='train'"
    )
