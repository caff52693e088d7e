"""SplitGP: a personalised client exit and a general server; multi-exit SFL.

Han et al., SplitGP: Achieving Both Generalization and Personalization in
Federated Learning, INFOCOM 2023.
"""

from typing import Annotated

from splitjax.fields import PROBABILITY
from splitjax.methods.personal import Blended, FineTuning
from splitjax.methods.split import Split
from splitjax.parameters import pytree


@pytree
class SplitGP(FineTuning, Blended, Split):
  """SGD on gamma l_C + (1 - gamma) l_S, then blended prefixes (Algorithm 1).

  phi and h are blended by lam (eq. 9-10), theta is the mean. The paper reports
  lam = 0.2 and 0.9. gamma is the weight of the client's loss (eq. 5).

  Example:
    >>> from splitjax.sandbox import small
    >>> small(SplitGP, gamma=0.7).method.answers
    ('client', 'server')
  """

  gamma: Annotated[float, PROBABILITY] = 0.5
  lam = 0.2

  def step(self, half, copy, context, batches, key):
    (batch,) = batches
    return self.split_pass(half, copy, batch, self.gamma)

  def alone(self, half, context, batches, key):
    (batch,) = batches
    return self.client_pass(half, batch)


@pytree
class MultiExit(SplitGP):
  """Multi-exit SFL: SplitGP whose clients get the mean and keep nothing."""

  lam = None
