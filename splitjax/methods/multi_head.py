"""MultiHead: part-1 is averaged, every client keeps a part-2 of its own."""

from splitjax import trees
from splitjax.methods import optimizer as optimizers
from splitjax.methods.optimizer import Optimizer
from splitjax.methods.splitfed import Mean, split_method, split_step
from splitjax.models.backbone import Backbone
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
  """MultiHead: SplitFed v1 in which part-2 is never averaged.

  The heads lie at the server; here each is kept beside its client. A sample is
  answered by the head that is the surest.

  Args:
    backbone: the network.
    optimizer: of both halves.
    pick: what tells the surest head, as of `splitfed_v3`.
    wire_dtype: width of the features on the wire.
    mean: what a participant counts in the average of part-1.

  References:
    Chen et al., 2023, as Hydra's code reads it (appendix B).
  """
  one = split_step(backbone, optimizer, wire_dtype)
  made = split_method(backbone, optimizer, one, mean=mean)

  nothing = Half(Segment({}, {}), {} if optimizer.keep else ())

  def init(key, fleet, full):
    state = made.init(key, fleet, full)
    clients = tuple(
      half._replace(memory=trees.repeat(state.server, len(cohort.places)))
      for half, cohort in zip(state.clients, fleet.cohorts, strict=True)
    )
    return state._replace(clients=clients, server=nothing)

  def begin(client, server, samples, round, key):
    own = client.memory
    client, _, down = made.begin(client, server, samples, round, key)
    return client, optimizers.wake(own, optimizer, round), down

  def finish(client, server, samples, key):
    client, own, up = made.finish(client, server, samples, key)
    kept = own.opt.slots if optimizer.keep else ()
    own = own._replace(opt=kept)
    return client._replace(memory=own), nothing, up

  def part_two(client, server):
    del server
    return client.memory

  def predict(client, server, image):
    return made.predict(client, part_two(client, server), image)

  return made._replace(
    init=init,
    begin=begin,
    finish=finish,
    predict=predict,
    part_two=part_two,
    alike=False,
    pick=pick,
  )
