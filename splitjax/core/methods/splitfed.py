"""SplitFed: no exit; labels go up; the server answers everything.

Thapa et al., SplitFed: When Federated Learning Meets Split Learning, AAAI 2022.
"""

from typing import ClassVar, Literal

from splitjax.core.methods.split import Split
from splitjax.core.pytree import pytree


@pytree
class SplitFedV1(Split):
  """Every client has a copy of the server; both sides are averaged."""

  exits: ClassVar[bool] = False

  @property
  def answers(self):
    return ("server",)

  def step(self, client, server, context, batches, key):
    (batch,) = batches
    return self.split_pass(client, server, batch, 0.0)


@pytree
class SplitFedV2(SplitFedV1):
  """One server, which clients visit in turns; phi is averaged at the end.

  A participant has weight 1 in the mean, as in Thapa's and Hydra's code.
  """

  mean: Literal["size", "uniform"] = "uniform"

  topology: ClassVar[str] = "sequential"
