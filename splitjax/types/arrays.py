"""Arrays of a run: state, clients' data, sums over clients, predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
  from jax import Array

Tree = Any
"""A pytree of arrays."""

Ledger = dict[str, "Array"]
"""Message name -> bytes, [] float, exact to seven digits. Names are those of
`wire.MESSAGES`, so a ledger also says what a method reveals."""


class Segment(NamedTuple):
  """Consecutive blocks of a network: what one side of the cut holds.

  The names of the blocks give the segment's depth; jax treats them as static.
  Exits and the head are blocks too ("exit3", "head").

  Attributes:
    params: block name -> parameters of that block.
    stats: block name -> running statistics of that block; {} if it has none.
  """

  params: dict[str, Tree]
  stats: dict[str, Tree]


class Opt(NamedTuple):
  """Optimiser state of one half, by block, so that a step can skip blocks.

  Attributes:
    rate: [] float, the round's factor on the learning rate.
    slots: block name -> optax state of that block.
    touched: block name -> [] bool, whether a step of this round updated it.
    wrote: block name -> [] bool, whether a step of this round updated its
      running statistics.
  """

  rate: Array
  slots: dict[str, Tree]
  touched: dict[str, Array]
  wrote: dict[str, Array]


class Half(NamedTuple):
  """One side of one client-server pair.

  Attributes:
    segment: its blocks.
    opt: an Opt within a round, () between rounds.
    memory: the method's own state of this side; () if it has none.
  """

  segment: Segment
  opt: Tree = ()
  memory: Tree = ()


class State(NamedTuple):
  """Everything that one round hands to the next; a checkpoint holds all of it.

  Attributes:
    round: [] int32, number of finished rounds.
    key: [] PRNG key of the run; each round folds its number in.
    clients: one Half per cohort, leaves [N, ...]. On several devices or in
      chunks N includes padding clients (fleets.Cohort), also in checkpoints.
    server: the server's Half, unstacked.
    means: a mean_optimizer.Means, the state of the optimiser that makes the
      server's step on a round's mean update; () without this optimiser.
  """

  round: Array
  key: Array
  clients: tuple[Half, ...]
  server: Half
  means: Tree = ()


class Shard(NamedTuple):
  """One client's data on the device.

  In a cohort's Shard all fields but image and label are stacked, [N, ...].

  Attributes:
    image: [Z, ...], the inputs (images, series, tables or token ids, see
      `data.inputs`) of the whole training split, one copy for all.
    label: [Z] int32, of the whole training split, one copy for all.
    rows: [S] int32, the client's rows of the data set, padded with -1.
    size: [] int32, the number of rows that are not padding.
    counts: [C] int32, the client's samples of each class.
    number: [] int32, the client's number in the fleet, from which its random
      keys are derived. The number is data, not part of the program, so that one
      program serves any clients of a cohort.
    faults: the client's faults, a faults.ClientFault with leaves [R] over the
      rounds; () if no fault is possible.
    service_order: [R, T] int32, the position of each local step of a round in
      the server's queue, client_order.NO_TURN for a step that is not taken; ()
      unless one server serves the clients one after another.
    group: [] int32, the client's group: its group at the server if the method
      has Method.group, otherwise its group in the partition; () if there are no
      groups.
    held: [H] int32, rows that the client holds back for validation
      (Traits.validates), padded with -1; () if there are none.
  """

  image: Array
  label: Array
  rows: Array
  size: Array
  counts: Array
  number: Array
  faults: Tree = ()
  service_order: Tree = ()
  group: Tree = ()
  held: Tree = ()


class Batch(NamedTuple):
  """One batch of one client.

  Attributes:
    image: [B, ...] float, the standardised inputs; token ids int32.
    label: [B] int32.
    real: [B] bool, False on padding; every mean is over the real samples.
    key: [] PRNG key of random layers and of messages about the batch; () for a
      batch without random draws.
  """

  image: Array
  label: Array
  real: Array
  key: Tree = ()


class Logits(NamedTuple):
  """Logits of a client's exit and of the server, [B, C] each.

  If a method has no exit, `client` repeats the server's logits. If the clients
  hold the whole network, `server` repeats the client's logits.
  """

  client: Array
  server: Array


class Sums(NamedTuple):
  """One client's contribution to the aggregation; additive over clients.

  Attributes:
    client: block name -> weighted (parameters, statistics).
    client_weight: block name -> [] float, weight of the clients that hold it.
    server: block name -> weighted (parameters, statistics).
    server_weight: block name -> [] float, weight of the clients whose copy of
      the block was updated.
    stats_weight: block name -> [] float, weight of the clients whose copy of
      the block's running statistics was updated; a step may update a block's
      parameters alone.
    extra: name -> any other quantity that a method adds up over its clients.
  """

  client: dict[str, Tree]
  client_weight: dict[str, Array]
  server: dict[str, Tree]
  server_weight: dict[str, Array]
  stats_weight: dict[str, Array]
  extra: dict[str, Tree] = {}


class Exits(NamedTuple):
  """Predictions of both exits for every test sample.

  Thresholds and gates are arithmetic on these numbers: no network runs twice.
  Clients with the same answers may share one evaluation. If their exits do not
  answer, the exits' floats are then NaN and `client` is -1, because the values
  would be those of another client's exit.

  Attributes:
    entropy: [N, M] float32, Shannon entropy of the client's exit, nats.
    confidence: [N, M] float32, largest softmax value of the client's exit.
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
    proxy: Exits [N, H] of out-of-distribution samples that are made from the
      held-out ones; None if `own` is None.
  """

  test: Exits
  own: Exits | None = None
  proxy: Exits | None = None
