"""MultiHead: part-1 is averaged; every task has a part-2 of its own."""

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.methods import aggregations, base
from splitjax.methods.optimizers import Optimizer
from splitjax.methods.split_pass import split_step
from splitjax.methods.splitfed import Mean
from splitjax.models.backbones import Backbone, depth_of
from splitjax.models.inference import client_logits, server_logits
from splitjax.types import Aggregation, Half, Method, Stage, Sums, Traits

UNSURE = -1e9
"""The logits of a part-2 that was never trained: less sure than any other."""


def multi_head(
  backbone: Backbone,
  optimizer: Optimizer,
  *,
  mean: Mean = "uniform",
) -> Method:
  """MultiHead: SplitFed v1 with part-2 averaged within each task only.

  The part-2 of task l, theta_l, becomes the mean of the copies of those
  participants whose task is l; part-1 is averaged over all participants. A
  client's task is a label. It is the label of the client's group if the
  partition has groups, else the client's most frequent label. The server holds
  one part-2 per label. A sample is answered by the most confident part-2 that
  was trained at least once. In Hydra's appendix B clients train whole networks;
  here the server trains their copies of part-2. The updates are the same, but
  the messages differ.

  Args:
    backbone: the network.
    optimizer: optimiser of both halves.
    mean: the weight of a participant in both averages.

  References:
    Chen et al., 2023, as Hydra's appendix B describes it: "the head x of client
    c is aggregated with the corresponding head from the other clients".

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = multi_head(net, sgd)
    >>> method.traits.pick
    True
  """
  aggregation = by_task(
    base.mean(backbone, uniform=mean == "uniform"),
    backbone.classes,
  )
  start = base.initializer(backbone, exits=False, whole=False)
  answer = base.predictor(backbone)

  def init(key, fleet, full):
    state = start(key, fleet, full)
    clients = tuple(
      half._replace(memory=jnp.zeros(len(cohort.places), jnp.int32))
      for half, cohort in zip(state.clients, fleet.cohorts, strict=True)
    )
    server = trees.repeat(state.server, backbone.classes)
    trained = jnp.zeros(backbone.classes, bool)
    return state._replace(
      clients=clients, server=server._replace(memory=trained)
    )

  def arrive(client, server, samples, round, key):
    shard = samples.shard
    grouped = not isinstance(shard.group, tuple)
    task = shard.group if grouped else shard.counts.argmax()
    client = client._replace(memory=task.astype(jnp.int32))
    return client, part_two(client, server), {}

  def predict(client, server, image):
    return answer(client, part_two(client, server), image)

  def paths(clients, server, image):
    body = trees.take(clients.segment, 0)  # all clients of a cohort have it
    z, _ = client_logits(backbone, body, image)

    def head(own):
      logits = server_logits(backbone, own.segment, z, depth_of(backbone, body))
      return jnp.where(own.memory, logits.astype(float), UNSURE)

    return jax.lax.map(head, server)

  step = split_step(backbone, optimizer)
  made = base.method(
    backbone,
    optimizer,
    (Stage(step),),
    aggregation,
    traits=Traits(("server",), pick=True),
    begin=base.download(backbone, optimizer, aggregation, before=arrive),
  )
  return made._replace(
    init=init,
    predict=predict,
    part_two=part_two,
    paths=None if backbone.local_norm else paths,
  )


def part_two(client: Half, server: Half) -> Half:
  """Selects the part-2 of the client's task."""
  return trees.take(server._replace(memory=()), client.memory)


def by_task(shared: Aggregation, tasks: int) -> Aggregation:
  """Changes the aggregation `shared` to average part-2 within each task.

  A client's memory is its task, [] int32; the server's is [tasks] bool, whether
  the task's part-2 was ever trained.
  """

  def contribute(client, server, weight):
    sums = shared.contribute(client, server, weight)
    own = jnp.arange(tasks) == client.memory

    def spread(x):  # [...] -> [tasks, ...], 0 for all other tasks
      return jnp.where(own.reshape(-1, *(1,) * x.ndim), x, jnp.zeros_like(x))

    of_server = sums.server, sums.server_weight, sums.stats_weight
    return Sums(
      sums.client, sums.client_weight, *jax.tree.map(spread, of_server)
    )

  def server_means(server, clients, active, sums):
    del clients, active

    def one(server, *of_server):
      mine = Sums({}, {}, *of_server)
      return aggregations.mean_server(server, mine)

    of_server = sums.server, sums.server_weight, sums.stats_weight
    trained = server.memory | (sums.server_weight["head"] > 0)
    server = jax.vmap(one)(server._replace(memory=()), *of_server)
    return server._replace(memory=trained)

  return shared._replace(
    contribute=contribute, server=server_means, alike=False
  )
