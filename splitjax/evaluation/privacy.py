"""Privacy accounting: epsilon of one sample's rows, by dp-accounting.

An observer who sees a sample's rows in the noisy messages, and knows the
networks that made them, cannot tell the sample from any other better than
(epsilon, delta) allows. Neighbouring data sets differ in one replaced sample.
Two clipped rows are at most 2 clip apart, which is the sensitivity; the noise
multiplier is therefore `noise` / 2. docs/privacy.md lists what epsilon does not
cover.

By default every transmission of a sample counts in full. k Gaussian mechanisms
of equal sensitivity are equivalent to a single one with 1 / k of the variance,
whose epsilon is known exactly (Balle and Wang, ICML 2018). An epoch sends each
sample once, in any order, so k is the number of epochs. If each step sends two
views, as HARMONY does with features, k is twice this number. The amplified
account assumes that each step draws its batch anew without replacement (Wang,
Balle and Kasiviswanathan, AISTATS 2019, by Renyi orders). Training shuffles
each epoch instead, so the amplified epsilon is an estimate and not a bound.
"""

import functools
import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from splitjax.types import UserError


class Release(NamedTuple):
  """One client's messages of one name, such as up/features, over all rounds.

  Attributes:
    noise: standard deviation of the noise, in multiples of the clip.
    times: how often one sample was sent, at most.
    steps: how often a batch was sent.
    batch: largest number of samples in a batch.
    samples: |D_n|, the number of the client's samples.
  """

  noise: float
  times: int
  steps: int
  batch: int
  samples: int


def dp_library() -> Any:
  """Imports the package dp_accounting.

  Raises:
    UserError: it is not installed.
  """
  try:
    import dp_accounting
  except ImportError as error:
    raise UserError(
      f"the account of noise needs dp-accounting ({error}): pip install"
      " 'dp-accounting>=0.4.4', or set privacy.delta=None for noise without an"
      " account"
    ) from None
  return dp_accounting


@functools.lru_cache(maxsize=4096)
def epsilon(
  releases: tuple[Release, ...], delta: float, amplified: bool = False
) -> float:
  """Computes the epsilon of one client's sample over all `releases`.

  If `amplified`, computes epsilon by the default account and by the amplified
  account, which is loose for large batches, and returns the smaller epsilon.
  """
  sent = [r for r in releases if r.times]
  if not sent:
    return 0.0
  known = dp_library()
  precision = sum(r.times / (r.noise / 2) ** 2 for r in sent)
  plain = known.get_epsilon_gaussian(1 / math.sqrt(precision), delta)
  if not amplified:
    return float(plain)
  relation = known.NeighboringRelation.REPLACE_ONE
  accountant = known.rdp.RdpAccountant(neighboring_relation=relation)
  for r in sent:
    event = known.GaussianDpEvent(r.noise / 2)
    if r.batch < r.samples:
      event = known.SampledWithoutReplacementDpEvent(r.samples, r.batch, event)
    accountant.compose(event, r.steps)
  return float(min(plain, accountant.get_epsilon(delta)))


def noise_spread(values: Sequence[float]) -> dict[str, float]:
  """Returns the "max" and the "median" of the clients' epsilons."""
  return {"max": max(values), "median": statistics.median(values)}
