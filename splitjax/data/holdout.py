"""A client's own samples that it does not learn from, to choose thresholds on.

They are rows of the training split. Beside each lies what a proxy of a strange
sample is made with (`splitjax.evaluation.ood_proxies`): another of the client's held-out
samples and a number to draw from. No other client's data is looked at.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from splitjax.data.partition import client_split

_HOLD, _PAIR = 0x401D, 0x9A12
"""Set these draws apart from all others of the same seed."""


class Holdout(NamedTuple):
  """Held-out samples of all clients, padded to the largest one's.

  Attributes:
    rows: [N, H] int32 of the training split; -1 where a client has fewer.
    label: [N, H] int32, their classes; of no meaning where rows are -1.
    partner: [N, H] int32, another of the client's held-out samples, of another
      class where it has one; itself where it has no other.
    draw: [N, H] int32, numbers below 2^31, what a proxy's chance comes from.
  """

  rows: np.ndarray
  label: np.ndarray
  partner: np.ndarray
  draw: np.ndarray

  @property
  def real(self) -> np.ndarray:
    """[N, H] bool, no padding."""
    return self.rows >= 0


def hold_out(
  parts: Sequence[np.ndarray], seed: int, share: float
) -> tuple[list[np.ndarray], list[np.ndarray]]:
  """Takes a share of every client's samples out of its training.

  Args:
    parts: N arrays [S_n] of rows, as a partition returns them.
    seed: fixes which; other draws by the same seed do not depend on it.
    share: between 0 and 1, of each client's samples, at least one.

  Returns:
    What remains to learn from, and what is held out, sorted.

  Raises:
    UserError: a client with fewer than two samples.
  """
  kept, held = client_split(parts, seed, (1 - share, share), stream=_HOLD)
  return kept, held


def table(label: np.ndarray, held: Sequence[np.ndarray], seed: int) -> Holdout:
  """Lays held-out samples out for the device, each with a partner.

  Args:
    label: [Z] int, labels of the training split.
    held: N arrays [H_n], none empty, rows that each client holds back.
    seed: fixes partners and draws; every client has a stream of its own.
  """
  shape = len(held), max(map(len, held))
  rows = np.full(shape, -1, np.int32)
  partner, draw = np.zeros_like(rows), np.zeros_like(rows)
  streams = np.random.SeedSequence((seed, _PAIR)).spawn(len(held))
  for n, (own, stream) in enumerate(zip(held, streams, strict=True)):
    rng = np.random.default_rng(stream)
    rows[n, : len(own)] = own
    draw[n, : len(own)] = rng.integers(0, 2**31, len(own))
    partner[n, : len(own)] = [_partner(label, own, i, rng) for i in own]
  return Holdout(rows, label[rows].astype(np.int32), partner, draw)


def _partner(
  label: np.ndarray, own: np.ndarray, row: int, rng: np.random.Generator
) -> int:
  """Another of a client's samples, of another class if it has one."""
  other = own[label[own] != label[row]]
  if not len(other):
    other = own[own != row]
  return int(rng.choice(other)) if len(other) else row
