"""MultiHead: part-1 is averaged; every client has a part-2 of its own."""

import jax

from splitjax import trees
from splitjax.methods import optimizer as optimizers
from splitjax.methods.optimizer import Optimizer
from splitjax.methods.splitfed import Mean, splitfed_v1
from splitjax.models.backbone import Backbone, depth_of
from splitjax.models.inference import client_logits, server_logits
from splitjax.types import Half, Method, Pick, Segment
from splitjax.wire import WireDtype


def multi_head(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  pick: Pick = "softmax",
  wire_dtype: WireDtype = "float32",
  mean: Mean = "uniform",
) -> Method:
  """MultiHead: SplitFed v1 without averaging part-2.

  The server holds every client's part-2; the simulator keeps each in its
  client's memory. The most confident part-2 answers a sample.

  Args:
    backbone: the network.
    optimizer: of both halves.
    pick: the measure of confidence, as in `splitfed_v3`.
    wire_dtype: width of the features on the wire.
    mean: the weight of a participant in the average of part-1.

  References:
    Chen et al., 2023, as Hydra's code implements it (appendix B).
  """
  shared = splitfed_v1(backbone, optimizer, wire_dtype=wire_dtype, mean=mean)
  no_server = Half(Segment({}, {}), {} if optimizer.keep else ())

  def init(key, fleet, full):
    state = shared.init(key, fleet, full)
    clients = tuple(
      half._replace(memory=trees.repeat(state.server, len(cohort.places)))
      for half, cohort in zip(state.clients, fleet.cohorts, strict=True)
    )
    return state._replace(clients=clients, server=no_server)

  def begin(client, server, samples, round, key):
    own = client.memory
    client, _, down = shared.begin(client, server, samples, round, key)
    return client, optimizers.begin_round(own, optimizer, round), down

  def finish(client, server, samples, key):
    client, own, up = shared.finish(client, server, samples, key)
    own = own._replace(opt=own.opt.slots if optimizer.keep else ())
    return client._replace(memory=own), no_server, up

  def part_two(client, server):
    del server
    return client.memory

  def predict(client, server, image):
    return shared.predict(client, part_two(client, server), image)

  def paths(clients, server, image):
    del server
    body = trees.take(clients.segment, 0)  # all clients of a cohort have it
    z, _ = client_logits(backbone, body, image)

    def head(own):
      depth = depth_of(backbone, body)
      return server_logits(backbone, own.segment, z, depth).astype(float)

    return jax.lax.map(head, clients.memory)

  return shared._replace(
    init=init,
    begin=begin,
    finish=finish,
    predict=predict,
    part_two=part_two,
    alike=False,
    pick=pick,
    paths=paths if shared.alike else None,
  )
