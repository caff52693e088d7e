"""The types that several packages share; every array field gives its shape.

Axis letters, where a docstring gives them no other meaning:

  N clients of a cohort (or of the fleet)   T local steps of a round
  B samples of a batch                      V batches of a step (1, HARMONY: 2)
  C classes                                 D features
  L blocks of a backbone                    K cut depth
  M test samples                            Z training samples
  S samples of the largest client           E entropy thresholds
  R out-of-distribution ratios
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
  from jax import Array


Tree = Any
"""A pytree of arrays."""

# What a network and a client's data are.


class Net(NamedTuple):
  """Consecutive blocks of a network: what one side of the cut holds.

  The names of the blocks give the segment's depth; jax treats them as static.
  Exits and the head are blocks too ("exit3", "head").
  """

  params: dict[str, Tree]  #: block name -> its parameters
  stats: dict[str, Tree]  #: block name -> its running statistics; {}: none


NO_BLOCKS = Net({}, {})
"""A network without blocks."""


class Shard(NamedTuple):
  """One client's data on the device.

  In a cohort's Shard all fields but image and label are stacked, [N, ...].
  """

  image: Array  #: [Z, ...], all training inputs (images, series, token ids)
  label: Array  #: [Z] int32, theirs; of both there is one copy for all clients
  rows: Array  #: [S] int32, its rows of the data set, padded with -1
  size: Array  #: [] int32, the number of rows that are not padding
  counts: Array  #: [C] int32, its samples of each class
  #: [] int32, its number in the fleet, from which its random keys are derived;
  #: as data, so that one program serves any clients of a cohort
  number: Array
  #: [R, T] int32, the position of each local step of a round in the queue of a
  #: server that serves clients in turns, orders.NO_TURN for a step not taken
  service_order: Tree = ()
  group: Tree = ()  #: [] int32, of `Method.group`, else of the partition
  validation: Tree = ()  #: [H] int32, rows held back (Method.validates), or -1


class Batch(NamedTuple):
  """One batch of one client."""

  image: Array  #: [B, ...] float, the standardised inputs; token ids int32
  label: Array  #: [B] int32
  real: Array  #: [B] bool, False on padding; means are over the others
  #: [] PRNG key of random layers and of messages about the batch; () for a
  #: batch without random draws
  key: Tree = ()


class Logits(NamedTuple):
  """Logits [B, C] of a client's exit and of the server.

  Where only one of them answers, both have its logits.
  """

  client: Array
  server: Array


# The two sides, between rounds and during one.


class Client(NamedTuple):
  """What a client keeps between rounds."""

  net: Net  #: its blocks; a leaf that it does not keep is None
  memory: Tree = ()  #: the method's own state, here and in Server and Half


class Server(NamedTuple):
  """What the server keeps between rounds."""

  net: Net  #: theta, its part of the cut network
  common: Net  #: the mean of what clients sent, by block, over all depths
  memory: Tree = ()


class Half(NamedTuple):
  """One side of the cut during a round: a client's half, the server's copy."""

  net: Net  #: its blocks, complete
  slots: dict[str, Tree]  #: block name -> optax state, its slots
  #: by block, whether a step moved its parameters and wrote its statistics;
  #: only for a server, whose copies are averaged by it
  touched: Net = NO_BLOCKS
  memory: Tree = ()


# What a method declares.


class Passes(NamedTuple):
  """Cost of a local step per sample, in forward passes of each side.

  A backward pass counts as two. Where clients hold the whole network, `server`
  and `trips` are ignored.
  """

  client: float = 3.0
  server: float = 3.0
  trips: int = 1  #: messages after which the client waits for an answer
  alone: float = 3.0  #: of the client in a step without the server


class Stage(NamedTuple):
  """A part of a client's round: local steps, or one other computation."""

  step: Callable  #: as `Method.step`
  epochs: int | None = None  #: local epochs; None: the config's number
  alone: Callable | None = None  #: as `Method.alone`, while the server is down
  once: bool = False  #: `step` is called once, with Samples for the batches
  passes: Passes = Passes()  #: of a step; if `once`, per sample of the client


class Row(NamedTuple):
  """One row of a result table; a trained method may give several."""

  suffix: str  #: appended to the method's label, "" or "+FT"
  personal: bool  #: whether clients personalise a copy before evaluation
  #: whether the server answers raw samples (SplitGP eq. 29), for methods whose
  #: clients hold the whole network
  at_server: bool = False
  #: whether it is of fine-tuned copies; with eval.personal=last those are made
  #: after the last round only
  tuned: bool = False


# What a round hands on.


class State(NamedTuple):
  """All that a round hands to the next; a checkpoint holds all of it."""

  round: Array  #: [] int32, number of finished rounds
  key: Array  #: [] PRNG key of the run; each round folds its number in
  clients: tuple[Client, ...]  #: of each cohort, [N, ...], with its padding
  server: Server  #: unstacked
  outer: Tree = ()  #: state of `Method.outer`; () without one


class Metrics(NamedTuple):
  """Metrics of a round; arrays [N] are by client number, over all cohorts."""

  #: name -> [] nats, the unweighted mean over the participants that count of
  #: each one's mean over its local steps; NaN without such participants
  losses: dict[str, Array]
  wire: dict[str, Array]  #: message name -> [] bytes, over all participants
  participants: Array  #: [] int32
  masked: Array  #: [N] bool, participants whose update was not finite
  undone: Array  #: [] bool, a step of the server was not finite, and is undone
  bytes: Array  #: [N] sent and received by each participant
  steps: Array  #: [N] local steps of each participant
  alone: Array  #: [N] of these, steps without the server
  #: "dropped", "stragglers", "alone" -> [] int32, clients that a fault left
  #: out, that took fewer steps than planned, or one without the server
  faults: Tree = ()


# What goes wrong.


class UserError(ValueError):
  """An error that the user can fix; its text names field, value and remedy.

  Example:
    >>> import splitjax
    >>> c = splitjax.default()
    >>> c.rounds = 0
    Traceback (most recent call last):
    splitjax.types.UserError: rounds=0 must be at least 1
  """


class Number(NamedTuple):
  """A measured number: a line of `numbers.csv`, see `reports.numbers`."""

  metric: str  #: what was measured, a key of `reports.quantities.QUANTITIES`
  value: float | None  #: the number; None and NaN: there is none
  row: str = ""  #: label of the result row
  part: str = ""  #: the member of a family, such as the name of a message
  set: str = ""  #: name of the test set
  round: int | None = None  #: after which it was measured; None: the last
  client: str = ""  #: name of the client
  label: str = ""  #: name of the class, which is the column "class"
  threshold: float | None = None  #: one threshold for all clients, nats
