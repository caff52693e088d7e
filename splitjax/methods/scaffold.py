"""SCAFFOLD: control variates correct the drift of local steps.

Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning, ICML 2020, Algorithm 1.
"""

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.methods import aggregations, base, optimizers
from splitjax.methods.optimizers import Optimizer
from splitjax.methods.split_pass import front
from splitjax.methods.splitfed import Mean
from splitjax.models.backbones import Backbone
from splitjax.models.block import norm_free, own_norm
from splitjax.types import Method, Segment, Stage


def scaffold(
  backbone: Backbone, optimizer: Optimizer, *, mean: Mean = "size"
) -> Method:
  """SCAFFOLD: FedAvg with y_i <- y_i - eta_l (g_i(y_i) + c - c_i) (eq. 3).

  Then c_i+ = c_i - c + (x - y_i) / (K eta_l) (eq. 4, option II), x <- the mean
  of the y_i, and c <- c + |S|/N times the mean of c_i+ - c_i (eq. 5). Under
  plain SGD c_i+ is the mean of the K gradients g_i(y_i). It is computed as this
  mean, because with momentum, weight decay or a clip, which the paper does not
  use, (x - y_i) / (K eta_l) would not be a gradient. c and c_i begin at 0, so
  the first round is FedAvg's.

  The network and a control variate travel in each direction. The control
  variate has as many numbers as the network, in float32. With batch_norm=local,
  normalisation has no control variate.

  Args:
    backbone: the network.
    optimizer: the client's optimiser. The paper's eta_g is mean_optimizer.lr
      with mean_optimizer.name=fedavgm and beta1=0. Without a mean optimiser
      eta_g is 1, as in the paper's experiments.
    mean: the weight of a participant in both means. "size": the number of its
      samples, as in FedAvg; "uniform": 1, as in the paper. With "size", c
      follows the mean of the c_i weighted by samples, and equals this mean if
      all clients take part.

  Example:
    >>> import splitjax
    >>> net = splitjax.BACKBONES["toy"]((8, 8, 1), classes=10)
    >>> sgd = splitjax.methods.make_optimizer("sgd", lr=0.05)
    >>> method = scaffold(net, sgd, mean="uniform")
    >>> method.traits.depth
    'full'
  """
  shared = base.mean(backbone, uniform=mean == "uniform")

  def price(name, control):
    sent = Segment(control, {})
    sent = norm_free(sent) if backbone.local_norm else sent
    return wire.parameters(name, sent)

  def arrive(client, server, samples, round, key):
    own, (common, _) = client.memory, server.memory
    correction = jax.tree.map(jnp.subtract, common, own)
    # c_i, c - c_i, and the sum of gradients over K steps so far; after the
    # round c_i alone.
    start = own, correction, trees.zeros(own), jnp.zeros(())
    sent = price("down/control_variate", common)
    return client._replace(memory=start), server, sent

  def step(client, server, batches, key):
    del key
    near = front(backbone, client.segment, batches[0])
    grads = near.pull(jnp.zeros_like(near.features), jnp.ones(()))
    own, correction, total, steps = client.memory
    memory = own, correction, trees.add(total, grads), steps + 1
    grads = trees.add(grads, correction)
    client = optimizers.descend(client, grads, near.stats, optimizer)
    return client._replace(memory=memory), server, {"client": near.loss}, {}

  def leave(client, server, samples, key):
    own, _, total, steps = client.memory
    new = aggregations.mean(total, steps, own)
    kept = own_norm(backbone.local_norm, Segment(new, {}), Segment(own, {}))
    change = jax.tree.map(jnp.subtract, kept.params, own)
    client = client._replace(memory=kept.params)
    # `contribute` reads the change from the client's copy of the server.
    server = server._replace(memory=(change, server.memory[1]))
    return client, server, price("up/control_variate", change)

  def contribute(client, server, weight):
    sums = shared.contribute(client, server, weight)
    on = (weight > 0).astype(float)
    weight = on if mean == "uniform" else weight
    change = aggregations.weighted(weight, server.memory[0])
    return sums._replace(extra={"change": (change, weight, on)})

  def server(server, clients, active, sums):
    del clients, active
    control, every = server.memory
    change, weight, some = sums.extra["change"]
    # Where nobody takes part, some / every is 0.
    change = aggregations.mean(change, weight, control)
    control = trees.add(control, trees.scale(some / every, change))
    return server._replace(memory=(control, every))

  def zero(full):
    return trees.zeros(base.whole_network(backbone, full).params)

  def at_server(full, fleet):  # c and N
    return zero(full), jnp.asarray(fleet.num_clients, float)

  return base.method(
    backbone,
    optimizer,
    (Stage(step),),
    shared._replace(contribute=contribute, server=server),
    traits=base.FULL,
    begin=base.download(backbone, optimizer, shared, before=arrive),
    finish=base.upload(backbone, shared, before=leave),
    client_memory=lambda full, fleet: zero(full),
    server_memory=at_server,
  )
