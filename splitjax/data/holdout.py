"""Held-out samples of each client, on which it chooses its thresholds.

They are rows of the training split. For an out-of-distribution proxy
(`splitjax.evaluation.calibration`), each sample comes with a random number. No
client uses another client's data.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from splitjax.data.partition import client_split
from splitjax.data.partition_util import padded

HOLD, VALIDATE, _PROXY = 0x401D, 0x7A11, 0x9A12
"""Numbers that separate this module's draws from others of the same seed."""


class Holdout(NamedTuple):
  """Held-out samples of all clients, padded to the largest number.

  Attributes:
    rows: [N, H] int32 of the training split; -1 for padding.
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


def hold_out(
  parts: Sequence[np.ndarray], seed: int, share: float, stream: int = HOLD
) -> tuple[list[np.ndarray], list[np.ndarray]]:
  """Holds out a share of every client's training samples.

  Args:
    parts: N arrays [S_n] of rows, as a partition returns them.
    seed: fixes the choice; other draws by the same seed are independent.
    share: share of each client's samples, 0 to 1; at least one is held out.
    stream: HOLD for choosing thresholds, VALIDATE for validation in training.

  Returns:
    The remaining and the held-out rows, N sorted arrays each.

  Raises:
    UserError: a client has fewer than two samples.
  """
  kept, aside = client_split(parts, seed, (1 - share, share), stream=stream)
  return kept, aside


def table(label: np.ndarray, aside: Sequence[np.ndarray], seed: int) -> Holdout:
  """Arranges held-out samples as arrays.

  Args:
    label: [Z] int, labels of the training split.
    aside: N arrays [H_n], not empty, held-out rows of each client.
    seed: fixes the draws; every client has a separate random stream.
  """
  rows = padded(aside)
  draw = np.zeros_like(rows)
  streams = np.random.SeedSequence((seed, _PROXY)).spawn(len(aside))
  for n, (own, stream) in enumerate(zip(aside, streams, strict=True)):
    rng = np.random.default_rng(stream)
    draw[n, : len(own)] = rng.integers(0, 2**31, len(own))
  return Holdout(rows, label[rows].astype(np.int32), draw)
