"""SplitGP: a personalised client exit and a general server; multi-exit SFL.

Han et al., SplitGP: Achieving Both Generalization and Personalization in
Federated Learning, INFOCOM 2023.
"""

from typing import Annotated

from splitjax.fields import PROBABILITY
from splitjax.methods.blend import Blended
from splitjax.methods.split import Split
from splitjax.methods.tune import FineTuning
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

  def step(self, client, server, context, batches, key):
    (batch,) = batches
    return self.split_pass(client, server, batch, self.gamma)

  def alone(self, client, context, batches, key):
    (batch,) = batches
    return self.client_pass(client, batch)


@pytree
class MultiExit(SplitGP):
  """Multi-exit SFL: SplitGP whose clients get the mean and keep nothing."""

  lam = None
