"""From networks to the answers of both exits, as one compiled program.

Each client's networks run once over the samples of its test sets: its blocks
and its exit, then the server's blocks and head (`Method.predict`). `to_exits`
keeps of the logits what the gate needs (`gate.offloads`). Networks are made
where they run, so that clients that start from a mean need no copies of it.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding

from splitjax import losses, target, trees
from splitjax.data.feed import BatchPlan, Samples, standardise
from splitjax.engine import devices
from splitjax.engine.round import TUNE
from splitjax.fleet.fleets import Layout
from splitjax.methods.method import Method
from splitjax.models import network, sizes
from splitjax.models.network import Backbone
from splitjax.types import Client, Logits, Net, Server, Shard, State, Tree

Values = Array | np.ndarray


class Exits(NamedTuple):
  """Predictions of both exits for every sample; see `both_logits`."""

  entropy: Values  #: [N, M] float32, of the client's exit, nats
  confidence: Values  #: [N, M] float32, its largest softmax value
  client: Values  #: [N, M] int32, its prediction
  server: Values  #: [N, M] int32, the server's prediction
  #: [N, M, 2, C] float32, the softmax of the client's exit and of the server;
  #: None unless a metric needs them
  probabilities: Values | None = None
  #: [N, M, 2] bool, whether the logits of client and server are finite
  finite: Values | None = None


class Outputs(NamedTuple):
  """Predictions of one result row's networks."""

  test: Exits  #: [N, M], of the test samples
  #: [N, H], of held-out samples; None unless thresholds are calibrated on them
  holdout: Exits | None = None
  proxy: Exits | None = None  #: [N, H], of their proxies (`gate.calibration`)


@functools.partial(
  jax.jit,
  static_argnames=("layout", "plans", "probabilities", "mesh", "answer"),
)
def evaluate_clients(
  method: Method,
  clients: tuple[Client, ...],
  server: Server,
  personal: tuple[Net, ...] | None,
  numbers: tuple[Array, ...],
  image: Array,
  shown: Array,
  chunks: Array | None = None,
  *,
  layout: Layout,
  plans: tuple[BatchPlan, ...],
  probabilities: bool = False,
  mesh: Mesh | None = None,
  answer: Callable[[Backbone, Net, Net, Array], Tree] | None = None,
) -> Any:
  """Evaluates all clients of a method after a round.

  `clients`, `personal` and `numbers` have an item for each cohort: leaves
  [N, ...], personalised networks [N, ...] (None: those that `Method.model`
  makes), and the clients' numbers [N] int32. Of the inputs `image` [P, ...]
  client n sees the rows `shown[n]`, [chunks, B] int32, but only its leading
  `chunks[n]` chunks (None: all). `answer`, a function (backbone, the client's
  network, the server's, standardised inputs [B]) -> leaves [B, ...], is
  computed in the place of Exits.

  Returns Exits of arrays [N, chunks * B], by client number.
  """
  if chunks is None:
    chunks = jnp.full(len(shown), shown.shape[1], jnp.int32)
  tables = [trees.take((shown, chunks), number) for number in numbers]

  nets: Sequence = (None,) * len(clients) if personal is None else personal
  paths = [
    trees.take(stacked, slice(cohort.size))  # without padding
    for stacked, cohort in zip(clients, layout.cohorts, strict=True)
  ]
  cohorts = _map_clients(
    functools.partial(_client_exits, answer, probabilities),
    layout,
    plans,
    mesh,
    (method, server, image, paths if method.pick else ()),
    list(zip(clients, nets, tables, strict=True)),
  )
  return copied(by_number(cohorts, numbers, layout), mesh)


def _client_exits(
  answer: Callable[[Backbone, Net, Net, Array], Tree] | None,
  probabilities: bool,
  plan: BatchPlan,
  common: tuple[Method, Server, Array, Sequence[Client]],
  of_client: tuple[Client, Net | None, tuple[Array, Array]],
) -> Tree:
  """Computes the Exits of one client, or what `answer` computes instead."""
  method, server, image, paths = common
  client, personal, (rows, count) = of_client
  net = method.model(client, server) if personal is None else personal
  theta = method.part_two(client, server)

  def chunk(i):
    x = standardise(image[rows[i]], plan.mean, plan.std)
    if answer is not None:
      return answer(method.backbone, net, theta, x)
    logits = both_logits(method, net, theta, x, paths, server)
    return to_exits(logits, probabilities)

  # Only the leading chunks are computed.
  outputs = trees.repeat(trees.zeros(jax.eval_shape(chunk, 0)), len(rows))
  outputs = jax.lax.fori_loop(
    0, count, lambda i, filled: trees.put(filled, i, chunk(i)), outputs
  )
  return jax.tree.map(lambda x: jax.lax.collapse(x, 0, 2), outputs)


def both_logits(
  method: Method,
  net: Net,
  theta: Net,
  x: Array,
  clients: Sequence[Client],
  server: Server,
) -> Logits:
  """Computes the logits [B, C] of a client's exit and of the server.

  `net` and `theta` are the client's network and the server's for it. Where the
  client's exit does not answer, the server's logits stand for both. If the
  method has `pick`, the most confident path of all `clients` (by cohort, not
  padded) answers in their place: argmax_n max_c softmax(logits_n)_c. Hydra's
  code compares the logits themselves, although those of different networks
  have no common scale.
  """
  if not method.pick:
    logits = method.predict(net, theta, x)
    if "client" in method.answers:
      return logits
    # Clients that share an evaluation may have other exits.
    return Logits(client=logits.server, server=logits.server)
  paths = jnp.concatenate([method.paths(part, server, x) for part in clients])
  best = jax.nn.softmax(paths).max(axis=-1).argmax(axis=0)
  path = jnp.take_along_axis(paths, best[None, :, None], axis=0)[0]
  return Logits(client=path, server=path)


def by_number(
  cohorts: Sequence[Tree], numbers: tuple[Array, ...], layout: Layout
) -> Any:
  """Joins the cohorts' results by client number, [N, ...], without padding."""
  real = [np.arange(cohort.width) < cohort.size for cohort in layout.cohorts]
  rows = jnp.asarray(np.flatnonzero(np.concatenate(real)))
  number = jnp.concatenate(numbers)[rows]
  order = rows[jnp.argsort(number)]
  return jax.tree.map(lambda *x: jnp.concatenate(x)[order], *cohorts)


def to_exits(logits: Logits, probabilities: bool = False) -> Exits:
  """Reduces the logits [B, C] of both exits to Exits of arrays [B].

  With p the softmax at the client, entropy is -sum_c p_c log p_c, in nats.
  """
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
    finite=jnp.stack([jnp.isfinite(x).all(axis=-1) for x in logits], axis=-1),
  )


def alike(method: Method, depth: int) -> bool:
  """Tells whether all clients of a depth give the same answers after a round.

  They do if one path answers for all (`pick`), or if a client keeps no
  parameter or statistic that answers and the server has one network for all.
  """
  if method.pick:
    return True
  if type(method).part_two is not Method.part_two:
    return False
  full = sizes.shapes(method.backbone)
  part = network.prefix(method.backbone, full, depth, with_exit=method.exits)
  keeps = jax.eval_shape(lambda net: method.first_client(net, 1), part).net
  return not any(
    jax.tree.leaves([net.get(name) for net in keeps])
    for name in keeps.params | keeps.stats
    if "client" in method.answers or not network.is_exit(name)
  )


# Personalised copies, which are made before they are evaluated.


@functools.partial(jax.jit, static_argnames=("layout", "plans", "mesh"))
def personalise_clients(
  method: Method,
  state: State,
  shards: tuple[Shard, ...],
  *,
  layout: Layout,
  plans: tuple[BatchPlan, ...],
  mesh: Mesh | None = None,
) -> tuple[Net, ...]:
  """Makes the networks that answer in a personal row, by cohort, [N, ...].

  The state stays as it is. Arguments are those of `engine.round.run_round`.
  """

  def of_client(plan, common, part):
    method, server, image, label, key = common
    client, shard = part
    key = jax.random.fold_in(key, shard.number)
    shard = shard._replace(image=image, label=label)
    return method.personalise(client, server, Samples(shard, plan), key)

  key = tuning_key(state.key, state.round)
  shared: Any = ()  # image and label, which all clients share
  stacked = [
    (clients, shard._replace(image=shared, label=shared))
    for clients, shard in zip(state.clients, shards, strict=True)
  ]
  common = method, state.server, shards[0].image, shards[0].label, key
  return tuple(_map_clients(of_client, layout, plans, mesh, common, stacked))


def tuning_key(key: Array, round: Array) -> Array:
  """Derives a round's key of personalisation; a client folds its number in."""
  return jax.random.fold_in(jax.random.fold_in(key, TUNE), round)


# Over the clients.


def chunked(rows: np.ndarray, size: int) -> np.ndarray:
  """Cuts [N, K] into [N, chunks, size] int32, padded with row 0."""
  clients, count = rows.shape
  size = min(size, count)
  chunks = -(-count // size)
  padded = np.pad(np.maximum(rows, 0), ((0, 0), (0, chunks * size - count)))
  return padded.reshape(clients, chunks, size)


def _map_clients(
  function: Callable,
  layout: Layout,
  plans: Sequence[BatchPlan],
  mesh: Mesh | None,
  common: Tree,
  stacked: Sequence[Tree],
) -> list[Any]:
  """Applies a function to every client, on the device that holds it.

  The function takes the plan of the client's cohort, `common`, which all
  clients share, and the client's part of `stacked`, an item [N, ...] for each
  cohort, as are the results. Other traced arrays it must not use.
  """
  on_cpu = target.current().platform == "cpu"

  def on_device(common, stacked):
    results = []
    for cohort, plan, part in zip(layout.cohorts, plans, stacked, strict=True):

      def of_client(client, plan=plan):
        return function(plan, common, client)

      # As many clients at a time as a round trains, which may be few of all.
      # On a CPU one, without a client axis, even if a round trains all at once.
      chunk = cohort.chunk or -(-layout.computed(cohort) // layout.devices)
      side_by_side = None if on_cpu or chunk == 1 else chunk
      if side_by_side and chunk >= cohort.width // layout.devices:
        results.append(jax.vmap(of_client)(part))
      else:
        results.append(jax.lax.map(of_client, part, batch_size=side_by_side))
    return results

  into = (devices.COPIED, devices.DIVIDED)
  return devices.over_devices(on_device, mesh, into, devices.DIVIDED)(
    common, list(stacked)
  )


def copied(tree: Tree, mesh: Mesh | None) -> Tree:
  """Copies results to all devices, inside a program."""
  if mesh is None:
    return tree
  everywhere = NamedSharding(mesh, devices.COPIED)
  return jax.lax.with_sharding_constraint(tree, everywhere)
