"""What a method is: one client and the server, without a client axis.

A method overrides what differs from federated averaging. Its hyper-parameters
are fields: floats are data of the compiled round, all else is static.
"""

import dataclasses
from typing import Any, ClassVar, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from splitjax import wire
from splitjax.data.feed import Samples
from splitjax.methods import nets
from splitjax.methods.optimizer import Optimizer, Outer
from splitjax.models import network
from splitjax.models.network import Backbone, is_norm
from splitjax.parameters import pytree
from splitjax.types import (
  NO_BLOCKS,
  Batch,
  Client,
  Half,
  Logits,
  Net,
  Passes,
  Row,
  Server,
  Stage,
  Tree,
  UserError,
)
from splitjax.wire import Form, Wire

Batches = tuple[Batch, ...]
"""The V batches of a step."""

Losses = dict[str, Array]
"""Name of a loss -> [] nats, to be reported."""

Blocks = dict[str, Tree]
"""Name of a block -> its parameters, gradients or statistics."""

Shares = dict[str, Tree]
"""Name -> a client's share of a sum over clients, or that sum.

Under "common" and "net" are Nets of a `Share` for each block: their means are
the next Server.common and Server.net."""


class Share(NamedTuple):
  """A client's share of a mean over clients, or the sum of such shares.

  The mean of a block is sum_n w_n x_n / sum_n w_n over the clients n that send
  it: `share` makes w_n x_n and w_n, `add_up` sums them over clients side by
  side, the round over chunks, cohorts and devices, and `mean` divides. w_n is
  `Method.weight`, or 0 for a client that sits out or is masked. Where one share
  is of L means, a weight is [L], and totals are [L, ...].
  """

  total: Tree  #: w_n times the client's leaves x_n
  weight: Array  #: [] float, w_n; 0 for a client that does not count

  def mean(self, old: Tree) -> Tree:
    """Returns total / weight, or `old` if no client has a share."""
    if self.weight.ndim:
      return jax.vmap(Share.mean)(self, old)
    some = self.weight > 0
    weight = jnp.where(some, self.weight, 1.0)
    return jax.tree.map(
      lambda total, leaf: jnp.where(some, total / weight, leaf), self.total, old
    )


def share(tree: Tree, weight: Array) -> Share:
  """Makes a share; a weight of 0 turns even NaN into 0."""
  total = jax.tree.map(lambda x: jnp.where(weight > 0, weight * x, 0.0), tree)
  return Share(total=total, weight=weight)


def shares_of(net: Net, weight: Array | Net) -> Net:
  """Makes a share of each block; `weight` is the client's, or one a block."""
  if isinstance(weight, Net):
    return nets.map_blocks(share, net, weight)
  return nets.map_blocks(lambda tree: share(tree, weight), net)


def add_up(shares: Tree) -> Tree:
  """Sums the shares of clients [n, ...], and what else they report."""
  return jax.tree.map(lambda x: x.sum(axis=0), shares)


def means_of(shares: Net, old: Net) -> Net:
  """Divides the sums of each block; one of which nobody has a share stays."""
  return nets.map_blocks(
    lambda tree, of_block: tree if of_block is None else of_block.mean(tree),
    old,
    shares,
  )


@pytree
class Method:
  """A federated method.

  The round calls, in this order: `at`; for each client `receive`, the steps of
  `stages`, `weight`, `send` and `copies`; and, after the sums over clients,
  `merge`. With one server `copies` is called once, for that server, and `lend`
  and `take_back` are around each client's turn. `predict` answers.
  """

  backbone: Backbone
  optimizer: Optimizer  #: of both sides
  channels: Wire = Wire()  #: the config's forms of features and gradients
  outer: Outer | None = None  #: of a round's means; None: taken as they are
  #: whether clients keep their batch normalisation, parameters and running
  #: statistics (FedBN); servers always average theirs
  local_norm: bool = False
  #: weight of a client in means: "size", its number of samples; "uniform", 1
  mean: Literal["size", "uniform"] = "size"
  form: Form = "float32"  #: of features, if the config's channel names none

  topology: ClassVar[str] = "parallel"  #: key of TOPOLOGIES
  exits: ClassVar[bool] = True  #: whether a client has a classifier
  uncut: ClassVar[bool] = False  #: whether clients hold the whole network
  pick: ClassVar[bool] = False  #: whether the most confident path answers

  def __post_init__(self) -> None:
    """Raises a UserError if values do not go together; subclasses add to it."""

  @property
  def answers(self) -> tuple[str, ...]:
    """The sides that predict: both, ("client",) or ("server",)."""
    return ("client", "server")

  @property
  def views(self) -> int:
    """V, the number of independent batches of a step."""
    return 1

  @property
  def passes(self) -> Passes:
    """The cost of a local step."""
    return Passes()

  @property
  def rows(self) -> tuple[Row, ...]:
    """The rows of results."""
    return (Row("", personal=False),)

  @property
  def needs_server(self) -> bool:
    """Whether a round needs the server for more than the means."""
    return not self.uncut

  # Which leaves are whose. A path is that of a block's leaf, "head/kernel".

  def keeps(self, path: str) -> bool:
    """Whether a client keeps this leaf between rounds."""
    return self.local_norm and is_norm(path)

  def sends(self, path: str) -> bool:
    """Whether a client sends this leaf, for the mean over clients."""
    return not self.keeps(path)

  # On the host, before the first round.

  def group(self, counts: np.ndarray) -> np.ndarray | None:
    """Shard.group [N] of all clients by their class counts [N, C], or None."""
    return None

  def batch_size(self, clients: int, batch: int) -> int:
    """The batch size, from N and the config's."""
    return batch

  @property
  def validates(self) -> float:
    """The share of its samples that a client holds back."""
    return 0.0

  def cuts(self, fleet: Any) -> np.ndarray | None:
    """The depths [N] whose costs clients have that simulate both sides."""
    return None

  # Before the first round.

  def first_client(self, net: Net, size: int) -> Client:
    """Makes one of `size` clients from its part of the initial network."""
    return Client(net=nets.select(net, self.keeps))

  def first_server(self, full: Net, part: Net, size: int) -> Server:
    """Makes the server; `size` clients hold the `part` of the network."""
    net = NO_BLOCKS
    if not self.uncut:
      net = network.suffix(self.backbone, full, self.backbone.cuts[0])
    return Server(net=net, common=nets.select(part, self.sends))

  # A client's round.

  def at(self, round: Array) -> Self:
    """Returns the method with the hyper-parameters of a round."""
    return dataclasses.replace(self, optimizer=self.optimizer.at(round))

  def model(self, client: Client, server: Server) -> Net:
    """The network that a client starts from, and that answers after a round."""
    return nets.join(client.net, server.common)

  def receive(
    self,
    client: Client,
    server: Server,
    samples: Samples,
    round: Array,
    key: Array,
  ) -> tuple[Half, Half, Tree]:
    """Begins a client's round -> its half, its copy of the server, context.

    The context is any pytree that the steps and `send` read; it is not stored.
    """
    net = self.model(client, server)
    self.exchange("down", net)
    half = self.optimizer.start(net, client.memory)
    at_server = self.optimizer.at_server
    copy = at_server.start(server.net, server.memory, copied=True)
    return half, copy, ()

  def stages(self) -> tuple[Stage, ...]:
    """The parts of a client's round, in order."""
    return (Stage(step=self.step, alone=self.alone, passes=self.passes),)

  def step(
    self, half: Half, copy: Half, context: Tree, batches: Batches, key: Array
  ) -> tuple[Half, Half, Losses]:
    """One local step of a client's half and its copy of the server -> both."""
    raise UserError(f"{type(self).__name__} has no step: override `step`")

  alone: ClassVar[Any] = None
  """A step without the server, (half, context, batches, key) -> half, losses;
  None if the method cannot train while the server is down."""

  def lend(self, server_half: Half, context: Tree) -> Half:
    """The part of the one server with which a client trains in its turn."""
    return server_half

  def take_back(self, server_half: Half, context: Tree, lent: Half) -> Half:
    """Puts the part that a client has trained back into the one server."""
    return lent

  def weight(self, half: Half, samples: Samples) -> Array:
    """The client's weight in all means, [] float."""
    size = samples.shard.size.astype(float)
    return jnp.ones(()) if self.mean == "uniform" else size

  def send(
    self,
    half: Half,
    copy: Half,
    context: Tree,
    samples: Samples,
    weight: Array,
    key: Array,
  ) -> tuple[Client, Shares]:
    """Ends a client's round -> what it keeps, its shares of sums over clients.

    `weight` is the result of `weight`, or 0 if the client must not count: it
    sits out, or has a number that is not finite. The mean of "common" is the
    next `server.common`; the round adds "net", from `copies`.
    """
    self.exchange("up", half.net)
    sent = nets.select(half.net, self.sends)
    client = Client(nets.select(half.net, self.keeps), half.memory)
    return client, {"common": shares_of(sent, weight)}

  def copies(self, copy: Half, context: Tree, weight: Array) -> Net:
    """Shares of a client's copy in the mean that is the next `server.net`.

    A block that no step has moved, since no features passed it, is left out: it
    would hold the mean back (`Optimizer.step` marks moves in `touched`). Where
    one server serves all clients, it is the copy, and `context` is ().
    """
    weights = jax.tree.map(lambda on: weight * on, copy.touched)
    return shares_of(copy.net, weights)

  # The end of a round.

  def merge(
    self,
    server: Server,
    shares: Shares,
    clients: tuple[Client, ...],
    counted: tuple[Array, ...],
  ) -> tuple[Server, tuple[Client, ...]]:
    """Makes the next server, and the clients of all cohorts [N, ...].

    `server` has the new means already. `counted` [N] bool of each cohort tells
    whose shares are in the sums of `shares`.
    """
    return server, clients

  # After a round.

  def personalise(
    self, client: Client, server: Server, samples: Samples, key: Array
  ) -> Net:
    """The network that answers in a row of results that is personal."""
    return self.model(client, server)

  def part_two(self, client: Client, server: Server) -> Net:
    """The server's network that answers for a client."""
    return server.net

  def predict(self, client_net: Net, server_net: Net, image: Array) -> Logits:
    """The logits of a client's exit and of the server, for inputs [B, ...]."""
    z, at_client = network.client_logits(self.backbone, client_net, image)
    depth = self.depth(client_net)
    if depth == self.backbone.length and at_client is not None:
      return Logits(client=at_client, server=at_client)
    # Of what the channel does in training only the clip: no form, no noise.
    z = wire.clipped(self.wire.features, z)
    at_server = network.server_logits(self.backbone, server_net, z, depth)
    at_client = at_server if at_client is None else at_client
    return Logits(client=at_client, server=at_server)

  def paths(self, clients: Client, server: Server, image: Array) -> Array:
    """The logits [P, B, C] of a cohort's paths, for a method with `pick`."""

    def path(client):
      parts = self.model(client, server), self.part_two(client, server)
      return self.predict(*parts, image).server.astype(float)

    return jax.lax.map(path, clients)

  # What methods call.

  def features(self, net: Net, batch: Batch) -> tuple[Array, Blocks]:
    """Computes z = phi(x) -> [B, ...], new running statistics."""
    names = self.backbone.names(0, self.depth(net))
    return network.run_batch(self.backbone, net, batch.image, names, batch)

  def exit_loss(self, net: Net, z: Array, batch: Batch) -> Array:
    """Computes l_C = CE(h(z), y), []; 0 for a client without exit or head."""
    exit = network.classifier(self.backbone, net)
    if exit is None:
      return jnp.zeros(())
    logits, _ = network.run_batch(self.backbone, net, z, (exit,), batch)
    return self.backbone.mean_loss(logits, batch.label, batch.real)

  def local_loss(self, params: Blocks, net: Net, batch: Batch) -> Array:
    """Computes l_C of a batch with these `params`; drops new statistics."""
    net = net._replace(params=params)
    return self.exit_loss(net, self.features(net, batch)[0], batch)

  def sgd_step(self, net: Net, batch: Batch, lr: Array | float) -> Net:
    """Takes a step of plain SGD on l_C; a batch of padding changes nothing."""
    grads = jax.grad(self.local_loss)(net.params, net, batch)
    lr = jnp.where(batch.real.any(), lr, 0.0)
    params = jax.tree.map(lambda p, g: p - lr * g, net.params, grads)
    return net._replace(params=params)

  def depth(self, net: Net) -> int:
    """Reads a client's cut from the names of its blocks."""
    return network.depth_of(self.backbone, net)

  @property
  def wire(self) -> Wire:
    """The channels, in the method's own form where the config names none."""
    features = self.channels.features
    features = dataclasses.replace(features, form=features.form or self.form)
    return dataclasses.replace(self.channels, features=features)

  def cross(self, name: str, rows: Array, batch: Batch) -> Array:
    """Sends a batch of rows across the cut; returns them as they arrive."""
    return wire.send(self.wire, name, rows, batch)

  def exchange(self, direction: Literal["up", "down"], net: Net) -> None:
    """Prices the parameters that a client sends or receives."""
    sent = nets.select(net, self.sends)
    exit = network.classifier(self.backbone, net)
    if exit == "head":  # the whole network
      names = {name for name, x in sent.params.items() if jax.tree.leaves(x)}
      part = "model" if "head" in names else "body"
      kind = "head" if names == {"head"} else part
      wire.send_tree(f"{direction}/{kind}", sent)
      return
    blocks = [name for name in net.params if name != exit]
    wire.send_tree(f"{direction}/prefix", network.select(sent, blocks))
    if exit is not None:
      wire.send_tree(f"{direction}/exit", network.select(sent, (exit,)))


def is_head(path: str) -> bool:
  """Tells whether a block's name or a leaf's path is of the head."""
  return path.split("/")[0] == "head"


def is_body(path: str) -> bool:
  """Tells whether a block's name or a leaf's path is of another block."""
  return not is_head(path)
