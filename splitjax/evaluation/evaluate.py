"""The outputs of both exits on all test samples, as one compiled program.

Every client's networks run once over the samples of its test sets. Thresholds,
ratios and metrics are then arithmetic on their outputs (`early_exit`,
`metrics`). Personalised clients (`personalisation`) are evaluated by the same
program as others.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from splitjax import losses, trees
from splitjax.data.feed import BatchPlan, standardise
from splitjax.engine import sharding
from splitjax.engine.fleets import Fleet, slots, without_padding
from splitjax.evaluation.confident_path import most_confident_path
from splitjax.models import target
from splitjax.types import Array, Exits, Half, Logits, Method


def picked_outputs(
  method: Method,
  plan: BatchPlan,
  clients: Sequence[Half],
  server: Half,
  image: Array,
  batch: int,
  probabilities: bool,
) -> Exits:
  """Computes the most confident path's outputs for all samples of a split.

  `clients` has the client halves of each cohort, without padding clients;
  `image` has the inputs [P, ...], which pass the networks `batch` at a time.
  Returns Exits of arrays [P].
  """

  def chunk(rows):
    x = standardise(image[rows], plan.mean, plan.std)
    one = most_confident_path(method, tuple(clients), server, x)
    return to_exits(Logits(one, one), probabilities)

  size = min(batch, len(image))
  count = -(-len(image) // size)
  rows = jnp.minimum(jnp.arange(count * size), len(image) - 1)
  outputs = jax.lax.map(chunk, rows.reshape(count, size))
  return jax.tree.map(
    lambda x: jax.lax.collapse(x, 0, 2)[: len(image)], outputs
  )


def gather_images(image: Array, rows: Array) -> Array:
  """Gathers the inputs [B, ...] of rows [B]."""
  return image[rows]


def first_outputs(chunk: Callable, shown: Any, first: Array) -> Exits:
  """Computes one client's outputs for its leading chunks only.

  `first` [] is the number of these chunks. `shown` is a pytree of arrays
  [chunks, ...]; `chunk` maps a row of `shown` to Exits [B']. Returns Exits
  of arrays [chunks * B'], which are 0 in the remaining chunks.
  """

  def of(i):
    return chunk(trees.take(shown, i))

  def add(i, outputs):
    return trees.put(outputs, i, of(i))

  count = len(jax.tree.leaves(shown)[0])
  nothing = jax.tree.map(
    lambda x: jnp.zeros((count, *x.shape), x.dtype), jax.eval_shape(of, 0)
  )
  outputs = jax.lax.fori_loop(0, first, add, nothing)
  return jax.tree.map(lambda x: jax.lax.collapse(x, 0, 2), outputs)


def to_exits(logits: Logits, probabilities: bool = False) -> Exits:
  """Reduces the logits [B, C] of both exits to Exits of arrays [B]."""
  own = jax.nn.softmax(logits.client.astype(float))
  both = None
  if probabilities:
    both = jnp.stack(
      [own, jax.nn.softmax(logits.server.astype(float))], axis=-2
    )
  return Exits(
    entropy=losses.entropy(logits.client),
    confidence=own.max(axis=-1),
    client=logits.client.argmax(axis=-1).astype(jnp.int32),
    server=logits.server.argmax(axis=-1).astype(jnp.int32),
    probabilities=both,
  )


def map_clients(
  one: Callable, fleet: Fleet, mesh: Mesh | None, common: Any, each: Sequence
) -> list[Any]:
  """Applies a function to every client, on the device that holds it.

  The function `one` is called with the number of the cohort, `common`, and the
  client's part of `each`. `common` is shared by all clients; `each` has an item
  per cohort with arrays [N, ...]. Returns the results, also an item per cohort
  with arrays [N, ...].
  """
  computed, on_cpu = slots(fleet), target.current().platform == "cpu"

  def on_device(common, each):
    out = []
    for c, part in enumerate(each):

      def of(mine, c=c):
        return one(c, common, mine)

      # As many clients at a time as a round trains, which may be few of all.
      # On a CPU one, without a client axis, even if a round trains all at once.
      chunk = fleet.cohorts[c].chunk or -(-computed[c] // fleet.devices)
      if chunk <= 1 or on_cpu:
        out.append(jax.lax.map(of, part))
      elif chunk >= len(fleet.cohorts[c].places) // fleet.devices:
        out.append(jax.vmap(of)(part))
      else:
        out.append(jax.lax.map(of, part, batch_size=chunk))
    return out

  into = (sharding.COPIED, sharding.DIVIDED)
  return sharding.on_each(on_device, mesh, into, sharding.DIVIDED)(
    common, list(each)
  )


def _in_order(fleet: Fleet, numbers: Sequence[Array]) -> Array:
  """Finds each client's row in the joined cohorts: [num_clients] int32.

  `numbers` has the client numbers of each cohort, [N] int32. Padding clients
  repeat a number and are skipped.
  """
  real = np.concatenate(
    [np.arange(len(c.places)) < len(c.ids) for c in fleet.cohorts]
  )
  places = jnp.asarray(np.flatnonzero(real))
  return places[jnp.argsort(jnp.concatenate(numbers)[places])]


def make_evaluate(
  method: Method,
  plans: tuple[BatchPlan, ...],
  fleet: Fleet,
  *,
  gather: Callable = gather_images,
  probabilities: bool = False,
  mesh: Mesh | None = None,
  jit: Callable[..., Any] = jax.jit,
) -> Any:
  """Compiles the evaluation of a method's clients.

  Args:
    method: the trained method.
    plans: one for each cohort.
    fleet: the clients.
    gather: (image, a chunk of `shown`) -> [B', ...], the inputs that a client
      is evaluated on. `image` and `shown` are described below.
    probabilities: whether Exits keep probabilities.
    mesh: the devices; None for one.
    jit: as in `make_round`.

  Returns:
    A jitted function (clients, server, numbers, image, shown, first) -> Exits,
    arrays [N, chunks * B'] in the order of the clients' numbers. `clients` and
    `numbers` ([N] int32) have one entry per cohort. `image` [P, ...] has the
    inputs. `shown` [N, chunks, B] int32 has, for each client, the rows of
    `image` that it is evaluated on. `first` [N] int32 says how many chunks are
    computed for each client; None: all.
  """

  def one(c, common, mine):
    (server, image), (client, (shown, first)) = common, mine

    def chunk(rows):
      x = standardise(gather(image, rows), plans[c].mean, plans[c].std)
      return to_exits(method.predict(client, server, x), probabilities)

    return first_outputs(chunk, shown, first)

  def evaluate(clients, server, numbers, image, shown, first=None):
    order = _in_order(fleet, numbers)
    if first is None:
      rows = jax.tree.leaves(shown)[0]
      first = jnp.full(len(rows), rows.shape[1], jnp.int32)
    own = [trees.take((shown, first), n) for n in numbers]
    # All clients share the answers: compute them once, then take samples.
    if method.traits.pick and gather is gather_images:
      real, size = without_padding(fleet, clients), shown.shape[-1]
      outputs = picked_outputs(
        method, plans[0], real, server, image, size, probabilities
      )
      cohorts = [
        trees.take(outputs, rows.reshape(len(rows), -1)) for rows, _ in own
      ]
    else:
      each = list(zip(clients, own, strict=True))
      cohorts = map_clients(one, fleet, mesh, (server, image), each)
    return jax.tree.map(lambda *x: jnp.concatenate(x)[order], *cohorts)

  return jit(
    evaluate, out_shardings=sharding.client_sharding(mesh, sharding.COPIED)
  )
