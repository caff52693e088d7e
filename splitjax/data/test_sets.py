"""What each client learns from and is judged on: the shifts of a config.

A shift takes the data, what every client holds, the ratios of a config and a
seed, then its own options by keyword; it returns a Trial. Every client's
networks run once over the union of its test sets; a set is a mask over that, so
that no network runs once per set, nor over samples that no set of the client
has.
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
  """What each client learns from and what it is judged on.

  Attributes:
    parts: N arrays [S_n] int64, training rows that a client learns from.
    main: [N, C] bool, the classes that occur among them.
    pool: "test" or "train", the split whose rows `rows` are.
    rows: [N, K] int32, what a client is shown; -1 where it has fewer.
    label: [N, K] int32, their classes; of no meaning where rows are -1.
    sets: [R, N, K] bool, who of these is in which test set.
    names: R names of the sets; of a ratio the number as text.
    rhos: the R ratios, None where sets are no mixtures.
    held: N arrays [H_n] int64, training rows that are neither learnt from nor
      judged on, for choosing thresholds (`held`); () where there are none.
  """

  parts: list[np.ndarray]
  main: np.ndarray
  pool: str
  rows: np.ndarray
  label: np.ndarray
  sets: np.ndarray
  names: tuple[str, ...]
  rhos: tuple[float, ...] | None
  held: Sequence[np.ndarray] = ()

  @property
  def inside(self) -> np.ndarray:
    """[N, K] bool, the sample's class is one that the client trained on."""
    return np.take_along_axis(self.main, self.label, axis=1)


def id_ood(
  data: Dataset,
  parts: Sequence[np.ndarray],
  rhos: Sequence[float] | None,
  seed: int,
) -> TestSets:
  """ID/OOD mixtures of the test split at every rho (HARMONY eq. 11).

  ID: all test samples of the client's classes. OOD: round(rho #ID) samples of
  the others; see `id_ood_sets`. SplitGP section VI, HARMONY section 5.

  Args:
    data: the data set.
    parts: N arrays [S_n], training rows of each client.
    rhos: R ratios; None: RHOS.
    seed: fixes which OOD samples a client gets.

  Returns:
    The test split's rows, one set per rho.

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
  """Every client on the whole test split: global accuracy (Hydra).

  Args:
    data: the data set.
    parts: N arrays [S_n], training rows of each client.
    rhos: must be None: nothing is mixed.
    seed: not needed.

  Returns:
    The test split's rows, one set, "global".

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
  """Every client on a share of its own samples, held out (PGFedSplit).

  Args:
    data: the data set.
    parts: N arrays [S_n], rows of the training split that each client holds.
    rhos: must be None: nothing is mixed.
    seed: fixes which samples are held out.
    train_fraction: the share that remains for training; PGFedSplit's is 75 %.

  Returns:
    The remaining parts; rows of the training split, one set, "local".

  Raises:
    UserError: rhos are given, a fraction that leaves nothing, or a client with
      fewer than two samples.
  """
  _require_no_rhos(rhos, "local")
  _require_fraction("train_fraction", train_fraction)
  kept, held = client_split(parts, seed, (train_fraction, 1 - train_fraction))
  return _on_own(data, kept, [held], ("local",))


def out_of_client(
  data: Dataset,
  parts: Sequence[np.ndarray],
  rhos: Sequence[float] | None,
  seed: int,
  *,
  train_fraction: float = 0.6,
  validation_fraction: float = 0.2,
) -> TestSets:
  """Every client on its own held-out samples, and on other clients'.

  Each client splits its own samples into training, validation and test part.
  Without drift it is judged on its test part; with drift on as many draws,
  with replacement, from the union of all other clients' test parts. HARMONY's
  Table 5 after Jiang and Lin (Test-Time Robust Personalization for Federated
  Learning, ICLR 2023), whose public code first merges the official splits
  (`data.pool=all`) and draws the Dirichlet in groups of ten clients.

  Args:
    data: the data set.
    parts: N arrays [S_n], rows of the training split that each client holds.
    rhos: must be None: the drifted set is not mixed.
    seed: fixes the split and the draws.
    train_fraction: the share to learn from.
    validation_fraction: the share that is set aside; thresholds may be chosen
      on it (eval.threshold_rule).

  Returns:
    The remaining parts; rows of the training split, two sets, "w/o drift" and
    "w/ drift".

  Raises:
    UserError: rhos are given, fractions that leave nothing, fewer than two
      clients, or a client with fewer than three samples.
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
  kept, aside, own = client_split(parts, seed, fractions)
  names = "w/o drift", "w/ drift"
  test_sets = _on_own(data, kept, [own, _from_others(own, seed)], names)
  return test_sets._replace(held=aside)


def _from_others(own: Sequence[np.ndarray], seed: int) -> list[np.ndarray]:
  """For each client as many rows as its own, of the others', with repeats."""
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


def _on_own(
  data: Dataset,
  kept: Sequence[np.ndarray],
  held: Sequence[Sequence[np.ndarray]],
  names: tuple[str, ...],
) -> TestSets:
  """A Trial on rows of the training split: held[r][n] is client n's r-th."""
  main = main_classes(data.train_label, kept, data.classes)
  lists = [np.concatenate(each) for each in zip(*held, strict=True)]
  rows = np.full((len(kept), max(map(len, lists))), -1, np.int32)
  sets = np.zeros((len(held), *rows.shape), bool)
  for n, each in enumerate(zip(*held, strict=True)):
    rows[n, : len(lists[n])] = lists[n]
    ends = np.cumsum([len(part) for part in each])
    for r, (part, end) in enumerate(zip(each, ends, strict=True)):
      sets[r, n, end - len(part) : end] = True
  label = data.train_label[rows]
  return TestSets(list(kept), main, "train", rows, label, sets, names, None)


def _compact(masks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Masks [R, N, M] over a split -> rows [N, K] and the sets [R, N, K]."""
  used = masks.any(axis=0)
  most = max(1, int(used.sum(axis=1).max()))
  rows = np.argsort(~used, axis=1, kind="stable")[:, :most]
  present = np.take_along_axis(used, rows, axis=1)
  sets = np.take_along_axis(masks, rows[None], axis=2) & present
  return np.where(present, rows, -1).astype(np.int32), sets


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
