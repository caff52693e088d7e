"""The exchange of parameters between clients and server, and its bytes."""

from collections.abc import Callable

from splitjax import wire
from splitjax.methods import aggregations, optimizers
from splitjax.methods.optimizers import Optimizer
from splitjax.models import backbones
from splitjax.models.backbones import Backbone
from splitjax.models.block import norm_free
from splitjax.types import Aggregation, Ledger, Segment


def traffic(
  backbone: Backbone,
  direction: str,
  client: Segment,
  keep: aggregations.Keep,
) -> Ledger:
  """Counts the bytes of the parameters that one client sends or receives.

  `direction` is "up" or "down". `client` holds one client's blocks, without an
  axis of clients. Blocks to which `keep` gives lam = 1 stay with the client and
  are not counted.
  """
  names = [n for n in client.params if aggregations.keep_share(keep, n) < 1]
  if backbone.local_norm:
    client = norm_free(client)
  own = backbones.classifier(backbone, client)
  if own == "head":
    kind = "model" if "head" in names else "body"
    kind = "head" if names == ["head"] else kind
    return wire.parameters(
      f"{direction}/{kind}", backbones.select(client, names)
    )
  blocks = [n for n in names if n != own]
  exits = [n for n in names if n == own]
  return wire.merge(
    wire.parameters(f"{direction}/prefix", backbones.select(client, blocks)),
    wire.parameters(f"{direction}/exit", backbones.select(client, exits)),
  )


def download(
  backbone: Backbone,
  optimizer: Optimizer,
  aggregation: Aggregation,
  *,
  before: Callable | None = None,
  sent: bool = True,
  head_down: bool = False,
) -> Callable:
  """Builds a Method's `begin`: a download that also sets the optimisers' state.

  Args:
    backbone: the network.
    optimizer: the optimiser of both halves.
    aggregation: decides which blocks travel.
    before: called before the download, (client, server, samples, round, key) ->
      (client, server, Ledger of further messages); None: nothing is called.
    sent: whether to send the parameters and count their bytes. False if a relay
      hands the parameters on, or if `before` counts their bytes.
    head_down: whether clients also download a copy of the server's head.
  """
  keep = aggregation.keep

  def begin(client, server, samples, round, key):
    down, more = {}, {}
    if before is not None:
      client, server, more = before(client, server, samples, round, key)
    if sent:
      down = traffic(backbone, "down", client.segment, keep)
    if head_down:
      head = backbones.select(server.segment, ("head",))
      down = wire.merge(down, wire.parameters("down/server_head", head))
    client = optimizers.begin_round(client, optimizer, round)
    server = optimizers.begin_round(server, optimizer, round, server=True)
    return client, server, wire.merge(down, more)

  return begin


def upload(
  backbone: Backbone,
  aggregation: Aggregation,
  *,
  before: Callable | None = None,
  sent: bool = True,
) -> Callable:
  """Builds a Method's `finish`: the upload.

  Arguments are as in `download`, except that `before` is (client, server,
  samples, key) -> (client, server, Ledger).
  """
  keep = aggregation.keep

  def finish(client, server, samples, key):
    up, more = {}, {}
    if before is not None:
      client, server, more = before(client, server, samples, key)
    if sent:
      up = traffic(backbone, "up", client.segment, keep)
    return client._replace(opt=()), server, wire.merge(up, more)

  return finish
