"""A round as one program: sample, train, write back, aggregate.

The method is an argument like the state: its floats are data, and a compiled
round serves all their values.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh

from splitjax import trees
from splitjax.data.feed import BatchPlan
from splitjax.engine import devices
from splitjax.engine.devices import COPIED, DIVIDED
from splitjax.engine.faults import NO_FAULTS, FaultTable, strike
from splitjax.engine.loops import loop_of, one_server
from splitjax.engine.schedules import draws_of, fold
from splitjax.engine.visit import Common, Group, Report, Visit, finite
from splitjax.fleet.fleets import CohortShape, Layout
from splitjax.methods import nets
from splitjax.methods.method import Method, Shares, means_of
from splitjax.models import network
from splitjax.models.network import is_exit
from splitjax.types import (
  NO_BLOCKS,
  Client,
  Metrics,
  Net,
  Shard,
  State,
  UserError,
)

ROUND, TUNE, FAULT = range(3)
"""Numbers folded into the run's key, one for each purpose of random draws."""

SAMPLE, CLIENTS = range(2)
"""Numbers that follow ROUND and the round's own: who takes part, and the key
from which the clients' keys are derived."""


class Sample(NamedTuple):
  """The n clients of a cohort that a round computes."""

  #: [n] their rows in the cohort, padded with its width; None: all in order
  rows: Array | None
  active: Array  #: [n] bool, whether they participate


def start(method: Method, layout: Layout, full: Net, key: Array) -> State:
  """Makes the state before the first round from the initial network `full`."""
  clients = []
  shared = NO_BLOCKS
  for cohort in layout.cohorts:
    part = network.prefix(
      method.backbone, full, cohort.depth, with_exit=method.exits
    )
    shared = Net(shared.params | part.params, shared.stats | part.stats)
    client = method.first_client(part, layout.size)
    clients.append(trees.repeat(client, cohort.width))
  server = method.first_server(full, shared, layout.size)
  outer: Any = ()
  if method.outer is not None:
    blocks = {name for name in shared.params if not is_exit(name)}
    if blocks <= server.net.params.keys():
      raise UserError(
        "mean_optimizer: clients and server share their parameters, so the"
        " mean is not one over clients alone; leave mean_optimizer.name None"
      )
    outer = method.outer.start(server, topology=method.topology)
  return State(
    round=jnp.int32(0),
    key=key,
    clients=tuple(clients),
    server=server,
    outer=outer,
  )


@functools.partial(
  jax.jit, static_argnames=("layout", "plans", "mesh"), donate_argnames="state"
)
def run_round(
  method: Method,
  state: State,
  shards: tuple[Shard, ...],
  faults: FaultTable = NO_FAULTS,
  *,
  layout: Layout,
  plans: tuple[BatchPlan, ...],
  mesh: Mesh | None = None,
) -> tuple[State, Metrics]:
  """Runs a round; the state is donated.

  Clients train on the device that holds them; devices exchange only sums over
  clients, and clients if few of many are sampled. A round with one server uses
  one device and clients of one depth, because its loop over clients cannot
  index trees of different shapes.

  Args:
    method: its floats are data, the rest shapes the program.
    state: before the round.
    shards: of each cohort, leaves [N, ...]; image and label [Z, ...].
    faults: drawn faults, data.
    layout: the cohorts, static.
    plans: batches of each cohort, static.
    mesh: the devices; None for one.
  """
  if one_server(method):
    _one_of(len(layout.cohorts), "depth of the clients")
    _one_of(layout.devices, "device")
    _one_of(len(method.stages()), "stage")
  method = method.at(state.round)
  paths = [(ROUND, state.round, use) for use in (SAMPLE, CLIENTS)]
  sample_key, client_key = fold(state.key, *paths)

  # Sample the clients of every cohort, and gather them.
  samples = sample(layout, sample_key, [shard.number for shard in shards])
  visits = tuple(map(gather, state.clients, shards, samples))

  # Train them, each device its own part.
  common = Common(
    server=state.server,
    image=shards[0].image,
    label=shards[0].label,
    round=state.round,
    key=client_key,
  )
  train = devices.over_devices(
    functools.partial(train_cohorts, layout, plans, mesh),
    mesh,
    into=(COPIED, COPIED, COPIED, DIVIDED),
    out=(DIVIDED, COPIED),
  )
  trained, sums = train(method, faults, common, visits)

  # Write them back to their places.
  pairs = map(scatter, layout.cohorts, state.clients, samples, trained)
  clients, counted = zip(*pairs, strict=True)

  # Aggregate.
  state, sound = aggregate(method, state, clients, counted, sums.shares)
  return devices.laid_out(state, mesh), _metrics_of(sums, ~sound)


def _one_of(count: int, what: str) -> None:
  if count != 1:
    raise UserError(
      f"one server serves all clients in turns or together, so there must be"
      f" one {what}, not {count}"
    )


def sample(
  layout: Layout, key: Array, numbers: Sequence[Array]
) -> tuple[Sample, ...]:
  """Samples P of all N clients; `numbers` [N] are each cohort's, padded."""
  if not layout.partial:
    everyone = [jnp.ones(cohort.size, bool) for cohort in layout.cohorts]
    return tuple(map(_all_places, layout.cohorts, everyone))

  # The participants are the first P clients of a random order.
  rank = jax.random.permutation(key, layout.size)
  samples = []
  for cohort, number in zip(layout.cohorts, numbers, strict=True):
    position = rank[number[: cohort.size]]
    active = position < layout.participants
    most = layout.computed(cohort)
    extra = -most % (layout.devices * (cohort.chunk or 1))
    if most + extra >= cohort.width:  # whole chunks on all devices: no fewer
      samples.append(_all_places(cohort, active))
      continue
    # Gather the first of them.
    chosen = jnp.argsort(position)[:most]
    # Padding: a row beyond the end, which reads the last client, does not
    # train, and whose write is dropped (`trees.put`).
    beyond = jnp.full(extra, cohort.width, chosen.dtype)
    rows = jnp.concatenate([chosen, beyond])
    on = jnp.concatenate([active[chosen], jnp.zeros(extra, bool)])
    # The sampled clients come first: deal them to the devices in turn, because
    # in order one device might train all of them and another none.
    turns = jnp.arange(len(rows)).reshape(-1, layout.devices).T.reshape(-1)
    samples.append(Sample(rows=rows[turns], active=on[turns]))
  return tuple(samples)


def _all_places(cohort: CohortShape, active: Array) -> Sample:
  """Makes a sample of all places; `active` [N] bool is without padding."""
  padding = jnp.zeros(cohort.width - cohort.size, bool)
  return Sample(rows=None, active=jnp.concatenate([active, padding]))


def gather(clients: Client, shard: Shard, sample: Sample) -> Visit:
  """Gathers the clients of a cohort that a round computes."""
  none: Any = ()
  shard = shard._replace(image=none, label=none)  # all clients share them
  if sample.rows is not None:
    clients, shard = trees.take((clients, shard), sample.rows)
  return Visit(client=clients, shard=shard, sampled=sample.active, struck=none)


def train_cohorts(
  layout: Layout,
  plans: tuple[BatchPlan, ...],
  mesh: Mesh | None,
  method: Method,
  faults: FaultTable,
  common: Common,
  visits: tuple[Visit, ...],
) -> tuple[tuple[tuple[Client, Array], ...], Report]:
  """Trains a device's part of all cohorts -> clients, sums over all clients.

  Whom simulated faults leave out or slow down, `strike` finds; `draws_of` makes
  the random orders of the clients' samples.
  """
  find = jax.vmap(functools.partial(strike, faults, method, common.round))
  shards = [visit.shard for visit in visits]
  draws = draws_of(method, plans[0], common.key, shards)
  loop = loop_of(method)

  trained = []
  reports = []
  cohorts = zip(plans, layout.cohorts, visits, draws, strict=True)
  for plan, cohort, visit, of_cohort in cohorts:
    struck = find(visit.shard.number, visit.sampled)
    # A device that trains a single client at a time skips padding clients.
    skips = cohort.chunk == 1 and cohort.width > cohort.size
    group = Group(
      method=method,
      plan=plan,
      layout=layout,
      cohort=cohort,
      idle=layout.partial or faults.possible or skips,
      common=common,
      visits=visit._replace(struck=struck, draws=of_cohort),
    )
    clients, report = loop(group)  # summed over the clients of the cohort
    trained.append(clients)
    reports.append(report)
  # A block that only clients of one depth have has the sums of their cohort.
  sums = functools.reduce(nets.add, reports)
  if mesh is not None:  # the round's one exchange between devices
    sums = jax.lax.psum(sums, devices.AXIS)
  return tuple(trained), sums


def scatter(
  cohort: CohortShape,
  clients: Client,
  sample: Sample,
  trained: tuple[Client, Array],
) -> tuple[Client, Array]:
  """Puts trained clients back -> all of the cohort, whose updates count."""
  if sample.rows is None:
    return trained
  nobody = jnp.zeros(cohort.width, bool)
  return trees.put((clients, nobody), sample.rows, trained)


def aggregate(
  method: Method,
  state: State,
  clients: tuple[Client, ...],
  counted: tuple[Array, ...],
  shares: Shares,
) -> tuple[State, Array]:
  """Ends a round: the means over clients, then `Method.merge`.

  A mean is, block by block, sum_n w_n x_n / sum_n w_n of the clients' shares;
  a block of which nobody has a share stays. If a step of the server on means
  overflows, its network stays. Returns the next state, and whether all such
  steps were finite, [] bool.
  """
  old = state.server
  outer = state.outer
  sound = jnp.bool_(True)
  server = old._replace(
    net=means_of(shares["net"], old.net),
    common=means_of(shares.get("common", NO_BLOCKS), old.common),
  )
  if method.outer is not None:  # FedAvgM, FedAdam, FedYogi
    outer, server = method.outer.step(outer, old, server, shares)
    sound = finite((server.net, server.common, outer))
    server = trees.where(sound, server, old)
    outer = trees.where(sound, outer, state.outer)
  # Clients and sums are finite: who is masked is as before the round.
  merged, clients = method.merge(server, shares, clients, counted)
  if merged.net is not server.net or merged.common is not server.common:
    sound &= finite((merged.net, merged.common))
    merged = trees.where(sound, merged, server)
  state = state._replace(
    round=state.round + 1, clients=clients, server=merged, outer=outer
  )
  return state, sound


def _metrics_of(sums: Report, undone: Array) -> Metrics:
  """Makes a round's metrics from sums over its clients."""
  return Metrics(
    losses=jax.tree.map(jnp.divide, sums.losses, sums.with_loss),
    wire=sums.wire,
    participants=sums.participants.astype(jnp.int32),
    masked=sums.masked > 0,
    undone=undone,
    bytes=sums.bytes,
    steps=sums.steps,
    alone=sums.alone,
    faults=jax.tree.map(lambda x: x.astype(jnp.int32), sums.faults),
  )
