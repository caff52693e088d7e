"""Prediction by the most confident of all clients' paths (Hydra)."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from splitjax.types import Array, Half, Method, Pick


def most_confident(logits: Array, pick: Pick) -> Array:
  """Selects the most confident of several answers to each sample.

  Args:
    logits: [N, B, C] float.
    pick: "softmax": argmax_n max_c softmax(logits)_c; "logit": argmax_n max_c
      logits_c, as in Hydra's code.

  Returns:
    [B, C], the logits of the chosen answers.
  """
  score = jax.nn.softmax(logits) if pick == "softmax" else logits
  best = score.max(axis=-1).argmax(axis=0)
  return jnp.take_along_axis(logits, best[None, :, None], axis=0)[0]


def most_confident_path(
  method: Method, clients: Sequence[Half], server: Half, x: Array
) -> Array:
  """Computes the logits [B, C] of the most confident path for images x."""
  pick = method.traits.pick
  assert pick is not None
  each = method.paths or functools.partial(_each, method)
  paths = [each(half, server, x) for half in clients]
  return most_confident(jnp.concatenate(paths), pick)


def _each(method: Method, clients: Half, server: Half, x: Array) -> Array:
  """Computes the logits of each client's path: [N, B, C]."""

  def one(client):
    return method.predict(client, server, x).server.astype(float)

  return jax.lax.map(one, clients)
