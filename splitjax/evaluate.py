"""Both exits looked at once; the second compiled program of a run.

Every client's networks run once over the samples of its test sets. Thresholds,
ratios and metrics are then arithmetic on what they said (`gate.py`,
`metrics.py`).
"""

from typing import Any

import jax
import jax.numpy as jnp

from splitjax import losses
from splitjax.data.feed import Plan, Samples, standardise
from splitjax.fleet import Fleet
from splitjax.rounds import SHARD_AXES, TUNE, client_keys
from splitjax.types import Array, Exits, Half, Method, State


def look(
  method: Method,
  plan: Plan,
  client: Half,
  server: Half,
  image: Array,
  rows: Array,
) -> Exits:
  """What one client's exit and the server say of each of its test images.

  Args:
    method: has `predict`.
    plan: for the standardisation.
    client: one client, unbatched.
    server: the server.
    image: [P, H, W, c] uint8, the split that its test images belong to.
    rows: [chunks, B] int32, which of them, in chunks.

  Returns:
    Exits with leaves [chunks * B].
  """

  def chunk(rows):
    x = standardise(image[rows], plan.mean, plan.std)
    logits = method.predict(client, server, x)
    own = jax.nn.softmax(logits.client.astype(jnp.float32))
    return Exits(
      entropy=losses.entropy(logits.client),
      confidence=own.max(axis=-1),
      client=logits.client.argmax(axis=-1).astype(jnp.int32),
      server=logits.server.argmax(axis=-1).astype(jnp.int32),
    )

  said = jax.lax.map(chunk, rows)
  return jax.tree.map(lambda x: x.reshape(-1), said)


def personalised(
  method: Method, plan: Plan, fleet: Fleet, state: State, shards, c: int
) -> Half:
  """Cohort c with every client personalised: Adapt((phi, h); D_n), a copy."""
  key = jax.random.fold_in(jax.random.fold_in(state.key, TUNE), state.round)
  keys = client_keys(key, fleet.cohorts[c].ids)

  def one(client, shard, key):
    return method.personalise(client, Samples(shard, plan), key)

  axes = (0, SHARD_AXES, 0)
  return jax.vmap(one, in_axes=axes)(state.clients[c], shards[c], keys)


def make_look(method: Method, plans: tuple[Plan, ...], fleet: Fleet) -> Any:
  """Compiles the evaluation of all rows of a method.

  Args:
    method: what was trained.
    plans: one for each cohort.
    fleet: the clients.

  Returns:
    A jitted (state, shards, image [P, H, W, c], shown [N, chunks, B]) -> one
    Exits per row of method.rows, leaves [N, chunks * B] in the order of the
    clients' numbers. Nothing is written back: personalised copies are
    discarded.
  """
  order = [i for cohort in fleet.cohorts for i in cohort.ids]
  back = jnp.argsort(jnp.asarray(order))

  def evaluate(state, shards, image, shown):
    rows = []
    for row in method.rows:
      parts = []
      for c, plan in enumerate(plans):
        clients = state.clients[c]
        if row.personal:
          clients = personalised(method, plan, fleet, state, shards, c)

        def one(client, shown, plan=plan):
          return look(method, plan, client, state.server, image, shown)

        mine = shown[jnp.asarray(fleet.cohorts[c].ids)]
        parts.append(jax.vmap(one)(clients, mine))
      rows.append(jax.tree.map(lambda *x: jnp.concatenate(x)[back], *parts))
    return tuple(rows)

  return jax.jit(evaluate)


def make_personalised(
  method: Method, plans: tuple[Plan, ...], fleet: Fleet
) -> Any:
  """Compiles the final personalisation of every cohort, for keeping."""

  def tune(state, shards):
    return tuple(
      personalised(method, plan, fleet, state, shards, c)
      for c, plan in enumerate(plans)
    )

  return jax.jit(tune)
