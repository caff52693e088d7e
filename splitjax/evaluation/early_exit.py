"""The entropy gate: the client's exit or the server answers a test sample.

Arithmetic on the outputs of both exits (`exits.Exits`), on the host. No network
runs, so a further threshold costs milliseconds.

With p = softmax(h_n(phi_n(x))) and E = -sum_c p_c log p_c (natural logarithm):
the sample exits on the device iff E < e_n; otherwise it is offloaded. As
0 <= E <= log C, e_n = 0 offloads all samples, and an e_n above log C offloads
none. If a network diverged and the entropy is NaN, the sample is always
offloaded.

A client may have no sample in a set (for example if no class of its own is in
the test split). Its accuracy and its offload ratio are then NaN, and
`metrics.over_clients` leaves it out of every mean.

References:
  SplitGP (Han et al., INFOCOM 2023), Sec. III, eq. 11.
  HARMONY (Youn et al., 2026), Sec. 4.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from splitjax.evaluation.exits import Exits
from splitjax.evaluation.metrics import ratio
from splitjax.types import Array, UserError

GRID = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.2, 1.6, 2.3, 2.4)
"""Thresholds for ten classes, nats: 0, SplitGP's eight, and 2.4.

At 0 all samples are offloaded. At 2.4, which is above log 10, no sample is
offloaded. JSON can hold 2.4, but not infinity."""


class Gated(NamedTuple):
  """Results of one threshold per client and test set.

  For a grid of E thresholds the shapes are [E, R, N].

  Attributes:
    threshold: [R, N] float64, e_n, nats.
    accuracy: [R, N] float64, share of correct answers to a client's samples.
    offloaded: [R, N] float64, share of samples sent to the server, Pr(Tx).
    size: [R, N] int64, number of a client's test samples, |D|.
  """

  threshold: np.ndarray
  accuracy: np.ndarray
  offloaded: np.ndarray
  size: np.ndarray


def default_grid(classes: int) -> tuple[float, ...]:
  """Scales GRID by log C / log 10, since entropy is at most log C.

  C is at least two. Returns the thresholds in increasing order, nats.

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
) -> Gated:
  """Computes accuracy and offload ratio at given thresholds.

  `answers=("client",)` gives the case "device only" of SplitGP's Table IV, and
  `answers=("server",)` its case "server only", whatever the threshold is. For
  the accuracy on a part of the samples, such as ID or OOD, select that part in
  `samples`.

  Args:
    exits: arrays [N, M].
    labels: [M] int; or [N, M] if each client has its own samples.
    samples: [R, N, M] bool, the samples of each test set; or int, the weight
      of each sample.
    threshold: [R, N] float, or one for all, nats.
    answers: which exits can answer, as in `Method.answers`: ("server",)
      offloads every sample, ("client",) offloads no sample.
  """
  entropy, client, server = map(
    np.asarray, (exits.entropy, exits.client, exits.server)
  )
  labels = np.broadcast_to(labels, entropy.shape)
  size = samples.sum(axis=-1, dtype=np.int64)
  limit = np.broadcast_to(np.asarray(threshold, np.float64), size.shape)
  correct, sent = np.empty(size.shape), np.empty(size.shape)
  for n in range(size.shape[1]):  # one at a time, since [R, N, M] is large
    offload = offloads(entropy[n], limit[:, n, None], answers)
    right = np.where(offload, server[n] == labels[n], client[n] == labels[n])
    weight = samples[:, n].astype(np.float64)
    correct[:, n] = (right * weight).sum(axis=-1)
    sent[:, n] = (offload * weight).sum(axis=-1)
  return Gated(limit, ratio(correct, size), ratio(sent, size), size)


def sweep(
  exits: Exits,
  labels: np.ndarray,
  samples: np.ndarray,
  thresholds: Sequence[float],
  answers: tuple[str, ...],
) -> Gated:
  """Computes the score of each threshold of a grid, arrays [E, R, N].

  The thresholds are E numbers, nats, in any order; other args as in `score`.
  """
  each = [score(exits, labels, samples, e, answers) for e in thresholds]
  return Gated(*map(np.stack, zip(*each, strict=True)))


def predictions(
  exits: Exits, threshold: np.ndarray | float, answers: tuple[str, ...]
) -> np.ndarray:
  """Selects the answer to every sample at given thresholds.

  `exits` has arrays [N, M]. `threshold` is [N] float, or one for all, nats; a
  client with threshold NaN offloads every sample. `answers` is as in `score`.
  Returns classes [N, M] int32.
  """
  limit = np.broadcast_to(np.asarray(threshold, np.float64), len(exits.client))
  offload = offloads(np.asarray(exits.entropy), limit[:, None], answers)
  return np.where(offload, exits.server, exits.client)


def best(swept: Gated) -> Gated:
  """Chooses the most accurate threshold for every client and set.

  Of equally accurate thresholds it takes the largest, which offloads least. A
  client without samples gets the threshold NaN. If `swept` is made by `sweep`,
  this is the oracle of both papers: it uses the test labels, so no choice from
  the same grid is more accurate. If it is made by `calibration.estimate`, no
  test labels are used.

  Args:
    swept: arrays [E, R, N], thresholds in any order.
  """
  order = np.argsort(swept.threshold[:, 0, 0])[::-1]
  # The largest threshold first: argmax returns the first maximum.
  falling = Gated(*(x[order] for x in swept))
  place = np.nan_to_num(falling.accuracy, nan=-1.0).argmax(axis=0)[None]
  chosen = Gated(*(np.take_along_axis(x, place, 0)[0] for x in falling))
  threshold = np.where(chosen.size > 0, chosen.threshold, np.nan)
  return chosen._replace(threshold=threshold)


def offloads(
  entropy: Array | np.ndarray,
  threshold: Array | np.ndarray,
  answers: tuple[str, ...],
) -> Array | np.ndarray:
  """Tells which samples are offloaded, [..., M] bool.

  `entropy` is [..., M] and `threshold` [..., 1]; `answers` is as in `score`.
  """
  if len(answers) == 1:
    shape = np.broadcast_shapes(threshold.shape, entropy.shape)
    return np.full(shape, answers == ("server",))
  # not (E < e) rather than E >= e: a NaN entropy offloads
  return ~(entropy < threshold)
