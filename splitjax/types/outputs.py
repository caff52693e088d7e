"""The predictions of trained networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
  from jax import Array


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
      samples; None if `own` is None.
  """

  test: Exits
  own: Exits | None = None
  proxy: Exits | None = None
