"""Prediction by the most confident of all clients' paths (Hydra)."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from splitjax.types import Array, Half, Method


def most_confident(logits: Array) -> Array:
  """Selects the most confident of several answers to each sample.

  It is argmax_n max_c softmax(logits)_c. Hydra's code compares the logits
  themselves, although those of different networks have no common scale.

  Args:
    logits: [N, B, C] float.

  Returns:
    [B, C], the logits of the chosen answers.
  """
  best = jax.nn.softmax(logits).max(axis=-1).argmax(axis=0)
  return jnp.take_along_axis(logits, best[None, :, None], axis=0)[0]


def most_confident_path(
  method: Method, clients: Sequence[Half], server: Half, x: Array
) -> Array:
  """Computes the logits [B, C] of the most confident path for images x."""
  each = method.paths or functools.partial(_each, method)
  paths = [each(half, server, x) for half in clients]
  return most_confident(jnp.concatenate(paths))


def _each(method: Method, clients: Half, server: Half, x: Array) -> Array:
  """Computes the logits of each client's path: [N, B, C]."""

  def one(client):
    return method.predict(client, server, x).server.astype(float)

  return jax.lax.map(one, clients)
