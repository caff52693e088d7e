"""How most methods make the state before the first round, and predict."""

from collections.abc import Callable

import jax.numpy as jnp

from splitjax import trees
from splitjax.engine.fleets import Fleet
from splitjax.models import backbones
from splitjax.models.backbones import Backbone
from splitjax.models.inference import client_logits, server_logits
from splitjax.types import Array, Half, Logits, Segment, State, Tree

Memory = Callable[[Segment, Fleet], Tree]
"""Maps the initial network and the fleet to the initial memory of a half."""


def initializer(
  backbone: Backbone,
  *,
  exits: bool = True,
  whole: bool = False,
  client_memory: Memory | None = None,
  server_memory: Memory | None = None,
) -> Callable:
  """Builds a Method's `init`: all clients start from one phi, h and theta.

  Clients have an exit if `exits`. If `whole`, they hold the whole network and
  the server holds nothing. The memory of a half is () if no function for it is
  given.
  """

  def init(key: Array, fleet: Fleet, full: Segment) -> State:
    def half(segment, memory):
      return Half(segment, (), () if memory is None else memory(full, fleet))

    clients = tuple(
      trees.repeat(
        half(
          backbones.prefix(backbone, full, c.depth, with_exit=exits),
          client_memory,
        ),
        len(c.places),
      )
      for c in fleet.cohorts
    )
    server = Segment({}, {})
    if not whole:
      server = backbones.suffix(backbone, full, backbone.cuts[0])
    return State(jnp.int32(0), key, clients, half(server, server_memory))

  return init


def predictor(backbone: Backbone) -> Callable:
  """Builds a Method's `predict`: Logits of client and server for images."""

  def predict(client: Half, server: Half, image: Array) -> Logits:
    z, own = client_logits(backbone, client.segment, image)
    depth = backbones.depth_of(backbone, client.segment)
    if own is not None and depth == backbone.length:
      return Logits(own, own)
    remote = server_logits(backbone, server.segment, z, depth)
    return Logits(remote if own is None else own, remote)

  return predict
