"""Thresholds chosen without test labels, from each client's own data.

HARMONY and SplitGP choose e_n with the test labels; HARMONY leaves a choice
without them to future work. Here a client uses held-out samples of its own and
out-of-distribution proxies made from them (`splitjax.evaluation.ood_proxies`),
and takes the threshold with the best estimated accuracy on a mixture of both.
The estimate is arithmetic on the outputs of both exits, on the host; it has
neither test samples nor test labels as arguments.

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

import numpy as np

from splitjax.evaluation import early_exit
from splitjax.evaluation.early_exit import Gated
from splitjax.types import Exits

BOTH = ("client", "server")


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
