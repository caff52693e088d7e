"""Parts of a round that all topologies share: inputs, sums, faults, masks."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees, wire
from splitjax.data.feed import BatchPlan
from splitjax.engine.faults import NO_FAULT, ClientFault
from splitjax.types import Array, Half, Ledger, Method, Shard, Sums, Tree

ROUND, TUNE, FAULT = 0, 1, 2
"""Numbers folded into the run's key, one for each purpose of random draws."""

SMALL = 2**14
"""Maximum size of a leaf that `finite` joins with other leaves."""

LARGEST = 1e30
"""A leaf whose absolute values sum to this or more is treated as non-finite,
because a sum over clients, weighted by their samples, might overflow."""


def client_keys(key: Array, numbers: Array) -> Array:
  """Derives the clients' keys [N] from `key` and their `numbers`, [N] int32."""
  return jax.vmap(lambda i: jax.random.fold_in(key, i))(numbers)


def over_clients(one: Callable, *args: Tree) -> Tree:
  """Maps `one`, a function of a single client, over n clients.

  All leaves are [n, ...]. `vmap` is used only if n > 1: without it, a condition
  computes one branch only, and gradients keep the layout of the parameters.
  """
  if jax.tree.leaves(args)[0].shape[0] > 1:
    return jax.vmap(one)(*args)
  return jax.tree.map(lambda x: jnp.asarray(x)[None], one(*trees.take(args, 0)))


class Topology(NamedTuple):
  """How clients and server work together; static to the compiled round.

  Attributes:
    round: (CohortSpec, RoundInputs, Participants) -> ((clients, flags [n]),
      sums). Trains a cohort and returns as `parallel.train_cohort` does.
    one_server: whether all clients train with one shared server. `begin` and
      `finish` of a method must then change the server in the same way for every
      client. All clients must have the same depth; only one stage and one
      device are possible. False: every client trains with its own server copy.
    in_turn: whether clients are served one after another, in the config's
      `order` (Shard.service_order).
    hands_on: whether one client half is handed from client to client.
    all_at_once: whether a method's step takes the halves, batches and keys of
      all clients, stacked [N, ...]. The step's losses and ledger are then [N].
  """

  round: Callable
  one_server: bool = False
  in_turn: bool = False
  hands_on: bool = False
  all_at_once: bool = False


class CohortSpec(NamedTuple):
  """Settings of one cohort's training; static to the compiled round.

  Attributes:
    method: the method.
    topology: the topology of the method.
    plan: batches and epochs.
    chunk: number of clients that a device trains at a time; None for all.
    num_clients: number of clients in all cohorts of the fleet.
    partial: whether some clients are padding or unsampled; these take no step.
  """

  method: Method
  topology: Topology
  plan: BatchPlan
  chunk: int | None
  num_clients: int
  partial: bool = False


class Participants(NamedTuple):
  """The n clients of one cohort that a device trains; all arrays are [n, ...].

  Attributes:
    clients: their halves.
    data: their Shard without its first fields, image and label.
    active: [n] bool, False for a padding slot or a client that was not sampled.
    keys: the clients' keys in this round; () before `draws.draw_together`.
    drawn: a Drawn made from `keys`; () before `draws.draw_together`.
  """

  clients: Half
  data: tuple[Array, ...]
  active: Array
  keys: Tree = ()
  drawn: Tree = ()


class RoundInputs(NamedTuple):
  """Inputs that all clients of a round share.

  Attributes:
    server: the server's half, unstacked.
    image: [Z, ...], inputs of the training split.
    label: [Z] int32, labels of the training split.
    round: [] int32.
    key: [] key from which the clients' keys of this round are derived.
  """

  server: Half
  image: Array
  label: Array
  round: Array
  key: Array

  def shard(self, data: tuple[Array, ...]) -> Shard:
    """Makes the shard of one client or several from `Participants.data`."""
    return Shard(self.image, self.label, *data)


class RoundSums(NamedTuple):
  """Sums over the participants of a round; additive over clients.

  Arrays [num_clients] are indexed by client number.

  Attributes:
    updates: sums for the aggregation.
    losses: name -> [] float, sum over the unmasked clients with this loss.
    loss_counts: name -> [] float, number of clients added up in `losses`.
    ledger: bytes sent.
    participants: [] float, number of participants.
    masked: [num_clients] float, 1 for a participant with a non-finite update.
    bytes: [num_clients] float, sent and received.
    steps: [num_clients] float, local steps taken.
    alone: [num_clients] float, local steps without the server.
    faults: kind -> [] float, number of clients of this kind: "dropped" (a fault
      excluded them), "stragglers", "alone" (they took a step without the
      server); () without faults.
  """

  updates: Sums
  losses: dict[str, Array]
  loss_counts: dict[str, Array]
  ledger: Ledger
  participants: Array
  masked: Array
  bytes: Array
  steps: Array
  alone: Array
  faults: Tree = ()


class Metrics(NamedTuple):
  """Metrics of one round; arrays [num_clients] are indexed by client number.

  Attributes:
    losses: name -> [] float, nats. Each client's mean over its local steps,
      averaged without weights over the participants that have this loss and are
      not masked; NaN without such participants.
    wire: message name -> [] float, bytes, summed over the participants.
    participants: [] int32.
    masked: [num_clients] bool, True if a non-finite update was left out.
    bytes: [num_clients] float, sent and received.
    steps: [num_clients] float, local steps taken.
    alone: [num_clients] float, local steps without the server.
    faults: "dropped", "stragglers" and "alone" -> [] int32, see RoundSums; ()
      without faults.
  """

  losses: dict[str, Array]
  wire: Ledger
  participants: Array
  masked: Array
  bytes: Array
  steps: Array
  alone: Array
  faults: Tree = ()


def sum_clients(spec: CohortSpec, number: Array, each: RoundSums) -> RoundSums:
  """Adds up the RoundSums of n clients.

  The leaves of `each` are [n, ...], and `number` [n] has the clients' numbers.
  In the result, arrays [num_clients] have each client's value at its number.
  """

  def listed(values):
    return jnp.zeros(spec.num_clients).at[number].add(values)

  by_number = {
    name: jax.tree.map(listed, getattr(each, name))
    for name in ("masked", "bytes", "steps", "alone")
  }
  return trees.total(each)._replace(**by_number)


def add_sums(a: RoundSums, b: RoundSums) -> RoundSums:
  """Adds the sums of two cohorts; keeps names that only one of them has."""
  return RoundSums(
    Sums(*map(trees.union_add, a.updates, b.updates)),
    trees.union_add(a.losses, b.losses),
    trees.union_add(a.loss_counts, b.loss_counts),
    wire.merge(a.ledger, b.ledger),
    a.participants + b.participants,
    a.masked + b.masked,
    a.bytes + b.bytes,
    a.steps + b.steps,
    a.alone + b.alone,
    trees.add(a.faults, b.faults),
  )


def finite(tree: Tree) -> Array:
  """Tells whether all floats are finite and not too large to sum: [] bool.

  The absolute values in each leaf must sum to less than LARGEST. For this test
  all leaves that have at most SMALL numbers are joined to one leaf.
  """
  floats = [
    x.astype(float)
    for x in jax.tree.leaves(tree)
    if jnp.issubdtype(x.dtype, jnp.floating)
  ]
  # Small leaves are joined first: reducing each by itself took a twelfth of the
  # compile time of HARMONY's round. Joining large ones would cost memory.
  joined = [jnp.zeros(1), *(x.ravel() for x in floats if x.size <= SMALL)]
  parts = [jax.lax.optimization_barrier(jnp.concatenate(joined))]
  parts += [x for x in floats if x.size > SMALL]
  # A sum, because on a CPU a maximum would pass over NaN. Comparisons with NaN
  # are False.
  every = jnp.stack([jnp.abs(x).sum() for x in parts]) < LARGEST
  # A loop: XLA would duplicate a plain reduction in front of every leaf that
  # depends on the result, and compile time would grow with leaves squared.
  return jax.lax.scan(lambda a, b: (a & b, None), every[0], every)[0]


def needs_server(method: Method) -> bool:
  """Tells whether training needs a server, that is, if networks are cut."""
  return method.traits.depth == "cut" or method.cuts is not None


def apply_faults(
  spec: CohortSpec, inputs: RoundInputs, shard: Shard, active: Array
) -> tuple[ClientFault, Array, Tree]:
  """Finds one client's faults and decides whether it participates.

  `shard` is the client's data; `active` [] bool tells whether it was sampled.
  Returns the client's faults; whether it participates, [] bool; and its
  RoundSums.faults.
  """
  if not shard.faults:
    return NO_FAULT, active, ()
  fault = jax.tree.map(lambda x: x[inputs.round], shard.faults)
  if not needs_server(spec.method):
    fault = fault._replace(server_down=None)

  # A client does not participate if it is dropped, or cannot train without the
  # server while the server is unavailable.
  never, participating = jnp.bool_(False), active
  if fault.dropped is not None:
    participating &= ~fault.dropped
  down = fault.server_down
  alone = never if down is None else participating & down
  if any(stage.alone is None for stage in spec.method.stages):
    participating, alone = participating & ~alone, never

  # Count the faults.
  slow = never if fault.share is None else participating & (fault.share < 1)
  flags = {
    "dropped": active & ~participating,
    "stragglers": slow,
    "alone": alone,
  }
  counts = {name: flag.astype(float) for name, flag in flags.items()}
  return fault, participating, counts
