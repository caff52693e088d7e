"""The entropy gate: who answers a test sample, the client's exit or the server.

Arithmetic on what both exits said (`splitjax.types.Exits`), on the host; no
network runs here, so a threshold more costs milliseconds.

With p = softmax(h_n(phi_n(x))) and E = -sum_c p_c log p_c (natural logarithm):
the sample exits on the device iff E < e_n, else it goes to the server.

A client may have no sample in some set (no class of its own is in the test
split, say). Its accuracy and its offload ratio there are NaN, and
`metrics.over_clients` leaves it out of every mean.

References:
  SplitGP (Han et al., "SplitGP: Achieving Both Generalization and
    Personalization in Federated Learning", INFOCOM 2023), Sec. III, eq. 11.
  HARMONY (Youn et al., "HARMONY: Bridging the Personalization-Generalization
    Gap by Mitigating Representation Skew in Heterogeneous Split Federated
    Learning", 2026), Sec. 4.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from splitjax.types import Exits, UserError

GRID = (0.05, 0.1, 0.2, 0.4, 0.8, 1.2, 1.6, 2.3)
"""SplitGP's thresholds for ten classes, nats."""


class Sweep(NamedTuple):
  """What every threshold of a grid gives.

  Attributes:
    accuracy: [E, R, N] float64, share of a client's samples answered right.
    offloaded: [E, R, N] float64, share that went to the server, Pr(Tx).
    size: [R, N] int64, a client's test samples |D|.
  """

  accuracy: np.ndarray
  offloaded: np.ndarray
  size: np.ndarray


class Choice(NamedTuple):
  """What one threshold per client and test set gives.

  Attributes:
    threshold: [R, N] float64, e_n, nats.
    accuracy: [R, N] float64, share of a client's samples answered right.
    offloaded: [R, N] float64, share that went to the server, Pr(Tx).
  """

  threshold: np.ndarray
  accuracy: np.ndarray
  offloaded: np.ndarray


def default_grid(classes: int) -> tuple[float, ...]:
  """SplitGP's grid, scaled by log C / log 10 since entropy reaches log C.

  Args:
    classes: C, at least two.

  Returns:
    The eight thresholds in increasing order, nats.

  Raises:
    UserError: fewer than two classes have no entropy to gate on.
  """
  if classes < 2:
    raise UserError(
      f"classes = {classes}: a threshold grid needs at least two classes; "
      "give eval.thresholds yourself"
    )
  scale = math.log(classes) / math.log(10)
  return tuple(scale * threshold for threshold in GRID)


def sweep(
  exits: Exits,
  labels: np.ndarray,
  samples: np.ndarray,
  thresholds: Sequence[float],
  answers: tuple[str, ...],
) -> Sweep:
  """Accuracy and offload ratio of every threshold, test set and client.

  One client at a time, so that memory stays at a few [E, M] arrays.

  Args:
    exits: [N, M] each. A NaN entropy (a network that diverged) offloads.
    labels: [M] int; or [N, M], where clients are shown samples of their own.
    samples: [R, N, M] bool, which of them are in which test set; or int, how
      often each counts.
    thresholds: [E] float, nats, in any order.
    answers: who can answer, as in `types.Method`: ("server",) always offloads,
      ("client",) never.

  Raises:
    UserError: no threshold, or one that is NaN.
    ValueError: arrays that do not belong together.
  """
  grid = _grid(thresholds)
  labels, size = _checked(exits, labels, samples)
  right = np.empty((len(grid), *size.shape))
  sent = np.empty_like(right)
  for n in range(size.shape[1]):
    correct, offload = _answer(exits, n, labels[n], grid[:, None], answers)
    weight = samples[:, n].astype(np.float64)
    right[:, :, n] = correct @ weight.T
    sent[:, :, n] = offload @ weight.T
  return Sweep(_share(right, size), _share(sent, size), size)


def score(
  exits: Exits,
  labels: np.ndarray,
  samples: np.ndarray,
  threshold: np.ndarray | float,
  answers: tuple[str, ...],
) -> Choice:
  """Accuracy and offload ratio of given thresholds, one per set and client.

  The extremes of SplitGP's Table IV are `answers=("client",)`, device only,
  and `answers=("server",)`, server only, whatever the threshold. Accuracy on
  one part of the samples, such as ID or OOD, is that of fewer `samples`.

  Args:
    exits: [N, M] each.
    labels: [M] or [N, M] int, as in `sweep`.
    samples: [R, N, M] bool, or int as in `sweep`.
    threshold: [R, N] float, or one for all, nats.
    answers: who can answer, as in `sweep`.

  Raises:
    ValueError: arrays that do not belong together.
  """
  labels, size = _checked(exits, labels, samples)
  limit = np.broadcast_to(np.asarray(threshold, np.float64), size.shape)
  right = np.empty(size.shape)
  sent = np.empty(size.shape)
  for n in range(size.shape[1]):
    correct, offload = _answer(exits, n, labels[n], limit[:, n, None], answers)
    weight = samples[:, n].astype(np.float64)
    right[:, n] = np.einsum("rm,rm->r", correct, weight)
    sent[:, n] = np.einsum("rm,rm->r", offload, weight)
  return Choice(limit, _share(right, size), _share(sent, size))


def predictions(
  exits: Exits, threshold: np.ndarray | float, answers: tuple[str, ...]
) -> np.ndarray:
  """What is answered for every sample at given thresholds, one per client.

  Args:
    exits: [N, M] each.
    threshold: [N] float, or one for all, nats; a NaN one offloads.
    answers: who can answer, as in `sweep`.

  Returns:
    [N, M] int32, classes.
  """
  limit = np.broadcast_to(np.asarray(threshold, np.float64), len(exits.client))
  offload = np.stack(
    [_offloads(exits, n, limit[n], answers) for n in range(len(limit))]
  )
  return np.where(offload, exits.server, exits.client)


def oracle(swept: Sweep, thresholds: Sequence[float]) -> Choice:
  """The best threshold of the grid for every client and test set.

  It is chosen with the test labels, as in both papers: an upper bound on what
  a deployed gate reaches. Otherwise as `best`.

  Args:
    swept: of the same thresholds.
    thresholds: [E] float, nats, in any order.

  Raises:
    UserError: no threshold, or one that is NaN.
  """
  return best(swept, thresholds)


def best(swept: Sweep, thresholds: Sequence[float]) -> Choice:
  """The threshold of the largest accuracy for every client and set.

  Of equally accurate thresholds the larger is taken, since it offloads less. A
  client without samples gets NaN throughout.

  Args:
    swept: of the same thresholds; measured, or estimated (`calibrate`).
    thresholds: [E] float, nats, in any order.

  Raises:
    UserError: no threshold, or one that is NaN.
  """
  grid = _grid(thresholds)
  order = np.argsort(grid)[::-1]  # argmax takes the first of equals
  accuracy = swept.accuracy[order]
  place = np.argmax(np.nan_to_num(accuracy, nan=-1.0), axis=0)
  offloaded = np.take_along_axis(swept.offloaded[order], place[None], 0)[0]
  threshold = np.where(swept.size > 0, grid[order][place], np.nan)
  return Choice(
    threshold, np.take_along_axis(accuracy, place[None], 0)[0], offloaded
  )


def _answer(
  exits: Exits,
  client: int,
  labels: np.ndarray,
  threshold: np.ndarray,
  answers: tuple[str, ...],
) -> tuple[np.ndarray, np.ndarray]:
  """Of one client, right and offloaded [K, M] float64 for thresholds [K, 1]."""
  offload = _offloads(exits, client, threshold, answers)
  on_device = np.asarray(exits.client[client]) == labels
  at_server = np.asarray(exits.server[client]) == labels
  right = np.where(offload, at_server, on_device)
  return right.astype(np.float64), offload.astype(np.float64)


def _offloads(
  exits: Exits,
  client: int,
  threshold: np.ndarray,
  answers: tuple[str, ...],
) -> np.ndarray:
  """Whether one client's samples go up, [..., M] bool for thresholds [..., 1].

  A scalar threshold gives [M].
  """
  entropy = np.asarray(exits.entropy[client])
  shape = np.broadcast_shapes(np.shape(threshold), entropy.shape)
  if answers == ("server",):
    return np.ones(shape, bool)
  if answers == ("client",):
    return np.zeros(shape, bool)
  # not (E < e), rather than E >= e: a NaN entropy shall offload
  return ~(entropy < threshold)


def _share(count: np.ndarray, size: np.ndarray) -> np.ndarray:
  """Returns count / size, NaN where there is nothing to count."""
  whole = np.broadcast_to(size, count.shape)
  share = np.full(count.shape, np.nan)
  return np.divide(count, whole, out=share, where=whole > 0)


def _checked(
  exits: Exits, labels: np.ndarray, samples: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Labels [N, M] and sizes [R, N]; refuses what would broadcast wrongly."""
  shape = np.shape(exits.entropy)
  fits = labels.shape in (shape, shape[1:])
  if not fits or samples.ndim != 3 or samples.shape[1:] != shape:
    raise ValueError(
      f"exits {shape}, labels {labels.shape} and samples {samples.shape} "
      "are not [N, M], [M] or [N, M], and [R, N, M]"
    )
  labels = np.broadcast_to(labels, shape)
  return labels, samples.sum(axis=-1, dtype=np.int64)


def _grid(thresholds: Sequence[float]) -> np.ndarray:
  """[E] float64, checked."""
  grid = np.asarray(thresholds, np.float64)
  if grid.size == 0 or np.isnan(grid).any():
    raise UserError(
      f"eval.thresholds = {list(thresholds)}: give at least one number (nats)"
    )
  return grid
