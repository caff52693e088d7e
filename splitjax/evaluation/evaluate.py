"""The outputs of both exits on all test samples, as one compiled program.

Every client's networks run once over the samples of its test sets. Thresholds,
ratios and metrics are then arithmetic on their outputs (`early_exit`,
`metrics`). A client's network is made where it runs, so that clients that start
from a mean need no copies of it.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding

from splitjax import losses, target, trees
from splitjax.data.feed import BatchPlan, standardise
from splitjax.engine import devices
from splitjax.engine.layout import CohortShape, Layout
from splitjax.evaluation.confident_path import most_confident_path
from splitjax.evaluation.exits import Exits
from splitjax.methods.method import Method
from splitjax.models import network, sizes
from splitjax.models.network import is_exit
from splitjax.types import Client, Logits, Net, Server, Tree


def gather_images(image: Array, rows: Array) -> Array:
  """Gathers the inputs [B, ...] of rows [B]."""
  return image[rows]


@functools.partial(
  jax.jit,
  static_argnames=("layout", "plans", "gather", "probabilities", "mesh"),
)
def evaluate_clients(
  method: Method,
  clients: tuple[Client, ...],
  server: Server,
  personal: tuple[Net, ...] | None,
  numbers: tuple[Array, ...],
  image: Array,
  shown: Tree,
  first: Array | None = None,
  *,
  layout: Layout,
  plans: tuple[BatchPlan, ...],
  gather: Callable[[Array, Tree], Array] = gather_images,
  probabilities: bool = False,
  mesh: Mesh | None = None,
) -> Exits:
  """Evaluates all clients of a trained method.

  Args:
    method: the trained method.
    clients: of each cohort, leaves [N, ...].
    server: as it is after a round.
    personal: for each cohort the clients' personalised networks [N, ...]; None:
      their networks as `Method.model` makes them.
    numbers: of each cohort's clients, [N] int32.
    image: [P, ...], the inputs.
    shown: [N, chunks, B] int32, by client number the rows of `image` that each
      is evaluated on.
    first: [N] int32, how many chunks are computed for each client; None: all.
    layout: the cohorts, static.
    plans: of each cohort, static.
    gather: (image, a chunk of `shown`) -> [B', ...], the inputs that a client
      is evaluated on.
    probabilities: whether Exits keep probabilities.
    mesh: the devices; None for one.

  Returns:
    Exits of arrays [N, chunks * B'], by client number.
  """
  if first is None:
    rows = jax.tree.leaves(shown)[0]
    first = jnp.full(len(rows), rows.shape[1], jnp.int32)
  rows_of = [trees.take((shown, first), number) for number in numbers]

  if method.pick and gather is gather_images:
    # All clients share the answers: compute them once, then take samples.
    size = jax.tree.leaves(shown)[0].shape[-1]
    real = [
      trees.window(stacked, 0, cohort.size)
      for stacked, cohort in zip(clients, layout.cohorts, strict=True)
    ]
    outputs = picked_outputs(
      method, plans[0], real, server, image, size, probabilities
    )
    cohorts = [
      trees.take(outputs, rows.reshape(len(rows), -1)) for rows, _ in rows_of
    ]
  else:

    def exits_of(plan, common, of_client):
      method, server, image = common
      client, personal, (rows, first) = of_client
      net, rest = answering(method, client, server, personal)

      def chunk(rows):
        x = standardise(gather(image, rows), plan.mean, plan.std)
        return to_exits(method.predict(net, rest, x), probabilities)

      return leading_outputs(chunk, rows, first)

    nets: Sequence = (None,) * len(clients) if personal is None else personal
    cohorts = map_clients(
      exits_of,
      layout,
      plans,
      mesh,
      (method, server, image),
      list(zip(clients, nets, rows_of, strict=True)),
    )

  order = in_order(layout.cohorts, numbers)
  exits = jax.tree.map(lambda *x: jnp.concatenate(x)[order], *cohorts)
  return copied(exits, mesh)


def answering(
  method: Method, client: Client, server: Server, personal: Net | None = None
) -> tuple[Net, Net]:
  """Makes the networks that answer for a client: its own, and the server's.

  `personal` is the client's personalised network, if it has one.
  """
  net = method.model(client, server) if personal is None else personal
  return net, method.part_two(client, server)


def alike(method: Method, depth: int) -> bool:
  """Tells whether all clients of a depth give the same answers after a round.

  They do if a client keeps no parameter or statistic that answers: none at all,
  or those of an exit alone where only the server answers. Besides, the server
  must have one network for all of them, and no other client's path may answer
  (`pick`). Such clients may share an evaluation. Copies that were personalised
  are never alike.
  """
  if method.pick or type(method).part_two is not Method.part_two:
    return False
  full = sizes.shapes(method.backbone)
  part = network.prefix(method.backbone, full, depth, with_exit=method.exits)
  kept = jax.eval_shape(lambda net: method.first_client(net, 1), part).net
  answers = [
    net[name]
    for net in kept
    for name in net
    if "client" in method.answers or not is_exit(name)
  ]
  return not jax.tree.leaves(answers)


def picked_outputs(
  method: Method,
  plan: BatchPlan,
  clients: Sequence[Client],
  server: Server,
  image: Array,
  batch: int,
  probabilities: bool,
) -> Exits:
  """Computes the most confident path's outputs for all samples of a split.

  `clients` are those of each cohort, without padding; `image` has the inputs
  [P, ...], which pass the networks `batch` at a time. Returns Exits of arrays
  [P].
  """

  def chunk(rows):
    x = standardise(image[rows], plan.mean, plan.std)
    logits = most_confident_path(method, clients, server, x)
    return to_exits(Logits(logits, logits), probabilities)

  size = min(batch, len(image))
  count = -(-len(image) // size)
  rows = jnp.minimum(jnp.arange(count * size), len(image) - 1)
  outputs = jax.lax.map(chunk, rows.reshape(count, size))
  return jax.tree.map(
    lambda x: jax.lax.collapse(x, 0, 2)[: len(image)], outputs
  )


def leading_outputs(chunk: Callable, shown: Tree, count: Array) -> Exits:
  """Computes one client's outputs for its leading chunks only.

  `count` [] is the number of these chunks. `shown` is a pytree of arrays
  [chunks, ...]; `chunk` maps a row of `shown` to Exits [B']. Returns Exits
  of arrays [chunks * B'], which are 0 in the remaining chunks.
  """

  def of(i):
    return chunk(trees.take(shown, i))

  def add(i, outputs):
    return trees.put(outputs, i, of(i))

  chunks = len(jax.tree.leaves(shown)[0])
  nothing = jax.tree.map(
    lambda x: jnp.zeros((chunks, *x.shape), x.dtype), jax.eval_shape(of, 0)
  )
  outputs = jax.lax.fori_loop(0, count, add, nothing)
  return jax.tree.map(lambda x: jax.lax.collapse(x, 0, 2), outputs)


def to_exits(logits: Logits, probabilities: bool = False) -> Exits:
  """Reduces the logits [B, C] of both exits to Exits of arrays [B]."""
  at_client = jax.nn.softmax(logits.client.astype(float))
  both = None
  if probabilities:
    at_server = jax.nn.softmax(logits.server.astype(float))
    both = jnp.stack([at_client, at_server], axis=-2)
  return Exits(
    entropy=losses.entropy(logits.client),
    confidence=at_client.max(axis=-1),
    client=logits.client.argmax(axis=-1).astype(jnp.int32),
    server=logits.server.argmax(axis=-1).astype(jnp.int32),
    probabilities=both,
  )


def map_clients(
  function: Callable,
  layout: Layout,
  plans: Sequence[BatchPlan],
  mesh: Mesh | None,
  common: Tree,
  stacked: Sequence[Tree],
) -> list[Any]:
  """Applies a function to every client, on the device that holds it.

  The function is called with the plan of the client's cohort, with `common`,
  which all clients share, and with the client's part of `stacked`, which has an
  item per cohort with arrays [N, ...]. What it needs of traced arrays must be
  among its arguments. Returns the results, also an item per cohort with arrays
  [N, ...].
  """
  on_cpu = target.current().platform == "cpu"

  def on_device(common, stacked):
    results = []
    for cohort, plan, part in zip(layout.cohorts, plans, stacked, strict=True):

      def of_client(client, plan=plan):
        return function(plan, common, client)

      # As many clients at a time as a round trains, which may be few of all.
      # On a CPU one, without a client axis, even if a round trains all at once.
      held = cohort.places // layout.devices
      chunk = cohort.chunk or -(-layout.computed(cohort) // layout.devices)
      if chunk <= 1 or on_cpu:
        results.append(jax.lax.map(of_client, part))
      elif chunk >= held:
        results.append(jax.vmap(of_client)(part))
      else:
        results.append(jax.lax.map(of_client, part, batch_size=chunk))
    return results

  into = (devices.COPIED, devices.DIVIDED)
  return devices.over_devices(on_device, mesh, into, devices.DIVIDED)(
    common, list(stacked)
  )


def copied(tree: Tree, mesh: Mesh | None) -> Tree:
  """Copies results to all devices, inside a program."""
  if mesh is None:
    return tree
  place = NamedSharding(mesh, devices.COPIED)
  return jax.lax.with_sharding_constraint(tree, place)


def in_order(cohorts: Sequence[CohortShape], numbers: Sequence[Array]) -> Array:
  """Finds each client's row in the joined cohorts: [num_clients] int32.

  `numbers` has the client numbers of each cohort, [N] int32. Padding clients
  repeat a number and are skipped.
  """
  real = np.concatenate(
    [np.arange(cohort.places) < cohort.size for cohort in cohorts]
  )
  places = jnp.asarray(np.flatnonzero(real))
  return places[jnp.argsort(jnp.concatenate(numbers)[places])]
