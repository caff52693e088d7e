"""Every type that more than one room uses, each field with its shape.

Axis letters, the same in every file:

  N clients of a cohort (or of the fleet)   T local steps of a round
  B samples of a batch                      V batches of a step (1, HARMONY: 2)
  C classes                                 D features
  L blocks of a backbone                    K cut depth
  M test samples                            Z training samples
  S samples of the largest client           E entropy thresholds
  R out-of-distribution ratios
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

Array = jax.Array
Tree = Any
"""A pytree of arrays."""

Ledger = dict[str, Array]
"""Message name -> [] float32, bytes, exact to seven digits. The names are the
closed list in wire.py: what a method reveals, as well as what it costs."""


class UserError(ValueError):
  """Something the user can mend: the message names field, value and remedy."""


class Segment(NamedTuple):
  """A run of blocks: what one side of the cut holds.

  A segment knows its own depth: it is written in its keys, which jax keeps
  static. Exits and the head are blocks too ("exit3", "head").

  Attributes:
    params: block name -> parameters of that block.
    stats: block name -> running statistics of that block ({} where none).
  """

  params: dict[str, Tree]
  stats: dict[str, Tree]


class Opt(NamedTuple):
  """The optimiser of one half, block by block, so that a block can rest.

  Attributes:
    rate: [] float32, the schedule's factor on the learning rate this round.
    slots: block name -> optax state of that block.
    touched: block name -> [] bool, whether the block moved in this round.
    wrote: block name -> [] bool, whether its running statistics were written.
  """

  rate: Array
  slots: dict[str, Tree]
  touched: dict[str, Array]
  wrote: dict[str, Array]


class Half(NamedTuple):
  """One side of one client-server pair.

  Attributes:
    segment: its blocks.
    opt: an Opt within a round; between rounds (), or the kept slots.
    memory: whatever the method remembers for this side; () if nothing.
  """

  segment: Segment
  opt: Tree = ()
  memory: Tree = ()


class State(NamedTuple):
  """Everything that passes from round to round, and all a checkpoint holds.

  Attributes:
    round: [] int32, rounds finished.
    key: [] the key of the run; each round folds its number in.
    clients: one Half per cohort, leaves [N, ...]; in a run on several devices
      or in chunks N counts ghosts (fleet.Cohort), as its checkpoints do.
    server: the server's Half, leaves as they are.
  """

  round: Array
  key: Array
  clients: tuple[Half, ...]
  server: Half


class Shard(NamedTuple):
  """One client's data on the device.

  In a cohort all but the data set are stacked.

  Attributes:
    image: [Z, H, W, c] uint8, the whole training split, one copy for all.
    label: [Z] int32, likewise.
    rows: [S] int32, the rows that are this client's, padded with -1.
    size: [] int32, how many of them are real.
    counts: [C] int32, samples of each class.
    number: [] int32, who the client is: what it draws depends on this number
      alone. It is data, so that a program serves whoever sits in a cohort.
    schedule: the faults that are planned for it, a faults.Schedule with leaves
      [R]; () if none are.
    turns: [R, T] int32, where in the line before the server each of its local
      steps of a round stands, orders.NOBODY for one that it does not take; ()
      where clients do not stand in line.
    group: [] int32, into which group the server puts it; () where it makes
      none.
  """

  image: Array
  label: Array
  rows: Array
  size: Array
  counts: Array
  number: Array
  schedule: Tree = ()
  turns: Tree = ()
  group: Tree = ()


class Batch(NamedTuple):
  """One batch of one client, as the network sees it.

  Attributes:
    image: [B, H, W, c] float32, standardised.
    label: [B] int32.
    real: [B] bool, False on padding; every mean is over the real samples.
  """

  image: Array
  label: Array
  real: Array


class Logits(NamedTuple):
  """What a client's exit and the server answer, [B, C] each.

  A method without an exit repeats the server's answer as the client's, one
  with the whole network on the client repeats the client's as the server's.
  """

  client: Array
  server: Array


class Sums(NamedTuple):
  """One client's share of the round's sums; additive over clients.

  Attributes:
    client: block name -> weighted (parameters, statistics).
    client_weight: block name -> [] float32, weight of whoever owns the block.
    server: block name -> weighted (parameters, statistics, kept slots).
    server_weight: block name -> [] float32, weight of whoever touched it.
    stats_weight: block name -> [] float32, weight of whoever wrote its running
      statistics: features that pass a block do not always write them.
  """

  client: dict[str, Tree]
  client_weight: dict[str, Array]
  server: dict[str, Tree]
  server_weight: dict[str, Array]
  stats_weight: dict[str, Array]


Topology = Literal["parallel", "sequential", "relay", "merged"]
"""How the clients of a round meet the server. parallel: each has a copy of it.
sequential: one server, a turn after the other. relay: that, and one client half
which is handed on. merged: one server, a step on the batches of all."""

Pick = Literal["softmax", "logit"]
"""What makes an answer the surest: its softmax's or its logits' maximum."""


class Row(NamedTuple):
  """One row of a result table that a trained method gives.

  Attributes:
    suffix: appended to the method's label, "" or "+FT".
    personal: whether clients personalise a copy before they are evaluated.
    at_server: the whole network lies at the server, which is sent the samples
      themselves (SplitGP eq. 29); of a method whose clients hold it all.
  """

  suffix: str
  personal: bool
  at_server: bool = False


class Method(NamedTuple):
  """A federated method: what one pair does in a round, how pairs become one.

  All but init and merge see ONE client, unbatched, and know of no other.
  `samples` is the client's own data (splitjax.data.feed.Samples).

  Attributes:
    init: (key, fleet, full) -> State. Cuts the fresh network `full` (Segment)
      for every client; key is the run's.
    begin: (client, server, samples, round, key) -> (client, server, Ledger).
      The download: what happens before the first batch.
    step: (client, server, batches, key) -> (client, server, losses, Ledger).
      One local step on V batches; losses are named scalars.
    finish: (client, server, samples, key) -> (client, server, Ledger).
      After the last batch: what is uploaded.
    contribute: (client, server, weight []) -> Sums.
    merge: (state, clients, active, sums) -> State. Sums to means, means to
      the next state; active: per cohort [N] bool, whose work counts.
    personalise: (client, samples, key) -> client. After the last round.
    predict: (client, server, image [B, H, W, c]) -> Logits.
    answers: who can answer at inference: ("client", "server"), ("server",) or
      ("client",).
    whole: the client holds the whole network (there is no cut).
    views: V, the independent batches that one step takes.
    rows: the result rows of one trained run.
    topology: how clients meet the server. In all but "parallel" the `server`
      of begin, step and finish is the one that there is, and what begin and
      finish make of it is the same for every client; "merged": a step takes all
      clients, batches and keys [N, ...] and gives losses and ledger [N].
    group: (counts [N, C]) -> [N] int, on the host before training: the groups
      that the server puts clients in. The server's memory then has leaves
      [groups, ...], of which a step sees that of its client's group. None:
      there are no groups.
    alike: between rounds every client of a cohort holds the same network.
    hand_on: (client) -> Ledger, what it costs to hand the client half of a
      "relay" from one client to the next; None: nothing.
    part_two: (client, server) -> Half, the server's part of a client's path
      where every client has its own; None: the server.
    pick: a sample is answered by the surest of all clients' paths, and how that
      is told; None: each client by its own.
    alone: (client, batches, key) -> (client, losses, Ledger). One local step
      while the server cannot be reached; it knows no loss and no message that
      `step` does not. None for a method that needs no server, or cannot do
      without.
  """

  init: Callable
  begin: Callable
  step: Callable
  finish: Callable
  contribute: Callable
  merge: Callable
  personalise: Callable
  predict: Callable
  answers: tuple[str, ...] = ("client", "server")
  whole: bool = False
  views: int = 1
  rows: tuple[Row, ...] = (Row("", False),)
  topology: Topology = "parallel"
  group: Callable | None = None
  alike: bool = False
  hand_on: Callable | None = None
  part_two: Callable | None = None
  pick: Pick | None = None
  alone: Callable | None = None


class Exits(NamedTuple):
  """What both exits said of every test sample: no network runs twice.

  Attributes:
    entropy: [N, M] float32, Shannon entropy of the client's exit, nats.
    confidence: [N, M] float32, its largest softmax value.
    client: [N, M] int32, the client's prediction.
    server: [N, M] int32, the server's prediction.
  """

  entropy: Array | np.ndarray
  confidence: Array | np.ndarray
  client: Array | np.ndarray
  server: Array | np.ndarray


class Outputs(NamedTuple):
  """What a row's networks said of test samples and of what was held out.

  Attributes:
    test: Exits [N, M] of the samples that clients are judged on.
    own: Exits [N, H] of the clients' held-out samples; None where thresholds
      are not chosen on any.
    proxy: Exits [N, H] of the proxies that are made of those; likewise.
  """

  test: Exits
  own: Exits | None = None
  proxy: Exits | None = None
