"""Thresholds chosen without test labels, from each client's own data.

HARMONY and SplitGP choose e_n with the test labels; HARMONY leaves a choice
without them to future work. Here a client uses held-out images of its own, and
the same images with their patches in random order. For these proxies of
out-of-distribution samples none of its classes is the right answer: its exit
should be unsure of them and offload them. The client takes the threshold with
the best estimated accuracy on a mixture of both. The estimate is arithmetic on
the outputs of both exits, on the host; it has neither test samples nor test
labels as arguments. Nothing is trained on the proxies.

Limits: the estimate assumes that the server is as accurate on samples out of
distribution as on held-out ones. In fact it is less accurate on the former
(42 % against 84 %: SplitGP at lambda 0.2, 20 rounds of reduced Fashion-MNIST).
Thresholds are therefore too low, and too much is offloaded if few samples are
out of distribution. A small held-out part, such as 14 samples, also makes the
estimate noisy.

References:
  HARMONY (Youn et al., 2026), section 6.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from splitjax.evaluation import early_exit
from splitjax.evaluation.early_exit import Gated
from splitjax.evaluation.exits import Exits
from splitjax.types import Array

BOTH = ("client", "server")

GRID = 4
"""Patches along each side of an image."""


class ProxyPlan(NamedTuple):
  """Held-out samples and the seeds of their proxies, in chunks.

  Attributes:
    rows: [..., B] int32, row numbers in the training split.
    draw: [..., B] int32, the seed of a proxy.
  """

  rows: Array
  draw: Array


def with_proxies(image: Array, plan: ProxyPlan) -> Array:
  """Gathers held-out images and their proxies for an evaluation.

  `image` [Z, H, W, c] is the training split and `plan` has B rows. Returns
  [2 B, H, W, c]: the images of the rows, then their proxies.
  """

  def key(draw):
    return jax.random.fold_in(jax.random.key(0), draw)

  own = image[plan.rows]
  proxies = jax.vmap(patches)(own, jax.vmap(key)(plan.draw))
  return jnp.concatenate([own, proxies])


def patches(image: Array, key: Array) -> Array:
  """Cuts an image [H, W, c] into GRID x GRID patches, in random order.

  This keeps colours, strokes and textures and destroys the shape. A remainder
  at the border, where GRID does not divide the size, stays in place.
  """
  height, width, channels = image.shape
  n = min(GRID, height, width)
  h, w = height // n, width // n
  cut = image[: n * h, : n * w].reshape(n, h, n, w, channels)
  cut = cut.swapaxes(1, 2).reshape(n * n, h, w, channels)
  cut = cut[jax.random.permutation(key, n * n)]
  cut = cut.reshape(n, n, h, w, channels).swapaxes(1, 2)
  return image.at[: n * h, : n * w].set(cut.reshape(n * h, n * w, channels))


def estimate(
  own: Exits,
  label: np.ndarray,
  real: np.ndarray,
  proxy: Exits,
  thresholds: Sequence[float],
  expected_rho: float,
) -> Gated:
  """Estimates each threshold's results on a mixture of ID and OOD samples.

  a(e) = (a_ID(e) + rho' Pr(Tx | proxy, e) a_S) / (1 + rho')

  a_ID(e) is the accuracy of the gate at e on the client's held-out samples.
  Pr(Tx | proxy, e) is the share of the proxies that the gate offloads. a_S is
  the server's accuracy on the held-out samples; it stands for the unknown
  accuracy on out-of-distribution samples. An out-of-distribution sample that
  exits on the device counts as a wrong answer.

  Args:
    own: arrays [N, H], outputs for held-out samples.
    label: [N, H] int, their classes.
    real: [N, H] bool, false for padding.
    proxy: arrays [N, H], outputs for the proxies made from the same samples.
    thresholds: [E] float, nats, in any order.
    expected_rho: rho', #OOD / #ID at deployment, >= 0.

  Returns:
    The estimates, arrays [E, 1, N]. accuracy and offloaded are those on the
    mixture; size is the number of held-out samples. From the estimates
    `early_exit.best` chooses one threshold per client for all test sets, since
    a client does not know which mixture comes.
  """
  each = real[None]
  known = early_exit.sweep(own, label, each, thresholds, BOTH)
  unknown = early_exit.sweep(proxy, label, each, thresholds, BOTH).offloaded
  server = early_exit.score(own, label, each, np.nan, ("server",)).accuracy
  whole = 1 + expected_rho
  right = known.accuracy + expected_rho * unknown * server
  sent = known.offloaded + expected_rho * unknown
  return known._replace(accuracy=right / whole, offloaded=sent / whole)
