"""A method: what a client and the server do in a round, and the round's end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple


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


class Traits(NamedTuple):
  """Static facts about a method, for the engine and the evaluation.

  Attributes:
    answers: the sides that predict at inference: ("client", "server"),
      ("server",) or ("client",).
    depth: "cut": clients hold a prefix of the network, the server the rest;
      "full": clients hold the whole network, and training needs no server.
    views: V, the number of independent batches of one step.
    rows: the result rows of one trained run.
    topology: the order in which clients and server work, a name in
      `engine.topologies.TOPOLOGIES`.
    pick: whether the most confident of all clients' paths answers a sample (the
      largest softmax value); else each client answers by its own path.
    validates: share of the training samples that each client holds back for
      validation during training (Shard.held).
  """

  answers: tuple[str, ...] = ("client", "server")
  depth: Literal["cut", "full"] = "cut"
  views: int = 1
  rows: tuple[Row, ...] = (Row("", False),)
  topology: str = "parallel"
  pick: bool = False
  validates: float = 0.0


class Work(NamedTuple):
  """The cost of a local step on one sample, apart from its messages' bytes.

  Computation is counted in forward passes; a backward pass counts as two. If
  clients hold the whole network, `server` and `trips` are ignored.

  Attributes:
    client: passes through the client's half.
    server: passes through the server's half.
    trips: messages per step after which the client waits for an answer.
    alone: passes through the client's half in a step without the server
      (Stage.alone).
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
    epochs: number of local epochs of the stage; None: the config's number.
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
    server: (server, clients, active, sums) -> Half. Makes the next server.
      `server` is the server before the round. `clients` are all trained
      cohorts, a tuple with leaves [N, ...], in which clients that took no part
      are unchanged. `active`, for each cohort [N] bool, tells whose updates
      count; `sums` are over these clients.
    clients: (clients, active, sums, server) -> Half. Makes the next clients of
      one cohort; `server` is the next server.
    keep: lam, the share of its parameters that a client keeps, or a function:
      block name -> lam. A block with lam = 1 is not sent.
    alike: whether all clients of a cohort give the same answers between rounds,
      because their networks differ at most in exits that do not answer. Such
      clients may share an evaluation. Compiled programs do not depend on
      `alike`.
    on_means: (means, server, sums) -> (means, sums). An optimiser's step on the
      means of the sums, before `server` and `clients` get the sums. `means` is
      State.means, and `server` the server before the round. None: no such step.
  """

  contribute: Callable
  server: Callable
  clients: Callable
  keep: float | Callable[[str], float] = 0.0
  alike: bool = False
  on_means: Callable | None = None


class Method(NamedTuple):
  """A federated method: one client-server pair's round, and the aggregation.

  An argument `client` is ONE client, unbatched; `clients` are stacked.
  `samples` is the client's own data (splitjax.data.feed.Samples).

  Attributes:
    init: (key, fleet, full) -> State. Cuts the initial network `full` (Segment)
      for every client; `key` is the key of the run.
    begin: (client, server, samples, round, key) -> (client, server, Ledger).
      The download, before the first batch.
    stages: the parts of a client's round, in order. Only the topology
      "parallel" takes more than one.
    finish: (client, server, samples, key) -> (client, server, Ledger).
      The upload, after the last batch.
    aggregation: the end of the round.
    personalise: (client, server, samples, key) -> client. Adapts a copy of a
      client for evaluation (Row.personal).
    predict: (client, server, image [B, ...]) -> Logits.
    traits: static facts.
    group: (counts [N, C]) -> [N] int, the server's group of each client,
      computed on the host before training. The server's memory then has leaves
      [groups, ...], and a step gets the entry of its client's group. None:
      there are no groups.
    batch: (N, B) -> int, the batch size of all clients. None: it is B, the
      config's.
    hand_on: (client) -> Ledger, the cost of handing the client half of a
      "relay" from one client to the next. The client that has the half sends
      the "up" messages, the next one gets the "down" messages. In a run's first
      turn the server has the half, and nothing is sent up. None: no relay.
    part_two: (client, server) -> Half, the server half of a client's path, if
      that half depends on the client. None: it is `server` itself.
    paths: (clients, server, image [B, ...]) -> [P, B, C] float, the logits of a
      cohort's P paths at once, for `pick`. None: `predict` computes the logits
      of each client's path.
    cuts: (fleet) -> [N] int, the depths at which clients are cut that simulate
      both sides by the whole network; time and energy are computed from them.
      None: a client is cut at its depth in the fleet.
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
  batch: Callable | None = None
  hand_on: Callable | None = None
  part_two: Callable | None = None
  paths: Callable | None = None
  cuts: Callable | None = None
