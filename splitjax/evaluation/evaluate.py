"""Both exits looked at once; the second compiled program of a run.

Every client's networks run once over the samples of its test sets. Thresholds,
ratios and metrics are then arithmetic on what they said (`gate.py`,
`metrics.py`).
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from splitjax import losses, trees
from splitjax.data.feed import Plan, Samples, standardise
from splitjax.engine import sharding
from splitjax.engine.base import TUNE, client_keys
from splitjax.engine.fleet import Fleet, slots
from splitjax.engine.sharding import deterministic_options
from splitjax.evaluation.confident_path import most_confident_path
from splitjax.types import Array, Exits, Half, Logits, Method, Shard, State


def fits(method: Method, shown: Array, image: Array) -> bool:
  """Whether to look at the split once rather than at each client's test sets.

  Args:
    method: what was trained.
    shown: [N, chunks, B] int32, what each client is shown.
    image: [P, H, W, c] uint8, the split.
  """
  same = method.alike and not any(row.personal for row in method.rows)
  return method.pick is not None or (same and shown.size > len(image))


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
    one = most_confident_path(method, state.clients, state.server, x)
    return [Logits(one, one)] * len(state.clients)

  def chunk(rows):
    x = standardise(image[rows], plans[0].mean, plans[0].std)
    return [summary(logits) for logits in answer(x)]

  size = min(batch, len(image))
  count = -(-len(image) // size)
  rows = jnp.minimum(jnp.arange(count * size), len(image) - 1)
  said = jax.lax.map(chunk, rows.reshape(count, size))
  return jax.tree.map(lambda x: x.reshape(-1)[: len(image)], said)


def collect_outputs(image: Array, rows: Array) -> Array:
  """The images [B, H, W, c] of rows [B]."""
  return image[rows]


def outputs(
  method: Method,
  plan: Plan,
  client: Half,
  server: Half,
  image: Array,
  rows: Any,
  show: Callable = collect_outputs,
) -> Exits:
  """What one client's exit and the server say of each image it is shown.

  Args:
    method: has `predict`.
    plan: for the standardisation.
    client: one client, unbatched.
    server: the server.
    image: [P, H, W, c] uint8, the split that its test images belong to.
    rows: [chunks, B] int32, which of them, in chunks; or whatever `show` takes
      of a chunk, leaves [chunks, B].
    show: (image, a chunk) -> [B', H, W, c] uint8.

  Returns:
    Exits with leaves [chunks * B'].
  """

  def chunk(rows):
    x = standardise(show(image, rows), plan.mean, plan.std)
    return summary(method.predict(client, server, x))

  said = jax.lax.map(chunk, rows)
  return jax.tree.map(lambda x: x.reshape(-1), said)


def summary(logits: Logits) -> Exits:
  """What is kept of both exits' logits [B, C]: Exits with leaves [B]."""
  own = jax.nn.softmax(logits.client.astype(jnp.float32))
  return Exits(
    entropy=losses.entropy(logits.client),
    confidence=own.max(axis=-1),
    client=logits.client.argmax(axis=-1).astype(jnp.int32),
    server=logits.server.argmax(axis=-1).astype(jnp.int32),
  )


def over_clients(
  one: Callable, fleet: Fleet, mesh: Mesh | None, common: Any, each: Sequence
) -> list[Any]:
  """Does something for every client, on the device where it lies.

  Args:
    one: (cohort's number, common, client's part) -> a result.
    fleet: the clients, divided among the devices.
    mesh: the devices; None for one.
    common: what all clients share.
    each: for each cohort the parts, leaves [N, ...].

  Returns:
    For each cohort the results, leaves [N, ...].
  """
  computed = slots(fleet)

  def on_device(common, each):
    out = []
    for c, part in enumerate(each):

      def of(mine, c=c):
        return one(c, common, mine)

      # No more side by side than in a round, where few may take part.
      chunk = fleet.cohorts[c].chunk or -(-computed[c] // fleet.devices)
      out.append(
        jax.vmap(of)(part)
        if chunk >= len(fleet.cohorts[c].places) // fleet.devices
        else jax.lax.map(of, part, batch_size=max(chunk, 1))
      )
    return out

  into = (sharding.COPIED, sharding.DIVIDED)
  return sharding.on_each(on_device, mesh, into, sharding.DIVIDED)(
    common, list(each)
  )


def personalised(
  method: Method, plan: Plan, stock: Any, client: Half, own: Any, key: Array
) -> Half:
  """Adapt((phi, h); D_n) of one client, a copy.

  Args:
    method: has `personalise`.
    plan: how the client walks through its data.
    stock: (image, label) of the training split.
    client: one client, unbatched.
    own: its shard without the data set.
    key: [] PRNG key, its own.
  """
  shard = Shard(*stock, *own)
  return method.personalise(client, Samples(shard, plan), key)


def _parts(state: State, shards: Sequence[Shard]) -> list[Any]:
  """For each cohort (clients, own shards, keys), leaves [N, ...]."""
  key = jax.random.fold_in(jax.random.fold_in(state.key, TUNE), state.round)
  return [
    (clients, tuple(shard[2:]), client_keys(key, shard.number))
    for clients, shard in zip(state.clients, shards, strict=True)
  ]


def _in_order(fleet: Fleet, numbers: Sequence[Array]) -> Array:
  """Where each client, by its number, lies among all cohorts' places.

  Args:
    fleet: the clients.
    numbers: per cohort [N] int32, the clients' numbers, ghosts last.

  Returns:
    [num_clients] int32; a number that ghosts bear as well is the client's own.
  """
  real = np.concatenate(
    [np.arange(len(c.places)) < len(c.ids) for c in fleet.cohorts]
  )
  places = jnp.asarray(np.flatnonzero(real))
  return places[jnp.argsort(jnp.concatenate(numbers)[places])]


def make_evaluate(
  method: Method,
  plans: tuple[Plan, ...],
  fleet: Fleet,
  *,
  show: Callable = collect_outputs,
  mesh: Mesh | None = None,
  deterministic: bool = False,
) -> Any:
  """Compiles the evaluation of all rows of a method.

  Args:
    method: what was trained.
    plans: one for each cohort.
    fleet: the clients.
    show: what of the images a client is shown, as in `look`.
    mesh: the devices; None for one.
    deterministic: as of the round.

  Returns:
    A jitted (state, shards, image [P, H, W, c], shown [N, chunks, B]) -> one
    Exits per row of method.rows, leaves [N, chunks * B] in the order of the
    clients' numbers. Nothing is written back: personalised copies are
    discarded.
  """

  def one(c, common, mine):
    server, stock, image = common
    client, own, key, shown = mine
    said = []
    for row in method.rows:
      ready = client
      if row.personal:
        ready = personalised(method, plans[c], stock, client, own, key)
      said.append(outputs(method, plans[c], ready, server, image, shown, show))
    return tuple(said)

  # On several devices each looks for its own clients, who may be alike, but not
  # where the surest of all of them answers.
  once = show is collect_outputs and (
    fleet.devices == 1 or method.pick is not None
  )

  def evaluate(state, shards, image, shown):
    numbers = [shard.number for shard in shards]
    back = _in_order(fleet, numbers)
    if once and fits(method, shown, image):
      batch = shown.shape[-1]
      said = over_split(method, plans, state, image, batch, summary)
      mine = (shown[who].reshape(len(who), -1) for who in numbers)
      parts = map(trees.take, said, mine)
      out = jax.tree.map(lambda *x: jnp.concatenate(x)[back], *parts)
      return (out,) * len(method.rows)
    common = state.server, tuple(shards[0][:2]), image
    each = [
      (*part, trees.take(shown, shard.number))
      for part, shard in zip(_parts(state, shards), shards, strict=True)
    ]
    found = over_clients(one, fleet, mesh, common, each)
    return jax.tree.map(lambda *x: jnp.concatenate(x)[back], *found)

  return jax.jit(
    evaluate,
    out_shardings=sharding.sharding(mesh, sharding.COPIED),
    compiler_options=deterministic_options(deterministic),
  )


def make_personalised(
  method: Method,
  plans: tuple[Plan, ...],
  fleet: Fleet,
  *,
  mesh: Mesh | None = None,
  deterministic: bool = False,
) -> Any:
  """Compiles the final personalisation of every cohort, for keeping.

  Args:
    method: what was trained.
    plans: one for each cohort.
    fleet: the clients.
    mesh: the devices; None for one.
    deterministic: as of the round.
  """

  def one(c, stock, mine):
    return personalised(method, plans[c], stock, *mine)

  def tune(state, shards):
    parts = _parts(state, shards)
    return tuple(over_clients(one, fleet, mesh, tuple(shards[0][:2]), parts))

  return jax.jit(
    tune,
    out_shardings=sharding.sharding(mesh, sharding.DIVIDED),
    compiler_options=deterministic_options(deterministic),
  )
