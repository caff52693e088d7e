"""Evaluation where all clients answer alike: each test sample is run once.

Clients that hold the same network, or that leave each sample to the surest of
them, need not each look at their own test sets: the whole split is looked at
once, and every client reads off what it is shown.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from splitjax.types import Array, Half, Method, Pick


def most_confident(logits: Array, pick: Pick) -> Array:
  """The surest of several answers to each sample.

  Args:
    logits: [N, B, C] float.
    pick: "softmax": argmax_n max_c softmax(logits)_c; "logit": argmax_n max_c
      logits_c, which Hydra's code takes.

  Returns:
    [B, C].
  """
  score = jax.nn.softmax(logits) if pick == "softmax" else logits
  best = score.max(axis=-1).argmax(axis=0)
  return jnp.take_along_axis(logits, best[None, :, None], axis=0)[0]


def most_confident_path(
  method: Method, clients: Sequence[Half], server: Half, x: Array
) -> Array:
  """The answer [B, C] of the surest of all clients' paths to images x."""
  assert method.pick is not None
  every = [_each(method, half, server, x) for half in clients]
  return most_confident(jnp.concatenate(every), method.pick)


def _each(method: Method, clients: Half, server: Half, x: Array) -> Array:
  """What each client's path answers: [N, B, C]."""

  def one(client):
    return method.predict(client, server, x).server.astype(jnp.float32)

  return jax.lax.map(one, clients)
