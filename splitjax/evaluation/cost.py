"""The cost of training: bytes, and seconds, joules, grams of CO2 by a model.

No second and no joule is measured: they follow from the devices' profiles, the
FLOPs of the network, and each client's bytes and steps. The model is ours.

A client's seconds are its FLOPs over its computing power, plus its bytes over
its bandwidth, plus a latency for each message whose answer it awaits: one for
download and upload together, and `Passes.trips` for each step with the server.
Latency is the time of a round trip (SuperSFL, Section II-A). Before a step
without the server a client waits for TIMEOUT (SuperSFL's Algorithm 3).

All clients work at the same time, even if one server serves them one by one, so
a round takes the time of its slowest client; in a relay, where each client
continues to train the half of the previous one, the sum of their times. The
server's times for all clients are added.

Energy is power times seconds, of a client while it computes, sends or receives,
not while it waits, and of the server while it computes.

The model leaves out class means, what a method learns before its first step
(FedALA's weights), a server's own training, fine-tuning after the last round,
evaluation and idle power. The FLOPs at a client include its exit, if the
network has one, even if the method does not train it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from splitjax import trees
from splitjax.data.feed import Samples
from splitjax.engine import devices, round
from splitjax.engine.loops import one_server
from splitjax.evaluation.subject import End, Finding, Subject
from splitjax.fleet import Rates
from splitjax.fleet.resources import Devices
from splitjax.methods.method import Method
from splitjax.models import sizes
from splitjax.parameters import pytree
from splitjax.types import Half, Metrics, Number, Tree, UserError
from splitjax.wire import Ledger

_JOULES_PER_KWH = 3.6e6

_TIMEOUT = 5.0
"""Seconds that a client waits in vain before a step without the server."""


class RoundWork(NamedTuple):
  """The work of each client in a whole round, [N] each, and who does it."""

  client: np.ndarray  #: FLOPs at the client, in all its local steps
  server: np.ndarray  #: FLOPs at the server
  steps: np.ndarray  #: number of local steps
  #: messages to the server whose answer the client awaits, in all local steps
  trips: np.ndarray
  alone: np.ndarray  #: FLOPs at the client if all steps are without the server
  #: FLOPs at the client outside of local steps, in stages without steps, which
  #: count in full even if the client takes fewer steps
  once: np.ndarray
  hardware: Devices  #: the clients' devices
  relay: bool = False  #: whether clients hand their half on


class Cost(NamedTuple):
  """The cost of a round."""

  seconds: float  #: duration of the round
  busy: np.ndarray  #: [N], seconds that a client computes, sends or waits
  joules: np.ndarray  #: [N], energy of each client
  server_joules: float  #: energy of the server


def of_round(plan: RoundWork, metrics: Metrics) -> Cost:
  """Computes the cost of a round, in which clients take some of `plan.steps`.

  Of the metrics it takes each client's bytes, its steps, and how many of these
  were without the server.
  """
  hardware = plan.hardware
  rates = hardware.rates
  sent, steps, alone = (
    np.asarray(x, np.float64)
    for x in (metrics.bytes, metrics.steps, metrics.alone)
  )
  # Shares of a whole round's steps. In a round without steps the server serves
  # whoever sends anything.
  most = np.maximum(plan.steps, 1)
  by_itself = alone / most
  served = np.where(plan.steps > 0, (steps - alone) / most, sent > 0)

  # The seconds that each client computes, sends and waits for messages.
  on = (sent > 0) | (steps > 0)
  work = served * plan.client + by_itself * plan.alone + on * plan.once
  trips = served * plan.trips + (sent > 0)
  computes = work / (1e9 * np.array(hardware.compute))
  transfers = 8 * sent / (1e6 * np.array(hardware.bandwidth))
  waits = trips * np.array(hardware.latency) / 1e3 + _TIMEOUT * alone

  busy = computes + transfers + waits
  longest = busy.sum() if plan.relay else busy.max(initial=0.0)
  serves = float((served * plan.server).sum() / (1e9 * rates.server))
  return Cost(
    seconds=float(longest) + serves,
    busy=busy,
    joules=rates.watts * computes + rates.radio_watts * transfers,
    server_joules=rates.server_watts * serves,
  )


def grams(joules: float, rates: Rates) -> float:
  """Converts an energy to grams of CO2."""
  return joules / _JOULES_PER_KWH * rates.grid


# The cost of a run.


def whole_round(subject: Subject) -> RoundWork | None:
  """Returns each client's work in a round in which it takes all its steps.

  The server has no work where clients hold whole networks without cuts. None if
  the network's FLOPs cannot be counted.
  """
  method = subject.method
  served = method.needs_server
  cuts = method.cuts(subject.fleet)
  clients = subject.fleet.num_clients
  work = {name: np.zeros(clients) for name in RoundWork._fields[:6]}
  for cohort, plan in zip(subject.fleet.cohorts, subject.plans, strict=True):
    ids = list(cohort.ids)
    size = subject.sizes[ids]
    depths = [cohort.depth] * len(ids) if cuts is None else cuts[ids]
    try:
      flops = [sizes.flops_of_cut(subject.backbone, int(k)) for k in depths]
    except UserError:
      return None
    at_client, at_server = np.array(flops).T
    for stage in method.stages():
      passes = stage.passes
      steps, samples = plan.of_round(size, stage.epochs)
      if stage.once:
        work["once"][ids] += size * passes.client * at_client
        work["server"][ids] += size * passes.server * at_server * served
      else:
        work["client"][ids] += samples * passes.client * at_client
        work["server"][ids] += samples * passes.server * at_server * served
        work["alone"][ids] += samples * passes.alone * at_client
        work["steps"][ids] += steps
        work["trips"][ids] += steps * passes.trips * served
  hardware = subject.fleet.hardware
  assert hardware is not None  # of every run
  relay = method.topology == "relay"
  return RoundWork(**work, hardware=hardware, relay=relay)


def on_end(end: End) -> Finding:
  """Finds the traffic and the modelled cost of all rounds, for every row."""
  return Finding(_numbers(end))


def _numbers(end: End) -> Iterator[Number]:
  total = Counter[str]()
  for line in end.lines:
    total.update(line["wire"])
  sent = {name: size / len(end.lines) for name, size in total.items()}
  at_server = server_bytes(end.subject)
  for scores in end.scores:
    label = scores.label
    yield Number("server_bytes", at_server, label)
    for name, size in sent.items():
      yield Number("bytes", size, label, part=name)
    yield Number("bytes_per_round", sum(sent.values()), label)
    # The network's FLOPs may be unknown, and costs with them.
    if not all("cost" in line for line in end.lines):
      continue
    accuracy = float(scores.summary["accuracy"][0])
    for metric, value in _of_run(end, accuracy).items():
      yield Number(metric, value, label)
    for n, client in enumerate(end.subject.task.client_names):
      for name in ("seconds", "joules", "bytes"):
        metric = "modelled_seconds" if name == "seconds" else name
        yield Number(metric, float(end.totals[name][n]), label, client=client)


def _of_run(end: End, accuracy: float) -> dict[str, float | None]:
  """Sums up the costs of all rounds.

  "watts" is the mean power, "watts_per_point" that per percentage point of
  `accuracy`, which is on the first test set.
  """
  assert end.subject.fleet.hardware is not None  # of every run
  seconds, clients, server = (
    sum(line["cost"][name] for line in end.lines)
    for name in ("seconds", "client_joules", "server_joules")
  )
  watts = (clients + server) / seconds if seconds else None
  return {
    "modelled_seconds": seconds,
    "client_joules": clients,
    "server_joules": server,
    "grams": grams(clients + server, end.subject.fleet.hardware.rates),
    "watts": watts,
    "watts_per_point": watts / (100 * accuracy) if watts and accuracy else None,
  }


# What is sent and held, without training.


def bytes_of_round(subject: Subject, key: Array) -> Ledger:
  """Returns the ledger of a run's first round without faults.

  `key` is that of the run, State.key. No training is compiled: the steps send
  their messages and change nothing.
  """
  method = subject.method
  layout = subject.fleet.layout
  mesh = subject.task.mesh
  kind: type[Method] = type(method)

  def idle(stage):
    def step(client, server, *arguments):
      losses = stage.step(client, server, *arguments)[2]
      return client, server, trees.zeros(losses)

    return stage._replace(step=step)

  class Idle(kind):  # type: ignore[valid-type, misc]
    def stages(self):
      return tuple(map(idle, super().stages()))

  @jax.jit
  def sent(method, full, shards):
    state = devices.laid_out(round.start(method, layout, full, key), mesh)
    _, metrics = round.run_round(
      method, state, shards, layout=layout, plans=subject.plans, mesh=mesh
    )
    return metrics.wire

  # The ledger depends on shapes alone, so a network of zeros is enough.
  full = trees.zeros(sizes.shapes(subject.backbone))
  return sent(pytree(Idle)(**vars(method)), full, subject.shards)


def server_bytes(subject: Subject) -> int:
  """Counts the bytes of parameters that the simulated server holds in a round.

  One server of all clients holds one half. Otherwise it holds, for each
  participant, a copy of the blocks behind the shallowest cut, and once the
  clients' blocks if it has them too (SuperSFL). To this comes the method's own
  state, such as the heads of groups (Hydra, Section 4), but no mean that
  clients start from, no activation and no slot of an optimiser.
  """
  method = subject.method
  net = subject.backbone
  full = sizes.shapes(net)
  server, copy = traced(
    subject, 0, lambda state, samples, half, copy, _: (state.server, copy)
  )
  memory = copy.memory if jax.tree.leaves(copy.memory) else server.memory
  if isinstance(memory, Half):
    memory = memory.net.params
  state = [
    leaf
    for leaf in jax.tree.leaves(memory)
    if jnp.issubdtype(leaf.dtype, jnp.floating)
  ]
  if one_server(method):
    return trees.num_bytes((copy.net.params, state))
  if not method.needs_server:
    return trees.num_bytes(state)
  behind = [full.params[name] for name in (*net.names(net.cuts[0]), "head")]
  copies = subject.fleet.participants * trees.num_bytes(behind)
  if method.uncut:  # the client's network stands for both parts
    return copies
  once = server.net.params if net.names()[0] in copy.net.params else ()
  return copies + trees.num_bytes((once, state))


def traced(subject: Subject, cohort: int, function: Callable[..., Tree]) -> Any:
  """Traces a function where the first client of a cohort begins its round.

  It gets the state, the client's samples, and what `Method.receive` returns.
  """
  method = subject.method

  def begin(full, shards):
    key = jax.random.key(0)
    state = round.start(method, subject.fleet.layout, full, key)
    of_cohort = shards[cohort]
    none: Any = ()
    shard = trees.take(of_cohort._replace(image=none, label=none), 0)
    shard = shard._replace(image=of_cohort.image, label=of_cohort.label)
    samples = Samples(shard=shard, plan=subject.plans[cohort])
    client = trees.take(state.clients[cohort], 0)
    received = method.receive(client, state.server, samples, state.round, key)
    return function(state, samples, *received)

  return jax.eval_shape(begin, sizes.shapes(subject.backbone), subject.shards)
