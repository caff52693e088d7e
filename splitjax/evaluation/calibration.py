"""Thresholds that need no test label: each client's own data alone.

Both papers choose e_n with the test labels; HARMONY leaves a choice without
them to future work. Here a client looks at samples of its own that it did not
learn from, and at proxies of strange ones that it makes of them
(`splitjax.evaluation.ood_proxies`), and takes the threshold that would serve a mixture of the
two best. Arithmetic on what both exits said, on the host. Test samples are no
argument of anything here, nor are their labels.

What it cannot know: a server answers strange samples worse than the client's
own (42 % against 84 %: SplitGP at lambda 0.2, 20 rounds of reduced
Fashion-MNIST), so that thresholds come out low and too much is offloaded where
few samples are strange; and a held-out part of 14 samples says little.

References:
  HARMONY (Youn et al., "HARMONY: Bridging the Personalization-Generalization
    Gap by Mitigating Representation Skew in Heterogeneous Split Federated
    Learning", 2026), section 6.
"""

from collections.abc import Sequence

import numpy as np

from splitjax.evaluation import early_exit
from splitjax.evaluation.early_exit import Sweep
from splitjax.types import Exits

BOTH = ("client", "server")
NOBODY = -1
"""The class of a proxy: no client's."""


def estimate(
  own: Exits,
  label: np.ndarray,
  real: np.ndarray,
  proxy: Exits,
  thresholds: Sequence[float],
  expected_rho: float,
) -> Sweep:
  """What every threshold would give on a mixture at an expected rho.

  a(e) = (a_ID(e) + rho' Pr(Tx | proxy, e) a_S) / (1 + rho')

  with a_ID(e) the accuracy of the gate at e on the client's held-out samples,
  Pr(Tx | proxy, e) the share of their proxies that it offloads, and a_S the
  server's accuracy on the held-out samples, in place of what it would be on
  strange ones, which a client cannot know. A strange sample that stays on the
  device counts as answered wrong.

  Args:
    own: [N, H] each, of held-out samples.
    label: [N, H] int, their classes.
    real: [N, H] bool, which of them are no padding.
    proxy: [N, H] each, of the proxies made of the same samples.
    thresholds: [E] float, nats, in any order.
    expected_rho: rho', strange samples over own ones at deployment, >= 0.

  Returns:
    The estimates: accuracy and offloaded [E, 1, N] of the mixture, size [1, N]
    the held-out samples.

  Raises:
    UserError: no threshold, or one that is NaN.
  """
  each = real[None]
  known = early_exit.sweep(own, label, each, thresholds, BOTH)
  strange = early_exit.sweep(
    proxy, np.full_like(label, NOBODY), each, thresholds, BOTH
  )
  server = early_exit.score(own, label, each, np.nan, ("server",)).accuracy
  whole = 1 + expected_rho
  right = known.accuracy + expected_rho * strange.offloaded * server
  sent = known.offloaded + expected_rho * strange.offloaded
  return Sweep(right / whole, sent / whole, known.size)


def choose(
  own: Exits,
  label: np.ndarray,
  real: np.ndarray,
  proxy: Exits,
  thresholds: Sequence[float],
  expected_rho: float,
) -> np.ndarray:
  """Every client's threshold with the best estimate; of equals the larger.

  Args:
    own: as all others, as in `estimate`.
    label: likewise.
    real: likewise.
    proxy: likewise.
    thresholds: likewise.
    expected_rho: likewise.

  Returns:
    [N] float64, e_n, nats, one for all test sets: which mixture a client will
    meet is not known.

  Raises:
    UserError: no threshold, or one that is NaN.
  """
  found = estimate(own, label, real, proxy, thresholds, expected_rho)
  return early_exit.best(found, thresholds).threshold[0]
