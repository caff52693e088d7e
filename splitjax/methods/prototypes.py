"""Features of the head's input: FedProto, FedGH, MOON.

FedProto: Federated Prototype Learning (Tan et al., AAAI 2022). FedGH:
Generalized Global Header (Yi et al., ACM MM 2023). Prototypes are class means
of a client's features z [B, D]. Networks run in inference mode.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from splitjax import losses, trees, wire
from splitjax.data.feed import Samples
from splitjax.fields import NotNegative, Positive
from splitjax.losses import masked_mean
from splitjax.methods import nets
from splitjax.methods.fedavg import WholeNetwork
from splitjax.methods.method import is_body, is_head, share
from splitjax.models import network, sizes
from splitjax.models.network import Backbone
from splitjax.parameters import pytree
from splitjax.types import Batch, Client, Logits, Net, Passes

FAR = 1e6
"""The squared distance of a class that has no prototype."""


class ClassStats(NamedTuple):
  """Statistics of a client's features; 0 for a class without samples."""

  mean: Array  #: [C, D], the prototypes
  square: Array  #: [C], E |z|^2
  samples: Array  #: [C] float, their number


class Prototypes(NamedTuple):
  """Prototypes of classes, and whether a class has one."""

  mean: Array  #: [C, D]
  present: Array  #: [C] bool


def none(backbone: Backbone) -> Prototypes:
  """Makes a table without prototypes."""
  c = backbone.classes
  mean = jnp.zeros((c, width(backbone)))
  return Prototypes(mean=mean, present=jnp.zeros(c, bool))


def width(backbone: Backbone) -> int:
  """Returns D, the length of the head's input."""
  return math.prod(sizes.outputs(backbone)[backbone.names()[-1]])


def features(backbone: Backbone, net: Net, batch: Batch) -> Array:
  """Computes the head's input [B, D] for a batch."""
  names = backbone.names()
  z, _ = network.run(backbone, net, batch.image, names, train=False)
  return z.reshape(len(z), -1).astype(float)


def logits(backbone: Backbone, net: Net, z: Array) -> Array:
  """Computes the head's logits [B, C] for features [B, D]."""
  return network.run(backbone, net, z, ("head",), train=False)[0]


def class_stats(backbone: Backbone, net: Net, samples: Samples) -> ClassStats:
  """Averages features and their squares by class, in a pass (FedPAC eq. 4)."""

  def add(total, inputs):
    batch = samples.batch(*inputs)
    z = features(backbone, net, batch)
    hot = jax.nn.one_hot(batch.label, backbone.classes) * batch.real[:, None]
    part = hot.T @ z, hot.T @ jnp.square(z).sum(axis=1), hot.sum(axis=0)
    return trees.add(total, part), None

  c = backbone.classes
  zeros = jnp.zeros((c, width(backbone))), jnp.zeros(c), jnp.zeros(c)
  total, square, count = jax.lax.scan(add, zeros, samples.in_order())[0]
  some = jnp.maximum(count, 1)
  mean = total / some[:, None]
  return ClassStats(mean=mean, square=square / some, samples=count)


def distance_to(
  anchor: Array, present: Array, z: Array, batch: Batch, *, per_feature: bool
) -> Array:
  """Computes the mean over a batch of 1[y present] |z - p_y|^2, [] float.

  p, the `anchor`, is [C, D], z [B, ...]. `per_feature` divides by D.
  """
  z = z.reshape(len(z), -1).astype(float)
  square = jnp.square(z - anchor[batch.label]).sum(axis=1)
  square = jnp.where(present[batch.label], square, 0.0)
  return masked_mean(square / (z.shape[1] if per_feature else 1), batch.real)


@pytree
class Aligned(WholeNetwork):
  """Clients descend CE + lam 1/D |f(x) - c_y|^2, and send class means.

  c_j, in the server's memory, is the mean of the participants' mean features of
  class j (FedProto eq. 6), weighted by their samples of the class, as in the
  papers, or with mean="uniform" by 1, as in FedProto's code. A class without a
  c_j adds nothing to the loss. The distance is divided by D, as in that code.
  """

  lam: NotNegative = 1.0  #: lambda; 1 in the authors' code

  def first_server(self, full, part, size):
    memory = none(self.backbone)
    return super().first_server(full, part, size)._replace(memory=memory)

  def receive(self, client, server, samples, round, key):
    mean, present = server.memory
    wire.record("down/prototypes", 4 * (1 + mean.shape[1]) * present.sum())
    half, copy, _ = super().receive(client, server, samples, round, key)
    return half, copy, server.memory

  def loss(self, params, half, context, batch):
    net = half.net._replace(params=params)
    z, stats = self.features(net, batch)
    losses = {"client": self.exit_loss(net, z, batch)}
    if context is not None:  # FedPAC's head has none
      c, present = context
      distance = distance_to(c, present, z, batch, per_feature=True)
      losses["align"] = self.lam * distance
    return sum(losses.values()), (losses, stats)

  def send(self, half, copy, context, samples, weight, key):
    mean, _, count = class_stats(self.backbone, half.net, samples)
    present = count > 0
    wire.record("up/prototypes", 4 * (2 + mean.shape[1]) * present.sum())
    if self.mean == "uniform":
      count = present.astype(float)
    sent = jax.vmap(share)(mean, jnp.where(weight > 0, count, 0.0))
    client, shares = super().send(half, copy, context, samples, weight, key)
    return client, shares | {"prototypes": sent}

  def merge(self, server, shares, clients, counted):
    sent = shares["prototypes"]
    present = server.memory.present | (sent.weight > 0)
    memory = Prototypes(sent.mean(server.memory.mean), present)
    return server._replace(memory=memory), clients


@pytree
class FedProto(Aligned):
  """Clients keep their networks and share prototypes (Algorithm 1).

  Eq. 6 also divides by |N_j|, the number of clients with the class, but then
  c_j is no mean; the authors' code does not. The authors collect features
  during a client's last epoch, this code in a pass after it.
  """

  def keeps(self, path):
    return True

  def part_two(self, client, server):
    # As a block: the prototypes answer in the place of a server.
    return Net(params={"prototypes": server.memory}, stats={})

  def predict(self, client_net, server_net, image):
    """The logits are -1/D |f(x) - c_j|^2.

    The authors' code chooses among the c_j of the client's classes; this one
    among all, since test samples may be of other classes.
    """
    z, _ = network.client_logits(self.backbone, client_net, image)
    mean, present = server_net.params["prototypes"]
    z = z.reshape(z.shape[0], -1).astype(float)
    square = jax.lax.map(lambda c: jnp.square(z - c).mean(axis=1), mean)
    scores = -jnp.where(present, square.T, FAR)
    return Logits(client=scores, server=scores)


@pytree
class FedGH(WholeNetwork):
  """The server's head takes a step for every class mean (Algorithm 1).

  Every client starts with the global head, trains its whole network and sends
  p_il, the mean feature of each class l that it holds. The server takes an SGD
  step on CE(h(p_il), l) for each client i and class l, in their order.
  """

  #: eta, learning rate of the server's head. The default is ours.
  server_lr: NotNegative = 0.01

  def keeps(self, path):
    return is_body(path)

  def sends(self, path):
    return is_head(path)

  def first_client(self, net, size):
    memory = none(self.backbone)
    return super().first_client(net, size)._replace(memory=memory)

  def send(self, half, copy, context, samples, weight, key):
    mean, _, count = class_stats(self.backbone, half.net, samples)
    present = count > 0
    wire.record("up/prototypes", 4 * (1 + mean.shape[1]) * present.sum())
    # The head comes down, and does not go up.
    net = nets.select(half.net, self.keeps)
    return Client(net=net, memory=Prototypes(mean=mean, present=present)), {}

  def merge(self, server, shares, clients, counted):
    """Takes a step for each mean [N, C, D] of a client that `counted`."""
    (cohort,) = clients
    (on,) = counted
    mean, present = cohort.memory
    common = server.common

    def loss(head, z, label):
      net = common._replace(params={"head": head})
      answer = logits(self.backbone, net, z[None])
      return self.backbone.mean_loss(answer, label[None], jnp.ones(1, bool))

    def step(head, inputs):
      z, label, counts = inputs
      grads = jax.grad(loss)(head, z, label)
      lr = jnp.where(counts, self.server_lr, 0.0)
      return jax.tree.map(lambda w, g: w - lr * g, head, grads), None

    labels = jnp.broadcast_to(jnp.arange(present.shape[1]), present.shape)
    pairs = mean, labels, on[:, None] & present
    inputs = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), pairs)
    head, _ = jax.lax.scan(step, common.params["head"], inputs)
    params = common.params | {"head": head}
    return server._replace(common=common._replace(params=params)), clients


@pytree
class MOON(WholeNetwork):
  """Local SGD on CE + mu l_con, then FedAvg's mean.

  l_con = -log e^{s(z, z_glob) / tau} / (e^{s(z, z_glob) / tau} + e^{s(z,
  z_prev) / tau}), where s is the cosine and z are the features of the local
  network. z_glob are those of the network that the client received, z_prev
  those of its own after its last round, at first of the initial network; both
  run in inference mode. Features are the input of the head; the paper adds a
  projection of two layers. mu = 1 and tau = 0.5 are the defaults of the
  authors' code. Reference: Li, He and Song, CVPR 2021, Algorithm 1.
  """

  mu: NotNegative = 1.0
  temperature: Positive = 0.5  #: tau

  @property
  def passes(self):
    return Passes(client=5.0)

  def first_client(self, net, size):
    return super().first_client(net, size)._replace(memory=net)

  def receive(self, client, server, samples, round, key):
    half, copy, _ = super().receive(client, server, samples, round, key)
    return half, copy, (half.net, client.memory)

  def loss(self, params, half, context, batch):
    net = half.net._replace(params=params)
    z, stats = self.features(net, batch)
    loss = self.exit_loss(net, z, batch)
    align = self.align(z, context, batch)
    return loss + align, ({"client": loss, "align": align}, stats)

  def align(self, z, context, batch):
    """Computes mu l_con of features z [B, ...]."""
    z = losses.unit(z.reshape(len(z), -1).astype(float))

    def cosine(net):
      anchor = features(self.backbone, net, batch)
      return (z * losses.unit(anchor)).sum(axis=1) / self.temperature

    received, previous = map(cosine, context)
    nats = jax.nn.softplus(previous - received)
    return self.mu * losses.masked_mean(nats, batch.real)

  def send(self, half, copy, context, samples, weight, key):
    half = half._replace(memory=half.net)
    return super().send(half, copy, context, samples, weight, key)
