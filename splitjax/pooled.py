"""Evaluation where all clients answer alike: each test sample is run once.

Clients that hold the same network, or that leave each sample to the surest of
them, need not each look at their own test sets: the whole split is looked at
once, and every client reads off what it is shown.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.data.feed import Plan, standardise
from splitjax.types import Array, Exits, Half, Logits, Method, Pick, State


def fits(method: Method, shown: Array, image: Array) -> bool:
  """Whether to look at the split once rather than at each client's test sets.

  Args:
    method: what was trained.
    shown: [N, chunks, B] int32, what each client is shown.
    image: [P, H, W, c] uint8, the split.
  """
  same = method.alike and not any(row.personal for row in method.rows)
  return method.pick is not None or (same and shown.size > len(image))


def surest(logits: Array, pick: Pick) -> Array:
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


def over_split(
  method: Method,
  plans: Sequence[Plan],
  state: State,
  image: Array,
  batch: int,
  summary,
) -> list[Exits]:
  """What the clients of each cohort say of every sample of a split.

  Args:
    method: what was trained, of which `fits` holds.
    plans: one for each cohort.
    state: after a round.
    image: [P, H, W, c] uint8.
    batch: B, samples that are looked at together.
    summary: Logits [B, C] -> Exits [B].

  Returns:
    For each cohort Exits with leaves [P].
  """

  def answer(x):
    if method.pick is None:
      return [
        method.predict(trees.take(half, 0), state.server, x)
        for half in state.clients
      ]
    one = of_surest(method, state.clients, state.server, x)
    return [Logits(one, one)] * len(state.clients)

  def chunk(rows):
    x = standardise(image[rows], plans[0].mean, plans[0].std)
    return [summary(logits) for logits in answer(x)]

  size = min(batch, len(image))
  count = -(-len(image) // size)
  rows = jnp.minimum(jnp.arange(count * size), len(image) - 1)
  said = jax.lax.map(chunk, rows.reshape(count, size))
  return jax.tree.map(lambda x: x.reshape(-1)[: len(image)], said)


def of_surest(
  method: Method, clients: Sequence[Half], server: Half, x: Array
) -> Array:
  """The answer [B, C] of the surest of all clients' paths to images x."""
  assert method.pick is not None
  every = [_each(method, half, server, x) for half in clients]
  return surest(jnp.concatenate(every), method.pick)


def _each(method: Method, clients: Half, server: Half, x: Array) -> Array:
  """What each client's path answers: [N, B, C]."""

  def one(client):
    return method.predict(client, server, x).server.astype(jnp.float32)

  return jax.lax.map(one, clients)
