"""Held-out samples of each client, on which it chooses its thresholds.

They are rows of the training split. For an out-of-distribution proxy
(`splitjax.evaluation.ood_proxies`), each sample comes with a random number
and another held-out sample of its client. No client uses another client's data.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from splitjax.data.partition import client_split
from splitjax.data.partition_util import padded

HOLD, VALIDATE, _PAIR = 0x401D, 0x7A11, 0x9A12
"""Numbers that separate this module's draws from others of the same seed."""


class Holdout(NamedTuple):
  """Held-out samples of all clients, padded to the largest number.

  Attributes:
    rows: [N, H] int32 of the training split; -1 for padding.
    label: [N, H] int32, their classes; undefined for padding.
    partner: [N, H] int32, another held-out row of the same client, if possible
      of another class. A client's only held-out row is its own partner.
    draw: [N, H] int32, below 2^31, the seed of a proxy.
  """

  rows: np.ndarray
  label: np.ndarray
  partner: np.ndarray
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
  """Arranges held-out samples as arrays, each sample with a partner.

  Args:
    label: [Z] int, labels of the training split.
    aside: N arrays [H_n], not empty, held-out rows of each client.
    seed: fixes partners and draws; every client has a separate random stream.
  """
  rows = padded(aside)
  partner, draw = np.zeros_like(rows), np.zeros_like(rows)
  streams = np.random.SeedSequence((seed, _PAIR)).spawn(len(aside))
  for n, (own, stream) in enumerate(zip(aside, streams, strict=True)):
    rng = np.random.default_rng(stream)
    draw[n, : len(own)] = rng.integers(0, 2**31, len(own))
    partner[n, : len(own)] = [_partner(label, own, i, rng) for i in own]
  return Holdout(rows, label[rows].astype(np.int32), partner, draw)


def _partner(
  label: np.ndarray, own: np.ndarray, row: int, rng: np.random.Generator
) -> int:
  """Picks another row of `own`, if possible of another class.

  Returns `row` if `own` has no other row.
  """
  other = own[label[own] != label[row]]
  if not len(other):
    other = own[own != row]
  return int(rng.choice(other)) if len(other) else row
