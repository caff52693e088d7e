"""How much memory a round takes on a device, from shapes; how many at once.

An estimate, before anything is compiled: tests hold it within a fifth of what
XLA says of rounds of the 8-layer CNN, one client at a time or, as "patches",
all at once. Batch normalisation leaves less than is counted here, and HARMONY
"in_turn" with several clients at once more; as do simulated faults, for which
up to an eighth more was seen (a step with the server, and one without).
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.data.feed import Plan, Samples
from splitjax.engine.fleet import Fleet, slots
from splitjax.models import backbone as bb
from splitjax.models.backbone import Backbone
from splitjax.types import Half, Method, Segment, Shard

SHARE = 0.6
"""Of the memory that is there, what a run plans with."""

COPIES, SUMS = 2.25, 1.7
"""Bytes of a client in training, and of a cohort's running sums, over those of
the network: parameters, momentum and what of the gradient is there at once.
Fitted to XLA's own account of SplitGP, HARMONY and FedAvg on a CPU."""


class Need(NamedTuple):
  """Bytes that a training round takes on one device.

  Attributes:
    data: the data set.
    state: its clients' halves, and the server.
    round: what is computed: copies, gradients, momentum, activations, sums.
  """

  data: int
  state: int
  round: int


def need(
  method: Method,
  net: Backbone,
  fleet: Fleet,
  plans: Sequence[Plan],
  data: int,
) -> Need:
  """Estimates what a round takes on one device.

  Args:
    method: what a pair does.
    net: the network.
    fleet: the clients, divided among devices.
    plans: one for each cohort.
    data: bytes of the data set there.
  """
  if method.topology != "parallel":
    return _one_server(method, net, fleet, plans[0], data)
  full = trees.num_bytes(_full(net))
  image = activations(net) * method.views
  held, sums, copies = full, 0.0, 0.0
  batches, chunked = [0], [0.0]
  for cohort, plan, count in zip(
    fleet.cohorts, plans, slots(fleet), strict=True
  ):
    own = trees.num_bytes(bb.prefix(net, _full(net), cohort.depth))
    if method.part_two is not None:  # whose server part lies beside it
      own = full
    held += len(cohort.places) // fleet.devices * own
    each = -(-count // fleet.devices)
    if cohort.chunk is None:
      # What all cohorts end with waits for the sums; activations do not.
      copies += each * COPIES * full
      batches.append(each * plan.batch * image)
    else:
      at_once = min(cohort.chunk, each)
      chunked.append(at_once * (COPIES * full + plan.batch * image))
      sums += SUMS * full
  round = max(copies + max(batches), *chunked) + sums
  return Need(data, held, int(round))


def _one_server(
  method: Method, net: Backbone, fleet: Fleet, plan: Plan, data: int
) -> Need:
  """As `need`, of clients that stand before one server: one turn at a time.

  Merged batches are one turn. Heads of groups are not counted here: `at_server`
  counts them.
  """
  full, (cohort,) = trees.num_bytes(_full(net)), fleet.cohorts
  own = bb.prefix(net, _full(net), cohort.depth, with_exit=False)
  halves = len(cohort.places) * trees.num_bytes(own)
  merged = slots(fleet)[0] if method.topology == "merged" else 1
  images = merged * plan.batch * activations(net) * method.views
  round = COPIES * (full + halves) + images
  return Need(data, full + halves, int(round))


def chunks(
  method: Method,
  net: Backbone,
  fleet: Fleet,
  plans: Sequence[Plan],
  data: int,
) -> list[int | None]:
  """Clients of each cohort to train side by side: as fast as fits.

  On a CPU one: its cores are busy with one client, whose numbers then stay in
  the cache (benchmarks/scaling.py). Elsewhere all, or as many as the device's
  memory has room for.

  Args:
    method: what a pair does.
    net: the network.
    fleet: the clients, divided among devices.
    plans: one for each cohort.
    data: bytes of the data set on each device.

  Returns:
    For each cohort a number; None for all.
  """
  if jax.default_backend() == "cpu":
    return [1] * len(plans)
  needs = need(method, net, fleet, plans, data)
  free = room(needs)
  if needs.round <= free:
    return [None] * len(plans)
  return [chunk(method, net, plan, free) for plan in plans]


def chunk(method: Method, net: Backbone, plan: Plan, room: int) -> int:
  """Clients of a cohort that fit side by side into `room` bytes, 1 at least."""
  return max(1, room // _client(method, net, plan))


def room(needs: Need) -> int:
  """Bytes of a device that a round may take, beside data and state."""
  return max(0, int(SHARE * capacity()) - needs.data - needs.state)


def capacity() -> int:
  """Bytes of memory of one device.

  Of a device that does not say, its share of the machine's memory.
  """
  device = jax.local_devices()[0]
  known = (device.memory_stats() or {}).get("bytes_limit")
  if known:
    return int(known)
  total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
  return total // jax.local_device_count()


def _client(method: Method, net: Backbone, plan: Plan) -> int:
  """Bytes of one client's training: copies of both halves, activations."""
  copies = int(COPIES * trees.num_bytes(_full(net)))
  return copies + plan.batch * activations(net) * method.views


def _full(net: Backbone) -> Segment:
  """Shapes of the whole network."""
  return jax.eval_shape(lambda: bb.init(net, jax.random.key(0)))


def at_server(
  method: Method, net: Backbone, fleet: Fleet, plan: Plan, shard: Shard
) -> int:
  """Bytes of parameters that the simulated server holds in a round.

  The network that it shares, or a copy for each participant, and the heads of
  groups (Hydra, Section 4); neither activations nor the optimiser's slots.

  Args:
    method: what clients and server do.
    net: the network.
    fleet: the clients.
    plan: of the first cohort.
    shard: likewise.
  """
  if method.whole:
    return 0

  def awake(key, shard):
    state = method.init(key, fleet, bb.init(net, key))
    own = Shard(*shard[:2], *trees.take(tuple(shard[2:]), 0))
    client = trees.take(state.clients[0], 0)
    samples = Samples(own, plan)
    return method.begin(client, state.server, samples, state.round, key)[1]

  def parameters(half):
    memory = half.memory
    heads = memory.segment.params if isinstance(memory, Half) else ()
    return trees.num_bytes((half.segment.params, heads))

  one = parameters(jax.eval_shape(awake, jax.random.key(0), shard))
  if method.part_two is not None:
    return fleet.num_clients * one
  return fleet.participants * one if method.topology == "parallel" else one


def activations(net: Backbone) -> int:
  """Bytes that one image leaves for the backward pass through the network.

  Nothing is computed: the residuals of `jax.vjp` have their shapes, and those
  that grow with the batch are the activations.
  """
  full, names = _full(net), (*net.names(), "head")

  def residuals(images):
    def forward(params, stats, x):
      segment = Segment(params, stats)
      return bb.run(net, segment, x, names, train=True)[0]

    def kept(params, stats, x):
      return jax.vjp(lambda p: forward(p, stats, x), params)[1]

    x = jax.ShapeDtypeStruct((images, *net.shape), jnp.result_type(float))
    return trees.num_bytes(jax.eval_shape(kept, *full, x))

  return residuals(2) - residuals(1)
