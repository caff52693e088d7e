"""The records of a run: networks, the two sides of a round, means, metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from splitjax.types.arrays import Net, Tree

if TYPE_CHECKING:
  from jax import Array

NO_BLOCKS = Net({}, {})
"""A network without blocks."""


class Client(NamedTuple):
  """What a client keeps between rounds.

  Attributes:
    net: its blocks. A leaf that it does not keep is None; the names of the
      blocks give its depth all the same.
    memory: the method's own state, here and in Server and Half.
  """

  net: Net
  memory: Tree = ()


class Server(NamedTuple):
  """What the server keeps between rounds.

  Attributes:
    net: theta, its part of the cut network.
    common: the mean of what clients sent, by block, over all depths.
  """

  net: Net
  common: Net
  memory: Tree = ()


class Half(NamedTuple):
  """One side of the cut during a round.

  Attributes:
    net: its blocks, complete.
    slots: block name -> optax state.
    touched: by block, whether a step moved its parameters and wrote its
      statistics; only for a server, whose copies are averaged by it.
  """

  net: Net
  slots: dict[str, Tree]
  touched: Net = NO_BLOCKS
  memory: Tree = ()


class Passes(NamedTuple):
  """Cost of a local step per sample, in forward passes of each side.

  A backward pass counts as two. Where clients hold the whole network, `server`
  and `trips` are ignored.
  """

  client: float = 3.0
  server: float = 3.0
  trips: int = 1  # messages after which the client waits for an answer
  alone: float = 3.0  # of the client in a step without the server


class Stage(NamedTuple):
  """A part of a client's round: local steps, or one other computation.

  Attributes:
    step: as `Method.step`.
    epochs: local epochs; None: the config's number.
    alone: as `Method.alone`, for steps while the server is down.
    once: whether `step` is called once, with the client's Samples in the place
      of batches.
    passes: the cost of a step, or, if `once`, per sample that the client holds.
  """

  step: Callable
  epochs: int | None = None
  alone: Callable | None = None
  once: bool = False
  passes: Passes = Passes()


class Row(NamedTuple):
  """One row of a result table; a trained method may give several.

  Attributes:
    suffix: appended to the method's label, "" or "+FT".
    personal: whether clients personalise a copy before evaluation.
    at_server: whether inference runs on the server, which gets raw samples
      (SplitGP eq. 29); for methods whose clients hold the whole network.
    tuned: whether the row has results of fine-tuned copies, as +FT has. With
      eval.personal=last such a row is computed after the last round only.
  """

  suffix: str
  personal: bool
  at_server: bool = False
  tuned: bool = False


class State(NamedTuple):
  """All that a round hands to the next; a checkpoint holds all of it.

  Attributes:
    round: [] int32, number of finished rounds.
    key: [] PRNG key of the run; each round folds its number in.
    clients: for each cohort a Client with leaves [N, ...]. On several devices
      or in chunks N includes padding, also in checkpoints.
    server: unstacked.
    outer: state of `Method.outer`, the optimiser of a round's means; () without
      one.
  """

  round: Array
  key: Array
  clients: tuple[Client, ...]
  server: Server
  outer: Tree = ()


class Metrics(NamedTuple):
  """Metrics of a round; arrays [N] are by client number, over all cohorts.

  Attributes:
    losses: name -> [] nats. Each client's mean over its local steps, averaged
      without weights over the participants that have this loss and count; NaN
      without such participants.
    wire: message name -> [] bytes, over all participants.
    participants: [] int32.
    masked: [N] bool, participants whose update was not finite.
    bytes: [N] sent and received by each participant.
    steps: [N] local steps of each participant.
    alone: [N] of these, steps without the server.
    faults: "dropped", "stragglers", "alone" -> [] int32, clients that a fault
      left out, that took fewer steps, that took a step without the server; ()
      without faults.
  """

  losses: dict[str, Array]
  wire: dict[str, Array]
  participants: Array
  masked: Array
  bytes: Array
  steps: Array
  alone: Array
  faults: Tree = ()
