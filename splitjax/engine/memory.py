"""Estimates a round's memory on a device from shapes; chooses chunks that fit.

Nothing is compiled: exact numbers would take one compilation of the whole round
per candidate chunk size. If a compiled program still needs more memory than the
device has, its chunks are halved (`experiment.trainers.programs`).
benchmarks/results/README.md compares estimates with XLA's counts. HARMONY with
conv="in_turn" takes more than estimated if several clients train at once. With
faults, the estimate leaves out the step without the server (up to an eighth of
the memory). On a CPU, it leaves out the columns of convolutions with few
channels (`models.cpu`).
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from splitjax import trees
from splitjax.data.feed import BatchPlan, Samples
from splitjax.engine import tuning
from splitjax.engine.fleets import Fleet, slots
from splitjax.engine.topologies import topology_of
from splitjax.models import formulations, shapes, target
from splitjax.models.backbones import Backbone
from splitjax.types import Half, Method, Shard, State, Sums

SHARE, ROOM = 0.6, 0.9
"""Fractions of a device's memory. A run plans to use at most SHARE, by the
estimate; a compiled program may take at most ROOM."""

COPIES = 2.25
"""Memory of a client in training, as a multiple of its network's memory. It
consists of parameters, momentum and the live part of the gradient. Fitted to
XLA's counts for SplitGP, HARMONY and FedAvg on a CPU."""

TRAINING, WAITING = 3.05, 1.3
"""The counterparts of COPIES for an accelerator, whose kernels keep whole
gradients. TRAINING is for a client in training, WAITING for one that has
trained and waits for the round's sums. Fitted to SplitGP on cnn8, H100."""

LAYOUTS = 1.5
"""Factor on a batch's memory on a TPU. Convolutions lay the batch along the
lanes there (`shapes.LANES`), and keep it in several layouts. Fitted to XLA's
counts for SplitGP and HARMONY on cnn8 and for SplitGP on vgg11."""


class Need(NamedTuple):
  """Bytes that a training round needs on one device.

  Attributes:
    data: the data set.
    state: the halves of the device's clients, and the server.
    round: temporaries: copies, gradients, momentum, activations, sums.
  """

  data: int
  state: int
  round: int


def need(
  method: Method,
  net: Backbone,
  fleet: Fleet,
  plans: Sequence[BatchPlan],
  data: int,
) -> Need:
  """Estimates the memory of a round on one device.

  `plans` has one plan per cohort of `fleet`, which is divided among devices;
  `data` is the size of the data set on each device, in bytes.
  """
  if topology_of(method.traits).one_server:
    return _one_server(method, net, fleet, plans[0], data)
  held, sums, waiting, trained = 0, 0.0, 0.0, _copies()
  training, chunked = [0.0], [0.0]
  full, sample = _sizes(method, net)
  for c, (cohort, plan, count) in enumerate(
    zip(fleet.cohorts, plans, slots(fleet), strict=True)
  ):
    each = -(-count // fleet.devices)
    rows = _rows(net, plan.batch) * sample
    state, client, _, added = round_shapes(method, net, fleet, plan, c)
    held = trees.num_bytes(state.clients) // fleet.devices
    held += trees.num_bytes((state.server, state.means))
    own = trees.num_bytes(client.memory)
    if cohort.chunk is None:
      # Clients of all cohorts live until they are summed.
      waiting += each * (WAITING * full + own)
      training.append(each * ((trained - WAITING) * full + rows))
    else:
      at_once = min(cohort.chunk, each)
      chunked.append(at_once * (trained * full + own + rows))
    if cohort.chunk is not None or fleet.devices > 1:
      sums += trees.num_bytes(added)  # of chunks, or for other devices
  round = max(waiting + max(training), *chunked) + sums
  return Need(data, held, int(round))


def _copies() -> float:
  return COPIES if target.current().platform == "cpu" else TRAINING


def _sizes(method: Method, net: Backbone) -> tuple[int, int]:
  """Counts the bytes of the network and of a sample's activations."""
  full = trees.num_bytes(shapes.network(net))
  return full, activations(net) * method.traits.views


def round_shapes(
  method: Method, net: Backbone, fleet: Fleet, plan: BatchPlan, cohort: int = 0
) -> tuple[State, Half, Half, Sums]:
  """Traces the shapes in a round; nothing is computed.

  Returns:
    Shapes of the state; of the client half and the server half after `begin`,
    for one client of the cohort; and of this client's contribution to the sums.
  """

  def start(full):
    key, shard = jax.random.key(0), blank_shard(method, net, plan)
    state = method.init(key, fleet, full)
    client = trees.take(state.clients[cohort], 0)
    samples = Samples(shard, plan)
    pair = method.begin(client, state.server, samples, state.round, key)[:2]
    return state, *pair, method.aggregation.contribute(*pair, jnp.ones(()))

  return jax.eval_shape(start, shapes.network(net))


def blank_shard(method: Method, net: Backbone, plan: BatchPlan) -> Shard:
  """Makes a shard for tracing, with a placeholder input but no samples."""
  rows = jnp.zeros(plan.steps * plan.batch, jnp.int32)
  image = jnp.zeros((1, *net.shape), jnp.uint8)
  label, one = jnp.zeros(1, jnp.int32), jnp.int32(0)
  counts = jnp.zeros(net.classes, jnp.int32)
  held = rows if method.traits.validates else ()
  return Shard(image, label, rows, one, counts, one, held=held)


def _one_server(
  method: Method, net: Backbone, fleet: Fleet, plan: BatchPlan, data: int
) -> Need:
  """Estimates as `need` does, for a round with one server.

  The server takes one step at a time. A step has the batch of one client, or in
  a merged round the batches of all clients. Heads of groups are not included,
  see `at_server`.
  """
  full, sample = _sizes(method, net)
  halves = trees.num_bytes(round_shapes(method, net, fleet, plan)[0].clients)
  at_once = slots(fleet)[0] if topology_of(method.traits).all_at_once else 1
  round = COPIES * (full + halves) + at_once * _rows(net, plan.batch) * sample
  return Need(data, full + halves, int(round))


def chunks(
  method: Method,
  net: Backbone,
  fleet: Fleet,
  plans: Sequence[BatchPlan],
  data: int,
) -> list[int | None]:
  """Chooses how many clients to train at a time: the fastest number that fits.

  The number is 1 on a CPU, because one client keeps the cores busy and its
  arrays stay in the cache (benchmarks/scaling.py). On other devices all clients
  train at once, or as many as fit into the memory. Arguments are as in `need`.

  Returns:
    For each cohort the number of clients; None for all.
  """
  goal = target.current()
  if goal.platform == "cpu":
    return [1] * len(plans)
  needs = need(method, net, fleet, plans, data)
  free = max(0, int(SHARE * goal.capacity) - needs.data - needs.state)
  if needs.round <= free:
    return [None] * len(plans)
  # A client's training: copies of both halves, its memory, activations.
  memory = round_shapes(method, net, fleet, plans[0])[1].memory
  full, sample = _sizes(method, net)
  of_one = int(_copies() * full) + trees.num_bytes(memory)
  return [
    max(1, free // (of_one + _rows(net, plan.batch) * sample)) for plan in plans
  ]


def too_large(program: int) -> bool:
  """Tells whether a device has no room for a program of `program` bytes."""
  return program > ROOM * target.current().capacity


def _rows(net: Backbone, batch: int) -> int:
  """Counts the images that a batch takes memory for: B, or more on a TPU.

  A TPU's convolutions lay the batch along the lanes, pad it to fill the lanes,
  and keep it in several layouts. Matrix products lay channels along the lanes,
  so their batches need no padding.
  """
  if target.current().platform != "tpu":
    return batch
  padded = LAYOUTS * -(-batch // shapes.LANES) * shapes.LANES
  every = sum(shapes.of_products(net))
  share = sum(shapes.of_products(net, shapes.PRODUCTS[:1])) / max(every, 1)
  return int(share * padded + (1 - share) * batch)


def at_server(
  method: Method, net: Backbone, fleet: Fleet, plan: BatchPlan
) -> int:
  """Counts the bytes of parameters that the simulated server holds in a round.

  If clients share one server, it holds one server half. Otherwise it holds, for
  each participant, a copy of the blocks behind the shallowest cut. It also
  holds the method's own state, `Half.memory`, such as the heads of groups
  (Hydra, Section 4). A server that has the clients' blocks too (SuperSFL) holds
  its whole network once more. Activations and optimiser slots are not counted.
  `plan` is the plan of the first cohort.
  """
  state, _, server, _ = round_shapes(method, net, fleet, plan)
  memory, params = server.memory, server.segment.params
  heads = memory.segment.params if isinstance(memory, Half) else memory
  if topology_of(method.traits).one_server:
    return trees.num_bytes(params) + trees.num_bytes(heads)

  if not params and method.cuts is None:
    return trees.num_bytes(heads)
  every, behind = shapes.network(net).params, (*net.names(net.cuts[0]), "head")
  size = sum(trees.num_bytes(every[name]) for name in behind)
  copies = fleet.participants * size
  if method.cuts is not None:  # the client's network stands for both parts
    return copies
  once = state.server.segment.params if net.names()[0] in params else ()
  return copies + trees.num_bytes((once, heads))


def activations(net: Backbone) -> int:
  """Counts the bytes of a sample's activations, by `shapes.activations`.

  If convolutions are yet to be timed (`tuning`), the bytes are counted with all
  of them in "patches" and with all in "native"; the larger count is returned.
  """
  goal = target.current()
  if goal.formulations or not formulations.measured("auto"):
    return shapes.activations(net)
  layers, found = tuning.layers(net, 1), []
  for conv in ("patches", "native"):
    pairs = tuple((layer.name, conv) for layer in layers)
    with target.aimed_at(goal._replace(formulations=pairs)):
      found.append(shapes.activations(net))
  return max(found)
