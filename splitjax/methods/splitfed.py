"""SplitFed v1: clients train in parallel, each with its copy of the server.

Thapa et al., SplitFed: When Federated Learning Meets Split Learning, AAAI 2022.
"""

from splitjax.backbone import Backbone
from splitjax.methods import base, outer
from splitjax.methods.outer import Optimizer
from splitjax.protocol import split_pass
from splitjax.types import Method
from splitjax.wire import WireDtype


def splitfed_v1(
  backbone: Backbone, optimizer: Optimizer, *, wire_dtype: WireDtype = "float32"
) -> Method:
  """SplitFed v1: no exit (gamma = 0), both sides averaged, server answers all.

  Args:
    backbone: the network.
    optimizer: of both halves.
    wire_dtype: width of the features on the wire.
  """

  def step(client, server, batches, key):
    del key
    p = split_pass(
      backbone,
      client.segment,
      server.segment,
      batches[0],
      gamma=0.0,
      wire_dtype=wire_dtype,
    )
    client = outer.descend(client, p.client, p.client_stats, optimizer)
    server = outer.descend(server, p.server, p.server_stats, optimizer)
    return client, server, {"server": p.losses["server"]}, p.ledger

  return base.method(
    backbone,
    optimizer,
    step,
    keep=0.0,
    inner_lr=0.0,
    inner_steps=0,
    answers=("server",),
  )
