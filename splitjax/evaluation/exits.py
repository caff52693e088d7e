"""Predictions of both exits, from which an evaluation computes its numbers."""

from typing import NamedTuple

import numpy as np
from jax import Array


class Exits(NamedTuple):
  """Predictions of both exits for every test sample.

  Thresholds and gates are arithmetic on these numbers: no network runs twice.
  Clients with the same answers may share one evaluation. If their exits do not
  answer, the exits' floats are then NaN and `client` is -1, because the values
  would be those of another client's exit.
  """

  entropy: Array | np.ndarray  #: [N, M] float32, of the client's exit, nats
  confidence: Array | np.ndarray  #: [N, M] float32, its largest softmax value
  client: Array | np.ndarray  #: [N, M] int32, its prediction
  server: Array | np.ndarray  #: [N, M] int32, the server's prediction
  #: [N, M, 2, C] float32, the softmax of the client's exit and of the server;
  #: None unless a metric needs them
  probabilities: Array | np.ndarray | None = None


class Outputs(NamedTuple):
  """Predictions of one result row's networks, on test and held-out samples."""

  test: Exits  #: [N, M], of the test samples
  #: [N, H], of the clients' held-out samples; None unless thresholds are chosen
  #: on them
  own: Exits | None = None
  #: [N, H], of out-of-distribution samples that are made from the held-out
  #: ones; None if `own` is None
  proxy: Exits | None = None
