"""Splits of each client's samples: training, test, validation, held out.

>>> import numpy as np
>>> from splitjax.data import client_split
>>> rows = [np.arange(8), np.arange(8, 12)]
>>> train, test = client_split(rows, seed=0, fractions=(0.75, 0.25))
>>> [len(part) for part in train], [len(part) for part in test]
([6, 3], [2, 1])
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from splitjax.data.dataset import SPLITS, Dataset
from splitjax.data.partitions import require

SPLIT, HOLD, VALIDATE, _PROXY = 0x5B117, 0x401D, 0x7A11, 0x9A12
"""Numbers that separate these draws from others of the same seed."""


def client_split(
  parts: Sequence[np.ndarray],
  seed: int,
  fractions: Sequence[float],
  *,
  stream: int = SPLIT,
) -> tuple[list[np.ndarray], ...]:
  """Splits each client's samples at random into pieces of given shares.

  A client's samples are shuffled and cut at the rounded cumulative fractions; a
  cut moves if a piece would be empty. Each client has a separate random stream,
  so its split does not depend on the number of clients. PGFedSplit uses (0.75,
  0.25) for training and test. FedTHE (Jiang and Lin, ICLR 2023) uses (0.6, 0.2,
  0.2) for training, validation and test. `parts` are N arrays [S_n] of rows;
  `stream` separates the draws of several splits with one seed.

  Returns:
    For each fraction, N sorted arrays of rows, not empty.

  Raises:
    UserError: fractions are not positive or do not sum to 1, or a client has
      fewer samples than pieces.
  """
  shares = np.asarray(fractions, np.float64)
  require(
    bool(np.all(shares > 0) and abs(shares.sum() - 1) < 1e-9),
    "fractions",
    tuple(fractions),
    f"each must be positive, and the sum 1; it is {shares.sum():g}",
  )
  pieces = len(shares)
  sizes = np.array([len(rows) for rows in parts], np.int64)
  poorest = int(sizes.argmin())
  require(
    bool(sizes[poorest] >= pieces),
    "num_clients",
    len(parts),
    f"client {poorest} has {sizes[poorest]} sample(s) to split into {pieces} "
    f"pieces; set data.partition.min_samples to {pieces} or more where the "
    "partition has it, or lower num_clients",
  )
  # At least j samples lie before the cut after piece j, and at least one for
  # each later piece behind it.
  step = np.arange(1, pieces)
  cuts = np.rint(np.cumsum(shares)[:-1] * sizes[:, None]).astype(np.int64)
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


def hold_out(
  parts: Sequence[np.ndarray], seed: int, share: float, stream: int = HOLD
) -> tuple[list[np.ndarray], list[np.ndarray]]:
  """Holds out a share of every client's training samples, one at least.

  Returns the remaining and the held-out rows, as `client_split` does. `stream`
  is HOLD for choosing thresholds, VALIDATE for validation in training.
  """
  kept, aside = client_split(parts, seed, (1 - share, share), stream=stream)
  return kept, aside


class Holdout(NamedTuple):
  """The samples on which each client chooses its thresholds, padded.

  They are rows of the training split. For an out-of-distribution proxy
  (`splitjax.evaluation.gate`), each sample comes with a random number.

  Attributes:
    rows: [N, H] int32; -1 for padding.
    label: [N, H] int32, their classes; undefined for padding.
    draw: [N, H] int32, below 2^31, the seed of a proxy.
  """

  rows: np.ndarray
  label: np.ndarray
  draw: np.ndarray

  @property
  def real(self) -> np.ndarray:
    """[N, H] bool, false for padding."""
    return self.rows >= 0


def holdout(
  label: np.ndarray, aside: Sequence[np.ndarray], seed: int
) -> Holdout:
  """Arranges held-out rows, N arrays [H_n], with the labels [Z]."""
  rows = padded(aside)
  draw = np.zeros_like(rows)
  streams = np.random.SeedSequence((seed, _PROXY)).spawn(len(aside))
  for numbers, held, stream in zip(draw, aside, streams, strict=True):
    rng = np.random.default_rng(stream)
    numbers[: len(held)] = rng.integers(0, 2**31, len(held))
  return Holdout(rows=rows, label=label[rows].astype(np.int32), draw=draw)


def padded(parts: Sequence[np.ndarray]) -> np.ndarray:
  """Stacks N arrays [H_n] of rows as [N, H] int32, padded with -1; H >= 1."""
  most = max(1, *map(len, parts))
  rows = np.full((len(parts), most), -1, np.int32)
  for row, part in zip(rows, parts, strict=True):
    row[: len(part)] = part
  return rows


def merged(data: Dataset) -> Dataset:
  """Merges both splits into Z + M training samples and an empty test split."""
  joined = dict[str, Any]()
  for field in ("image", "label", "client", "domain"):
    train, test = (getattr(data, f"{split}_{field}") for split in SPLITS)
    named = test is None or field in ("client", "domain")
    joined[f"test_{field}"] = None if named else test[:0]
    if train is not None and len(data.test_label):
      train = None if test is None else np.concatenate([train, test])
    joined[f"train_{field}"] = train
  return data._replace(**joined)
