"""The types that several packages share; every array field gives its shape.

Axis letters, the same in every file:

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
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
  from jax import Array

Tree = Any
"""A pytree of arrays."""

Ledger = dict[str, "Array"]
"""Message name -> bytes, [] float, exact to seven digits. Names are those of
`wire.MESSAGES`, so a ledger also says what a method reveals."""


def __getattr__(name: str) -> Any:
  """Imports jax at the first use of `Array`, so that flags fail fast."""
  if name != "Array":
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  from jax import Array

  globals()[name] = Array
  return Array


class UserError(ValueError):
  """An error that the user can fix; it names field, value and remedy.

  Example:
    >>> import splitjax
    >>> c = splitjax.default()
    >>> c.rounds = 0
    >>> splitjax.Config.from_dict(c)
    Traceback (most recent call last):
    splitjax.types.UserError: rounds=0 must be at least 1
  """


class Segment(NamedTuple):
  """Consecutive blocks of a network: what one side of the cut holds.

  The names of the blocks give the segment's depth; jax treats them as static.
  Exits and the head are blocks too ("exit3", "head").

  Attributes:
    params: block name -> parameters of that block.
    stats: block name -> running statistics of that block ({} where none).
  """

  params: dict[str, Tree]
  stats: dict[str, Tree]


class Opt(NamedTuple):
  """Optimiser state of one half, by block, so that a step can skip blocks.

  Attributes:
    rate: [] float, the schedule's factor on the learning rate in this round.
    slots: block name -> optax state of that block.
    touched: block name -> [] bool, whether a step of this round updated it.
    wrote: block name -> [] bool, whether one of them updated its statistics.
  """

  rate: Array
  slots: dict[str, Tree]
  touched: dict[str, Array]
  wrote: dict[str, Array]


class ServerOpt(Opt):
  """Optimiser state of a server half; the type selects the server's rule."""

  __slots__ = ()


class Half(NamedTuple):
  """One side of one client-server pair.

  Attributes:
    segment: its blocks.
    opt: an Opt within a round; between rounds (), or the kept slots.
    memory: the method's own state of this side; () if it has none.
    known: a deltas.Known if the client's parameters travel as differences;
      else ().
  """

  segment: Segment
  opt: Tree = ()
  memory: Tree = ()
  known: Tree = ()


class State(NamedTuple):
  """Everything that one round hands to the next; a checkpoint holds all of it.

  Attributes:
    round: [] int32, finished rounds.
    key: [] PRNG key of the run; each round folds its number in.
    clients: one Half per cohort, leaves [N, ...]. On several devices or in
      chunks N includes padding clients (fleet.Cohort), also in checkpoints.
    server: the server's Half, unstacked.
    means: state of the optimiser of the means, a mean_optimizer.Means; () if
      there is none.
  """

  round: Array
  key: Array
  clients: tuple[Half, ...]
  server: Half
  means: Tree = ()


class Shard(NamedTuple):
  """One client's data on the device.

  In a cohort all fields but the data set are stacked.

  Attributes:
    image: [Z, H, W, c] uint8, the whole training split, one copy for all.
    label: [Z] int32, of the whole training split, one copy for all.
    rows: [S] int32, the client's rows of the data set, padded with -1.
    size: [] int32, the number of rows that are not padding.
    counts: [C] int32, samples of each class.
    number: [] int32, the client's number in the fleet. All its random draws
      depend on this number alone. It is data, not part of the program, so one
      program serves any clients of a cohort.
    schedule: the client's scheduled faults, a faults.Schedule with leaves [R]
      over the rounds; () if there are none.
    service_order: [R, T] int32, the position of each local step of a round in
      the server's queue, client_order.NO_TURN for a step that is not taken; ()
      unless one server serves the clients one after another.
    group: [] int32, the server's group of this client (Method.group), or else
      its group in the partition; () without groups.
    batch: [] int32, the client's batch size, at most the plan's; () if equal.
    held: [H] int32, rows that the client holds back for validation
      (Traits.validates), padded with -1; () if there are none.
  """

  image: Array
  label: Array
  rows: Array
  size: Array
  counts: Array
  number: Array
  schedule: Tree = ()
  service_order: Tree = ()
  group: Tree = ()
  batch: Tree = ()
  held: Tree = ()


class Batch(NamedTuple):
  """One batch of one client.

  Attributes:
    image: [B, H, W, c] float, standardised.
    label: [B] int32.
    real: [B] bool, False on padding; every mean is over the real samples.
    key: [] PRNG key for the draws of messages about the batch; () outside of
      local steps.
  """

  image: Array
  label: Array
  real: Array
  key: Tree = ()


class Logits(NamedTuple):
  """Logits of a client's exit and of the server, [B, C] each.

  A method without an exit repeats the server's logits as the client's. One
  with the whole network on the client repeats the client's as the server's.
  """

  client: Array
  server: Array


class Sums(NamedTuple):
  """One client's contribution to the aggregation; additive over clients.

  Attributes:
    client: block name -> weighted (parameters, statistics).
    client_weight: block name -> [] float, weight of the clients that hold it.
    server: block name -> weighted (parameters, statistics, kept slots).
    server_weight: block name -> [] float, weight of the clients whose copy of
      the block was updated.
    stats_weight: block name -> [] float, weight of the clients whose copy of
      its running statistics was updated, which not every update of a block
      implies.
    extra: name -> any other quantity that a method adds up over its clients.
  """

  client: dict[str, Tree]
  client_weight: dict[str, Array]
  server: dict[str, Tree]
  server_weight: dict[str, Array]
  stats_weight: dict[str, Array]
  extra: dict[str, Tree] = {}


Pick = Literal["softmax", "logit"]
"""The confidence of a prediction: the maximum of its softmax or its logits."""


class Row(NamedTuple):
  """One row of a result table; a trained method may give several.

  Attributes:
    suffix: appended to the method's label, "" or "+FT".
    personal: whether clients personalise a copy before evaluation.
    at_server: inference runs on the server, which receives raw samples
      (SplitGP eq. 29); for methods whose clients hold the whole network.
    tuned: whether the clients are fine-tuned copies, as in +FT rows;
      eval.personal=last computes such a row in the last round only.
  """

  suffix: str
  personal: bool
  at_server: bool = False
  tuned: bool = False


class Traits(NamedTuple):
  """Static facts about a method, for the engine and the evaluation.

  Attributes:
    answers: the sides that predict at inference: ("client", "server"),
      ("server",) or ("client",).
    depth: "cut": clients hold a prefix of the network, the server the rest;
      "full": clients hold the whole network, and training needs no server.
    views: V, the number of independent batches of one step.
    rows: the result rows of one trained run.
    topology: how the server meets clients, a name in
      `engine.topologies.TOPOLOGIES`.
    pick: the measure of confidence, if the most confident of all clients' paths
      answers a sample; None: each client uses its own path.
    validates: share of its training samples that each client holds back for
      validation during training (Shard.held).
  """

  answers: tuple[str, ...] = ("client", "server")
  depth: Literal["cut", "full"] = "cut"
  views: int = 1
  rows: tuple[Row, ...] = (Row("", False),)
  topology: str = "parallel"
  pick: Pick | None = None
  validates: float = 0.0


class Work(NamedTuple):
  """The cost of a local step on one sample, other than its bytes.

  Computation is in forward passes, of which a backward pass counts as two.
  `server` and `trips` do not count where clients hold the whole network.

  Attributes:
    client: passes through the client's half.
    server: passes through the server's half.
    trips: messages per step whose answer from the server the client awaits.
    alone: as `client`, in a step without the server (Stage.alone).
  """

  client: float = 3.0
  server: float = 3.0
  trips: int = 1
  alone: float = 3.0


class Stage(NamedTuple):
  """A part of a client's round: local steps, or one other computation.

  Attributes:
    step: (client, server, batches, key) -> (client, server, losses, Ledger).
      One local step on V batches; losses: name -> [].
    epochs: local epochs of these steps; None: the config's.
    alone: (client, batches, key) -> (client, losses, Ledger). One local step
      while the server is unavailable; its losses and messages are among those
      of `step`. None for a method that needs no server or cannot train without
      it.
    once: (client, server, samples, key) -> the same as `step`; runs once in a
      round instead of steps.
    work: the cost of a step, or of `once` over all samples.
  """

  step: Callable | None = None
  epochs: int | None = None
  alone: Callable | None = None
  once: Callable | None = None
  work: Work = Work()


class Aggregation(NamedTuple):
  """The end of a round: sums over clients, and the next halves made of them.

  Attributes:
    contribute: (client, server, weight []) -> Sums of one client.
    server: (server, clients, active, sums) -> Half. Makes the next server from
      the server before the round, all cohorts after it (a tuple, leaves
      [N, ...]; clients that took no part are unchanged), per cohort [N] bool,
      whose updates count, and the sums over those.
    clients: (clients, active, sums, server) -> Half. Makes the next clients of
      one cohort; `server` is the next server.
    keep: lam, the share of its parameters that a client keeps; a block that is
      kept whole is not sent.
    alike: whether all clients of a cohort give the same answers between rounds,
      because they hold the same network up to exits that do not answer. It
      decides who is evaluated on what; no program may branch on it.
    halves: whether a client uploads its trained half and downloads its next
      one, so that both may travel as differences (wire.parameters in a config).
    by_sums: whether the result for a client depends on other clients through
      the sums alone: `server` reads no halves, `clients` makes each client from
      its half, the sums and the server. A round then needs its participants
      alone (system.clients_on=host).
    on_means: (means, server, sums) -> (means, sums). An optimiser's step on the
      means of the sums, before `server` and `clients` see them; it gets
      State.means and the server before the round. None: no such step.
  """

  contribute: Callable
  server: Callable
  clients: Callable
  keep: float | Callable[[str], float] = 0.0
  alike: bool = False
  halves: bool = False
  by_sums: bool = False
  on_means: Callable | None = None


class Method(NamedTuple):
  """A federated method: one client-server pair's round, and the aggregation.

  All functions but init, those of the aggregation and paths take ONE client,
  unbatched. `samples` is the client's own data (splitjax.data.feed.Samples).

  Attributes:
    init: (key, fleet, full) -> State. Cuts the initial network `full` (Segment)
      for every client; key is the run's.
    begin: (client, server, samples, round, key) -> (client, server, Ledger).
      The download, before the first batch.
    stages: what a client computes in a round, one after another. Only rounds in
      parallel take more than one.
    finish: (client, server, samples, key) -> (client, server, Ledger).
      The upload, after the last batch.
    aggregation: the end of the round.
    personalise: (client, server, samples, key) -> client. Adapts a client after
      the last round.
    predict: (client, server, image [B, H, W, c]) -> Logits.
    traits: static facts.
    group: (counts [N, C]) -> [N] int, the server's group of each client,
      computed on the host before training. The server's memory then has leaves
      [groups, ...], and a step gets the entry of its client's group. None:
      there are no groups.
    batches: (N, B) -> [N] int, each client's own batch size, at most B. None:
      all have B.
    hand_on: (client) -> Ledger, the cost of handing the client half of a
      "relay" from one client to the next: "up" from the one, "down" to the
      other. The first client of a run gets it from the server. None: no relay.
    part_two: (client, server) -> Half, the server half of a client's path if
      it depends on the client; None: the server.
    paths: (clients, server, image [B, H, W, c]) -> [P, B, C] float, the logits
      of a cohort's P paths at once, for `pick`; None: `predict` of each client.
    cut: (client) -> [] int32, for time and energy: the depth at which a client
      that holds the whole network was cut in the last round; None: its depth.
  """

  init: Callable
  begin: Callable
  stages: tuple[Stage, ...]
  finish: Callable
  aggregation: Aggregation
  personalise: Callable
  predict: Callable
  traits: Traits = Traits()
  group: Callable | None = None
  batches: Callable | None = None
  hand_on: Callable | None = None
  part_two: Callable | None = None
  paths: Callable | None = None
  cut: Callable | None = None


class Exits(NamedTuple):
  """Predictions of both exits for every test sample.

  Thresholds and gates are arithmetic on these: no network runs twice. If
  clients with the same answers share the evaluation, an exit that does not
  answer has NaN and -1, since its values would be those of another client.

  Attributes:
    entropy: [N, M] float32, Shannon entropy of the client's exit, nats.
    confidence: [N, M] float32, its largest softmax value.
    client: [N, M] int32, the client's prediction.
    server: [N, M] int32, the server's prediction.
    probabilities: [N, M, 2, C] float32, the softmax of the client's exit and of
      the server; None unless a metric needs them.
  """

  entropy: Array | np.ndarray
  confidence: Array | np.ndarray
  client: Array | np.ndarray
  server: Array | np.ndarray
  probabilities: Array | np.ndarray | None = None


class Outputs(NamedTuple):
  """Predictions of one result row's networks, on test and held-out samples.

  Attributes:
    test: Exits [N, M] of the test samples.
    own: Exits [N, H] of the clients' held-out samples; None unless thresholds
      are chosen on them.
    proxy: Exits [N, H] of the out-of-distribution proxies made of the held-out
      samples; None as `own`.
  """

  test: Exits
  own: Exits | None = None
  proxy: Exits | None = None
