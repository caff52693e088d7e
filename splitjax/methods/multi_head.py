"""MultiHead: part-1 is averaged; every task has a part-2 of its own."""

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.methods import aggregation
from splitjax.methods.optimizer import Optimizer
from splitjax.methods.splitfed import Mean, splitfed_v1
from splitjax.models.backbone import Backbone, depth_of
from splitjax.models.inference import client_logits, server_logits
from splitjax.types import Half, Method, Pick, Segment, Sums
from splitjax.wire import WireDtype

UNSURE = -1e9
"""The logits of a part-2 that was never trained: less sure than any other."""


def multi_head(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  pick: Pick = "softmax",
  wire_dtype: WireDtype = "float32",
  mean: Mean = "uniform",
) -> Method:
  """MultiHead: SplitFed v1 whose part-2 is averaged within a task alone.

  theta_l <- mean over the participants of task l of their copies; part-1 is
  averaged over all. A task is a label: that of the client's group in the
  partition, or else the label of which it has most samples. The server holds
  one part-2 a label. The most confident of those that were ever trained answers
  a sample.

  Args:
    backbone: the network.
    optimizer: of both halves.
    pick: the measure of confidence, as in `splitfed_v3`.
    wire_dtype: width of the features on the wire.
    mean: the weight of a participant in both averages.

  References:
    Chen et al., 2023, as Hydra's appendix B describes it: "the head x of client
    c is aggregated with the corresponding head from the other clients".
  """
  shared = splitfed_v1(backbone, optimizer, wire_dtype=wire_dtype, mean=mean)
  tasks = backbone.classes
  no_server = Half(Segment({}, {}), {} if optimizer.keep else ())

  def init(key, fleet, full):
    state = shared.init(key, fleet, full)
    clients = tuple(
      half._replace(memory=jnp.zeros(len(cohort.places), jnp.int32))
      for half, cohort in zip(state.clients, fleet.cohorts, strict=True)
    )
    server = trees.repeat(state.server, tasks)
    trained = jnp.zeros(tasks, bool)
    return state._replace(
      clients=clients, server=server._replace(memory=trained)
    )

  def part_two(client, server):
    return trees.take(server._replace(memory=()), client.memory)

  def begin(client, server, samples, round, key):
    shard = samples.shard
    grouped = not isinstance(shard.group, tuple)
    task = shard.group if grouped else shard.counts.argmax()
    client = client._replace(memory=task.astype(jnp.int32))
    own = part_two(client, server)
    return shared.begin(client, own, samples, round, key)

  def contribute(client, server, weight):
    of_clients, weights, *of_server = shared.contribute(client, server, weight)
    own = jnp.arange(tasks) == client.memory

    def spread(x):  # [...] -> [tasks, ...], 0 for all other tasks
      return jnp.where(own.reshape(-1, *(1,) * x.ndim), x, jnp.zeros_like(x))

    return Sums(of_clients, weights, *jax.tree.map(spread, of_server))

  def merge(state, clients, active, sums):
    of_clients, weights, *of_server = sums
    _, server_weight, _ = of_server

    def one(server, *of_server):
      mine = Sums({}, {}, *of_server)
      return aggregation.mean_server(server, mine, optimizer.keep)

    trained = state.server.memory | (server_weight["head"] > 0)
    server = jax.vmap(one)(state.server._replace(memory=()), *of_server)
    bodies = Sums(of_clients, weights, {}, {}, {})
    state = state._replace(server=no_server)
    state = shared.merge(state, clients, active, bodies)
    return state._replace(server=server._replace(memory=trained))

  def predict(client, server, image):
    return shared.predict(client, part_two(client, server), image)

  def paths(clients, server, image):
    body = trees.take(clients.segment, 0)  # all clients of a cohort have it
    z, _ = client_logits(backbone, body, image)

    def head(own):
      logits = server_logits(backbone, own.segment, z, depth_of(backbone, body))
      return jnp.where(own.memory, logits.astype(float), UNSURE)

    return jax.lax.map(head, server)

  return shared._replace(
    init=init,
    begin=begin,
    contribute=contribute,
    merge=merge,
    predict=predict,
    part_two=part_two,
    alike=False,
    pick=pick,
    paths=paths if shared.alike else None,
  )
