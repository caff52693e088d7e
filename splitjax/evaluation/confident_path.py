"""Prediction by the most confident of all clients' paths (Hydra)."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

from splitjax.methods.method import Method
from splitjax.types import Client, Server


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
  method: Method, clients: Sequence[Client], server: Server, x: Array
) -> Array:
  """Computes the logits [B, C] of the most confident path for images x.

  `clients` are those of each cohort, [N, ...], without padding.
  """
  paths = [method.paths(cohort, server, x) for cohort in clients]
  return most_confident(jnp.concatenate(paths))
