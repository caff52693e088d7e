"""Training rows and test sets of each client: the shifts of a config.

A shift takes the data, every client's rows, the ratios of a config and a seed,
then its own options by keyword; it returns TestSets. Every client's networks
run once over the union of its test sets, of which each set is a mask.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from splitjax.data.ood_mixture import id_ood_sets, main_classes
from splitjax.data.partition import client_split
from splitjax.data.sources import Dataset
from splitjax.types import UserError

RHOS = (0.0, 0.2, 0.4, 0.6, 0.8)
"""The papers' ratios for ten classes."""


class TestSets(NamedTuple):
  """Training rows, test rows and test sets of each client.

  Attributes:
    parts: N arrays [S_n] int64, rows of the training split to train on.
    main: [N, C] bool, the classes that occur among them.
    pool: "test" or "train", the split of `rows`.
    rows: [N, K] int32, the client's test samples; -1 for padding.
    label: [N, K] int32, their classes; undefined for padding.
    sets: [R, N, K] bool, which of them are in each test set.
    names: R names of the sets; a ratio is its number as text.
    rhos: the R ratios; None if the sets are not mixtures.
    validation: N arrays [H_n] int64, training rows used neither for training
      nor for testing, on which thresholds may be chosen (`holdout`); () if
      there are none.
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

  @property
  def known(self) -> np.ndarray:
    """[N, K] bool, the client trained on the sample's class."""
    return np.take_along_axis(self.main, self.label, axis=1)


def id_ood(
  data: Dataset,
  parts: Sequence[np.ndarray],
  rhos: Sequence[float] | None,
  seed: int,
) -> TestSets:
  """ID/OOD mixtures of the test split at every rho (HARMONY eq. 11).

  See `id_ood_sets`. SplitGP section VI, HARMONY section 5.

  Args:
    data: the data set.
    parts: N arrays [S_n], training rows of each client.
    rhos: R ratios; None: RHOS.
    seed: fixes which OOD samples a client gets.

  Returns:
    Rows of the test split, one set per rho.

  Raises:
    UserError: a rho is negative or not finite, or there is no test split.
  """
  _require_test_split(data)
  rhos = RHOS if rhos is None else tuple(rhos)
  main = main_classes(data.train_label, parts, data.classes)
  masks = id_ood_sets(data.test_label, main, rhos, seed)
  rows, sets = _compact(masks)
  label = data.test_label[rows]
  names = tuple(map(str, rhos))
  return TestSets(list(parts), main, "test", rows, label, sets, names, rhos)


def whole_test(
  data: Dataset,
  parts: Sequence[np.ndarray],
  rhos: Sequence[float] | None,
  seed: int,
) -> TestSets:
  """The whole test split for every client: global accuracy (Hydra).

  Args:
    data: the data set.
    parts: N arrays [S_n], training rows of each client.
    rhos: must be None: the set is no mixture.
    seed: not used.

  Returns:
    All rows of the test split, one set, "global".

  Raises:
    UserError: rhos are given, or there is no test split.
  """
  del seed
  _require_no_rhos(rhos, "global")
  _require_test_split(data)
  main = main_classes(data.train_label, parts, data.classes)
  shape = len(parts), len(data.test_label)
  rows = np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape)
  label = np.broadcast_to(data.test_label, shape)
  sets = np.ones((1, *shape), bool)
  return TestSets(
    list(parts), main, "test", rows, label, sets, ("global",), None
  )


def local(
  data: Dataset,
  parts: Sequence[np.ndarray],
  rhos: Sequence[float] | None,
  seed: int,
  *,
  train_fraction: float = 0.75,
) -> TestSets:
  """A share of each client's own samples, not trained on (PGFedSplit).

  Args:
    data: the data set.
    parts: N arrays [S_n], rows of the training split that each client holds.
    rhos: must be None: the set is no mixture.
    seed: fixes which samples are for testing.
    train_fraction: the share for training; PGFedSplit's is 75 %.

  Returns:
    The remaining parts; rows of the training split, one set, "local".

  Raises:
    UserError: rhos are given, the fraction is not within (0, 1), or a client
      has fewer than two samples.
  """
  _require_no_rhos(rhos, "local")
  _require_fraction("train_fraction", train_fraction)
  kept, own = client_split(parts, seed, (train_fraction, 1 - train_fraction))
  return _on_training_split(data, kept, [own], ("local",))


def out_of_client(
  data: Dataset,
  parts: Sequence[np.ndarray],
  rhos: Sequence[float] | None,
  seed: int,
  *,
  train_fraction: float = 0.6,
  validation_fraction: float = 0.2,
) -> TestSets:
  """Test samples of the client itself, and of the other clients.

  Each client splits its own samples into a training, a validation and a test
  part. Without drift it is tested on its test part; with drift on as many
  draws, with replacement, from the union of all other clients' test parts.
  HARMONY's Table 5 after Jiang and Lin (Test-Time Robust Personalization for
  Federated Learning, ICLR 2023), whose public code first merges the official
  splits (`data.pool=all`) and draws the Dirichlet in groups of ten clients.

  Args:
    data: the data set.
    parts: N arrays [S_n], rows of the training split that each client holds.
    rhos: must be None: the sets are no mixtures.
    seed: fixes the split and the draws.
    train_fraction: the share for training.
    validation_fraction: the share on which thresholds may be chosen
      (eval.threshold_rule).

  Returns:
    The remaining parts; rows of the training split, two sets, "w/o drift" and
    "w/ drift".

  Raises:
    UserError: rhos are given, the fractions leave no test part, there are fewer
      than two clients, or a client has fewer than three samples.
  """
  _require_no_rhos(rhos, "out_of_client")
  _require_fraction("train_fraction", train_fraction)
  _require_fraction("validation_fraction", validation_fraction)
  test_fraction = 1 - train_fraction - validation_fraction
  _require_fraction("train_fraction + validation_fraction", 1 - test_fraction)
  if len(parts) < 2:
    raise UserError(
      f"num_clients = {len(parts)}: eval.shift out_of_client needs other "
      "clients to draw from; set it to 2 or more"
    )
  fractions = train_fraction, validation_fraction, test_fraction
  kept, validation, own = client_split(parts, seed, fractions)
  names = "w/o drift", "w/ drift"
  sets = [own, _from_others(own, seed)]
  test_sets = _on_training_split(data, kept, sets, names)
  return test_sets._replace(validation=validation)


def _from_others(own: Sequence[np.ndarray], seed: int) -> list[np.ndarray]:
  """For each client as many rows as its own, drawn from those of others."""
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


def _on_training_split(
  data: Dataset,
  kept: Sequence[np.ndarray],
  test_rows: Sequence[Sequence[np.ndarray]],
  names: tuple[str, ...],
) -> TestSets:
  """Test sets of training rows: test_rows[r][n] of set r and client n."""
  main = main_classes(data.train_label, kept, data.classes)
  of_client = list(zip(*test_rows, strict=True))
  most = max(sum(map(len, each)) for each in of_client)
  rows = np.full((len(kept), most), -1, np.int32)
  sets = np.zeros((len(names), *rows.shape), bool)
  for n, each in enumerate(of_client):
    start = 0
    for r, part in enumerate(each):
      own = slice(start, start + len(part))
      rows[n, own], sets[r, n, own] = part, True
      start = own.stop
  label = data.train_label[rows]
  return TestSets(list(kept), main, "train", rows, label, sets, names, None)


def _compact(masks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Masks [R, N, M] over a split -> rows [N, K] and the sets [R, N, K]."""
  used = masks.any(axis=0)
  most = max(1, int(used.sum(axis=1).max()))
  rows = np.argsort(~used, axis=1, kind="stable")[:, :most]
  real = np.take_along_axis(used, rows, axis=1)
  sets = np.take_along_axis(masks, rows[None], axis=2) & real
  return np.where(real, rows, -1).astype(np.int32), sets


def _require_no_rhos(rhos: Sequence[float] | None, name: str) -> None:
  if rhos is not None:
    raise UserError(
      f"eval.rhos = {list(rhos)}: eval.shift {name} mixes no samples; leave "
      "it None, or choose eval.shift id_ood"
    )


def _require_fraction(name: str, value: float) -> None:
  if not 0 < value < 1:
    raise UserError(f"eval.shift: {name} = {value:g} must lie between 0 and 1")


def _require_test_split(data: Dataset) -> None:
  if not len(data.test_label):
    raise UserError(
      "data.pool = 'all': no test split is left for this eval.shift; choose "
      "local or out_of_client, or data.pool = 'train'"
    )


def merged(data: Dataset) -> Dataset:
  """Both official splits as one training split; the test split is empty.

  Args:
    data: the data set.

  Returns:
    A data set of Z + M training samples.
  """
  return data._replace(
    train_image=np.concatenate([data.train_image, data.test_image]),
    train_label=np.concatenate([data.train_label, data.test_label]),
    test_image=data.test_image[:0],
    test_label=data.test_label[:0],
  )


SHIFTS: dict[str, Callable[..., TestSets]] = {
  "id_ood": id_ood,
  "out_of_client": out_of_client,
  "global": whole_test,
  "local": local,
}
