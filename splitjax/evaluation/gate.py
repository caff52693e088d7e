"""The entropy gate: the client's exit or the server answers a test sample.

Arithmetic on the outputs of both exits, on the host: no network runs again
(SplitGP, Han et al., INFOCOM 2023, eq. 11; HARMONY, Youn et al., 2026, Sec. 4).

With p = softmax(h_n(phi_n(x))) and E = -sum_c p_c log p_c (natural logarithm):
the sample exits on the device iff E < e_n; otherwise it is offloaded
(`offloads`). As 0 <= E <= log C, e_n = 0 offloads all samples, and an e_n above
log C none. E is computed in `exits.to_exits`; `scores.score` takes e_n by the
config's rule: "fixed", the same for all; the oracle of both papers, `best` of a
`sweep` over test samples; or "calibrated", `best` of `estimate`.

`estimate` needs no test labels, which HARMONY (Sec. 6) leaves open: a client
uses held-out images of its own, and the same images with their patches in
random order. Of these proxies of out-of-distribution samples no class is the
right answer: its exit should be unsure and offload them.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from splitjax.data.dataset import require
from splitjax.data.test_sets import Holdout
from splitjax.evaluation.exits import Exits, Outputs, Values, copied
from splitjax.evaluation.means import ratio

GRID = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.2, 1.6, 2.3, 2.4)
"""Thresholds for ten classes, nats: 0, SplitGP's eight, and 2.4.

At 0 all samples are offloaded; at 2.4, above log 10, none is."""


Sides = tuple[str, ...]
"""Which exits can answer: both, or one ("device only" and "server only" of
SplitGP's Table IV), as in `Method.answers`."""


class Answered(NamedTuple):
  """What both exits answered to the clients' samples, and who may answer."""

  exits: Exits  #: arrays [N, M]
  labels: np.ndarray  #: [N, M] int
  samples: np.ndarray  #: [R, N, M] bool, those of each test set
  sides: Sides = ("client", "server")


class Gated(NamedTuple):
  """Results of one threshold per client and test set, or of E: [E, R, N].

  NaN for a client without samples, which `means.over_clients` leaves out.
  """

  threshold: np.ndarray  #: [R, N] float64, e_n, nats
  accuracy: np.ndarray  #: [R, N] float64, share of correct answers
  offloaded: np.ndarray  #: [R, N] float64, share sent to the server, Pr(Tx)
  size: np.ndarray  #: [R, N] int64, number of a client's test samples, |D|


def default_grid(classes: int) -> tuple[float, ...]:
  """Scales GRID by log C / log 10, since entropy is at most log C, nats.

  Raises a UserError if there is one class, whose entropy is always 0.
  """
  require(
    classes >= 2,
    f"classes = {classes}: a threshold grid needs at least two classes; "
    "give eval.thresholds yourself",
  )
  scale = math.log(classes) / math.log(10)
  return tuple(scale * threshold for threshold in GRID)


def offloads(entropy: Values, threshold: Values, sides: Sides) -> Values:
  """Tells which samples are offloaded, [..., M] bool: the gate's decision.

  Of entropies [..., M] at thresholds [..., 1]; one of the `sides` alone answers
  all samples.
  """
  # not (E < e) rather than E >= e: NaN, of entropy or threshold, offloads
  unsure = ~(entropy < threshold)
  return (unsure | ("client" not in sides)) & ("server" in sides)


def decide(
  answered: Answered, threshold: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the answers at thresholds [N], and whether they are the server's.

  [N, M] int32 and bool.
  """
  exits = answered.exits
  limit = np.asarray(threshold, np.float64)[:, None]
  entropy = np.asarray(exits.entropy)
  away = np.asarray(offloads(entropy, limit, answered.sides))
  return np.where(away, exits.server, exits.client), away


def score(answered: Answered, threshold: np.ndarray | float) -> Gated:
  """Computes accuracy and offload ratio at thresholds [R, N], or at one."""
  size = answered.samples.sum(axis=-1, dtype=np.int64)
  limit = np.broadcast_to(np.asarray(threshold, np.float64), size.shape)
  correct = np.empty(size.shape)
  sent = np.empty(size.shape)
  for r, samples in enumerate(answered.samples):
    answers, away = decide(answered, limit[r])
    correct[r] = (samples & (answers == answered.labels)).sum(axis=-1)
    sent[r] = (samples & away).sum(axis=-1)
  return Gated(limit, ratio(correct, size), ratio(sent, size), size)


def sweep(answered: Answered, thresholds: Sequence[float]) -> Gated:
  """Computes `score` at each of E thresholds, in any order; [E, R, N]."""
  scores = [score(answered, threshold) for threshold in thresholds]
  return jax.tree.map(lambda *rows: np.stack(rows), *scores)


def best(swept: Gated) -> Gated:
  """Chooses the most accurate threshold for every client and set.

  Of equally accurate ones it takes the largest, which offloads least; NaN for a
  client without samples.
  """
  # The largest threshold first: argmax returns the first maximum.
  order = np.argsort(swept.threshold[:, 0, 0])[::-1]
  falling = jax.tree.map(lambda x: x[order], swept)
  top = np.nan_to_num(falling.accuracy, nan=-1.0).argmax(axis=0)[None]
  chosen = jax.tree.map(lambda x: np.take_along_axis(x, top, 0)[0], falling)
  threshold = np.where(chosen.size > 0, chosen.threshold, np.nan)
  return chosen._replace(threshold=threshold)


# Thresholds without test labels.

_PATCHES = 4
"""Patches along each side of an image."""


def estimate(
  outputs: Outputs,
  samples: Holdout,
  thresholds: Sequence[float],
  expected_rho: float,
) -> Gated:
  """Estimates each threshold's results on a mixture of ID and OOD samples.

  a(e) = (a_ID(e) + rho' Pr(Tx | proxy, e) a_S) / (1 + rho')

  a_ID(e) is the accuracy of the gate at e on the held-out samples, Pr(Tx |
  proxy, e) the share of the proxies that it offloads; a proxy that exits on the
  device is a wrong answer. a_S is the server's accuracy on the held-out
  samples. It stands for that on out-of-distribution samples, which is lower (42
  % against 84 %: SplitGP at lambda 0.2, 20 rounds of reduced Fashion-MNIST), so
  thresholds are too low if few samples are out of distribution.

  `outputs` has those for held-out samples and their proxies; `expected_rho` is
  rho', #OOD / #ID at deployment, >= 0. Returns [E, 1, N]: `best` then chooses a
  threshold of each client for all test sets, since it does not know which
  mixture comes.
  """
  assert outputs.holdout is not None and outputs.proxy is not None
  inside = Answered(outputs.holdout, samples.label, (samples.rows >= 0)[None])
  swept = sweep(inside, thresholds)
  outside = sweep(inside._replace(exits=outputs.proxy), thresholds).offloaded
  server = score(inside._replace(sides=("server",)), np.nan).accuracy
  right = swept.accuracy + expected_rho * outside * server
  sent = swept.offloaded + expected_rho * outside
  total = 1 + expected_rho
  return swept._replace(accuracy=right / total, offloaded=sent / total)


class Calibration(NamedTuple):
  """Held-out inputs and their proxies, as an evaluation takes them."""

  image: Array  #: [2 N H, ...], the inputs, then a proxy of each
  rows: np.ndarray  #: [N, 2 H] int32, a client's inputs, then its proxies


def calibration(
  image: Array, holdout: Holdout, mesh: Mesh | None = None
) -> Calibration:
  """Makes proxies of the held-out rows [N, H] of the training split `image`."""
  rows = np.maximum(holdout.rows, 0)
  numbers = np.arange(rows.size, dtype=np.int32).reshape(rows.shape)
  return Calibration(
    image=_with_proxies(image, rows.ravel(), holdout.draw.ravel(), mesh),
    rows=np.concatenate([numbers, rows.size + numbers], axis=1),
  )


@functools.partial(jax.jit, static_argnums=3)
def _with_proxies(
  image: Array, rows: Array, draw: Array, mesh: Mesh | None
) -> Array:
  """Gathers images [K] of `rows`, then their proxies by the seeds `draw`."""
  inputs = image[rows]
  key_of = functools.partial(jax.random.fold_in, jax.random.key(0))
  proxies = jax.vmap(patches)(inputs, jax.vmap(key_of)(draw))
  return copied(jnp.concatenate([inputs, proxies]), mesh)


def patches(image: Array, key: Array) -> Array:
  """Puts the PATCHES x PATCHES parts of an image [H, W, c] in random order.

  This keeps colours, strokes and textures and destroys the shape. A remainder
  at the border, where PATCHES does not divide the size, stays in place.
  """
  height, width, channels = image.shape
  n = min(_PATCHES, height, width)
  h = height // n
  w = width // n
  cut = image[: n * h, : n * w].reshape(n, h, n, w, channels)
  cut = cut.swapaxes(1, 2).reshape(n * n, h, w, channels)
  cut = cut[jax.random.permutation(key, n * n)]
  cut = cut.reshape(n, n, h, w, channels).swapaxes(1, 2)
  return image.at[: n * h, : n * w].set(cut.reshape(n * h, n * w, channels))
