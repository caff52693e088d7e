"""The entropy gate: the client's exit or the server answers a test sample.

Arithmetic on the outputs of both exits (`splitjax.types.Exits`), on the host.
No network runs, so a further threshold costs milliseconds.

With p = softmax(h_n(phi_n(x))) and E = -sum_c p_c log p_c (natural logarithm):
the sample exits on the device iff E < e_n; otherwise it is offloaded.

A client may have no sample in a set (for example if no class of its own is in
the test split). Its accuracy and its offload ratio are then NaN, and
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
  """Results of every threshold of a grid.

  Attributes:
    accuracy: [E, R, N] float64, share of correct answers to a client's samples.
    offloaded: [E, R, N] float64, share of samples sent to the server, Pr(Tx).
    size: [R, N] int64, a client's test samples |D|.
  """

  accuracy: np.ndarray
  offloaded: np.ndarray
  size: np.ndarray


class Choice(NamedTuple):
  """Results of one threshold per client and test set.

  Attributes:
    threshold: [R, N] float64, e_n, nats.
    accuracy: [R, N] float64, share of correct answers to a client's samples.
    offloaded: [R, N] float64, share of samples sent to the server, Pr(Tx).
  """

  threshold: np.ndarray
  accuracy: np.ndarray
  offloaded: np.ndarray


def default_grid(classes: int) -> tuple[float, ...]:
  """SplitGP's grid, scaled by log C / log 10 since entropy is at most log C.

  Args:
    classes: C, at least two.

  Returns:
    The eight thresholds in increasing order, nats.

  Raises:
    UserError: there are fewer than two classes, so that entropy is always 0.
  """
  if classes < 2:
    raise UserError(
      f"classes = {classes}: a threshold grid needs at least two classes; "
      "give eval.thresholds yourself"
    )
  scale = math.log(classes) / math.log(10)
  return tuple(scale * threshold for threshold in GRID)


def score(
  exits: Exits,
  labels: np.ndarray,
  samples: np.ndarray,
  threshold: np.ndarray | float,
  answers: tuple[str, ...],
) -> Choice:
  """Accuracy and offload ratio at given thresholds.

  `answers=("client",)` is SplitGP's device only and `answers=("server",)` its
  server only (Table IV), for any threshold. For the accuracy on a part of the
  samples, such as ID or OOD, pass those `samples`.

  Args:
    exits: [N, M] each. A NaN entropy (of a network that diverged) offloads.
    labels: [M] int; or [N, M], if clients have samples of their own.
    samples: [R, N, M] bool, the samples of each test set; or int, the weight
      of each sample.
    threshold: [R, N] float, or one for all, nats.
    answers: which exits can answer, as in `types.Method`: ("server",) always
      offloads, ("client",) never.

  Raises:
    ValueError: shapes that do not match.
  """
  labels, size = _checked(exits, labels, samples)
  limit = np.broadcast_to(np.asarray(threshold, np.float64), size.shape)
  correct, sent = np.empty(size.shape), np.empty(size.shape)
  for n in range(size.shape[1]):  # one at a time, since [R, N, M] is large
    one = limit[:1, n] if np.ndim(threshold) == 0 else limit[:, n]
    offload = _offloads(exits, n, one[:, None], answers)
    client, server = (np.asarray(e[n]) for e in (exits.client, exits.server))
    right = np.where(offload, server == labels[n], client == labels[n])
    weight = samples[:, n].astype(np.float64)
    correct[:, n] = (right * weight).sum(axis=-1)
    sent[:, n] = (offload * weight).sum(axis=-1)
  return Choice(limit, _share(correct, size), _share(sent, size))


def sweep(
  exits: Exits,
  labels: np.ndarray,
  samples: np.ndarray,
  thresholds: Sequence[float],
  answers: tuple[str, ...],
) -> Sweep:
  """Accuracy and offload ratio of every threshold, test set and client.

  Args:
    exits: as all others but thresholds, as in `score`.
    labels: likewise.
    samples: likewise.
    thresholds: [E] float, nats, in any order.
    answers: likewise.

  Raises:
    UserError: there is no threshold, or one is NaN.
    ValueError: shapes that do not match.
  """
  grid = _grid(thresholds)
  each = [score(exits, labels, samples, e, answers) for e in grid]
  _, size = _checked(exits, labels, samples)
  accuracy = np.stack([choice.accuracy for choice in each])
  return Sweep(accuracy, np.stack([choice.offloaded for choice in each]), size)


def predictions(
  exits: Exits, threshold: np.ndarray | float, answers: tuple[str, ...]
) -> np.ndarray:
  """The answer to every sample at given thresholds, one per client.

  Args:
    exits: [N, M] each.
    threshold: [N] float, or one for all, nats; a NaN one offloads.
    answers: which exits can answer, as in `score`.

  Returns:
    [N, M] int32, classes.
  """
  limit = np.broadcast_to(np.asarray(threshold, np.float64), len(exits.client))
  offload = np.stack(
    [_offloads(exits, n, limit[n], answers) for n in range(len(limit))]
  )
  return np.where(offload, exits.server, exits.client)


def best(swept: Sweep, thresholds: Sequence[float]) -> Choice:
  """The threshold with the largest accuracy for every client and set.

  Of equally accurate thresholds the largest is chosen, since it offloads least.
  A client without samples gets NaN. Of a measured Sweep this is the oracle of
  both papers: it uses the test labels, so it is an upper bound of a deployed
  gate. `calibration` applies it to an estimated Sweep.

  Args:
    swept: of the same thresholds.
    thresholds: [E] float, nats, in any order.

  Raises:
    UserError: there is no threshold, or one is NaN.
  """
  grid = _grid(thresholds)
  order = np.argsort(grid)[::-1]  # argmax returns the first maximum
  accuracy = swept.accuracy[order]
  place = np.argmax(np.nan_to_num(accuracy, nan=-1.0), axis=0)
  offloaded = np.take_along_axis(swept.offloaded[order], place[None], 0)[0]
  threshold = np.where(swept.size > 0, grid[order][place], np.nan)
  return Choice(
    threshold, np.take_along_axis(accuracy, place[None], 0)[0], offloaded
  )


def _offloads(
  exits: Exits,
  client: int,
  threshold: np.ndarray,
  answers: tuple[str, ...],
) -> np.ndarray:
  """Whether a client's samples are offloaded: [..., M] for [..., 1] or []."""
  entropy = np.asarray(exits.entropy[client])
  shape = np.broadcast_shapes(np.shape(threshold), entropy.shape)
  if answers == ("server",):
    return np.ones(shape, bool)
  if answers == ("client",):
    return np.zeros(shape, bool)
  # not (E < e) rather than E >= e: a NaN entropy offloads
  return ~(entropy < threshold)


def _share(count: np.ndarray, size: np.ndarray) -> np.ndarray:
  """The quotient count / size, NaN where size is 0."""
  share = np.full(count.shape, np.nan)
  return np.divide(count, size, out=share, where=size > 0)


def _checked(
  exits: Exits, labels: np.ndarray, samples: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Labels [N, M] and sizes [R, N]; refuses shapes that would broadcast."""
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
