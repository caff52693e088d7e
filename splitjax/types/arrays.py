"""Arrays of a run: networks, clients' data, batches, predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
  from jax import Array

Tree = Any
"""A pytree of arrays."""


class Net(NamedTuple):
  """Consecutive blocks of a network: what one side of the cut holds.

  The names of the blocks give the segment's depth; jax treats them as static.
  Exits and the head are blocks too ("exit3", "head").

  Attributes:
    params: block name -> parameters of that block.
    stats: block name -> running statistics of that block; {} if it has none.
  """

  params: dict[str, Tree]
  stats: dict[str, Tree]


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
    service_order: [R, T] int32, the position of each local step of a round in
      the server's queue, orders.NO_TURN for a step that is not taken; ()
      unless one server serves the clients one after another.
    group: [] int32, the client's group: that of `Method.group` if the method
      makes groups, else its group in the partition; () if there are none.
    held: [H] int32, rows that the client holds back for validation
      (Method.validates), padded with -1; () if there are none.
  """

  image: Array
  label: Array
  rows: Array
  size: Array
  counts: Array
  number: Array
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
