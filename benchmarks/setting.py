"""Shared by the benchmarks of rounds: clients, programs, flops, a ceiling."""

import os
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from splitjax import trees
from splitjax.data import feed
from splitjax.engine import fleet as fleets
from splitjax.engine import round as rounds
from splitjax.engine import sharding
from splitjax.methods import METHODS, optimizer
from splitjax.models import BACKBONES, shapes
from splitjax.models import backbone as bb
from splitjax.models.backbone import Backbone
from splitjax.types import Method, Shard

INNER_STEPS = 3
OPTIONS: dict[str, dict] = {
  "splitgp": {},
  "harmony": {"inner_steps": INNER_STEPS},
}
"""Method that has a PyTorch side -> its options."""
OPTIMIZER = optimizer.sgd(0.025, momentum=0.9)


class Setting(NamedTuple):
  """A fleet with random data.

  Attributes:
    net: the network.
    fleet: the clients.
    plans: one for each cohort.
    shards: likewise.
    samples: of each client.
    batch: B.
  """

  net: Backbone
  fleet: fleets.Fleet
  plans: tuple[feed.Plan, ...]
  shards: tuple[Any, ...]
  samples: int
  batch: int

  @property
  def depths(self) -> list[int]:
    """The cut of every client."""
    out = {i: c.depth for c in self.fleet.cohorts for i in c.ids}
    return [out[i] for i in sorted(out)]


def make(clients: int, samples: int, batch: int, width: float) -> Setting:
  """`cnn8`, cuts 2, 3 and 4, 28x28 images of noise."""
  rng = np.random.default_rng(0)
  image = rng.integers(0, 256, (clients * samples, 28, 28, 1), np.uint8)
  label = rng.integers(0, 10, clients * samples).astype(np.int32)
  net = BACKBONES["cnn8"]((28, 28, 1), 10, width=width)
  fleet = fleets.assign_depths(clients, net.cuts, 0)
  plan = feed.plan([samples] * clients, batch, 1, *feed.statistics(image))
  parts = np.split(np.arange(clients * samples), clients)
  image, label = jnp.asarray(image), jnp.asarray(label)
  shards = tuple(
    feed.shards(image, label, [parts[i] for i in c.ids], 10, c.ids)
    for c in fleet.cohorts
  )
  return Setting(
    net, fleet, (plan,) * len(fleet.cohorts), shards, samples, batch
  )


def method_of(setting: Setting, name: str) -> Method:
  """A method with the optimiser of the papers."""
  return METHODS[name](setting.net, OPTIMIZER, **OPTIONS.get(name, {}))


class Program:
  """A compiled round and its state; a call runs one round.

  As in a run: on a CPU each device has a core and trains one client at a time,
  elsewhere all clients at once.
  """

  def __init__(self, setting: Setting, name: str):
    method = method_of(setting, name)
    devices = fleets.useful_devices(setting.fleet, len(jax.devices()))
    mesh = sharding.make(devices)
    alone = 1 if jax.default_backend() == "cpu" else None
    chunks = [alone] * len(setting.plans)
    fleet = fleets.divide(setting.fleet, devices, chunks, exact=False)
    full = bb.init(setting.net, jax.random.key(0))
    state = method.init(jax.random.key(1), fleet, full)
    copy = jax.jit(  # of the donated buffers, on the devices
      lambda state: jax.tree.map(jnp.copy, state),
      out_shardings=sharding.sharding(
        mesh, sharding.state_specs(len(fleet.cohorts))
      ),
    )
    self.state, self.devices = copy(state), devices
    self.shards = tuple(
      _placed(shard, cohort.places, cohort.ids, mesh)
      for shard, cohort in zip(setting.shards, fleet.cohorts, strict=True)
    )
    step = rounds.make_round(method, setting.plans, fleet, mesh=mesh)
    start = time.perf_counter()
    lowered = step.lower(self.state, self.shards)
    self.step = lowered.compile(sharding.quick_options(False))
    self.compile_s = time.perf_counter() - start

  def __call__(self) -> float:
    """Runs a round; returns its seconds."""
    start = time.perf_counter()
    self.state, metrics = self.step(self.state, self.shards)
    jax.block_until_ready((self.state, metrics))
    return time.perf_counter() - start


def _placed(shard: Shard, places, ids, mesh) -> Shard:
  """A cohort's shard with padding clients, divided among the devices."""
  rows = np.array([ids.index(i) for i in places])
  data_set, own = tuple(shard[:2]), tuple(shard[2:])
  own = trees.take(jax.device_get(own), rows)
  return Shard(
    *sharding.put(mesh, jax.device_get(data_set)),
    *sharding.put(mesh, own, sharding.DIVIDED),
  )


def macs(net: Backbone) -> dict[str, int]:
  """Block name -> multiply-adds of its forward pass on one image of `cnn8`."""
  full = jax.eval_shape(lambda: bb.init(net, jax.random.key(0)))
  shape, out = net.shape, {}
  after = shapes.outputs(net)
  for name in (*net.names(), *map(bb.exit_name, net.cuts), "head"):
    kernels = [x for x in jax.tree.leaves(full.params[name]) if x.ndim > 1]
    pixels = shape[0] * shape[1] if name.startswith("conv") else 1
    out[name] = pixels * trees.size(kernels)
    shape = after.get(name, shape)
  return out


def flops(setting: Setting, name: str) -> float:
  """Flops of a round, counted from shapes: convolutions and dense layers.

  The forward pass, the kernel's gradient and the input's gradient cost the
  same; the first layer needs no input gradient. HARMONY's early depth counts
  with its expectation; padding of a last batch is not counted.
  """
  net, cost = setting.net, macs(setting.net)

  def total(names):
    return sum(cost[n] for n in names)

  def client(depth):
    names = (*net.names(0, depth), bb.exit_name(depth))
    return 3 * total(names) - cost[net.names()[0]]

  def harmony(depth):
    cuts = [c for c in net.cuts if c <= depth]
    trunk = net.names(depth)
    early = 0.0
    for k in cuts:
      own = net.names(k)
      entered = 3 * total(own) - cost[own[0]]
      early += (total(net.names(0, k)) + entered) / len(cuts)
    # Separate backward passes of task and alignment, except at the entry.
    late = 4 * total(trunk) - cost[trunk[0]] + 3 * cost["head"]
    return (2 * INNER_STEPS + 1) * client(depth) + early + late

  def splitgp(depth):
    return client(depth) + 3 * total((*net.names(depth), "head"))

  each = {"splitgp": splitgp, "harmony": harmony}[name]
  return 2.0 * setting.samples * sum(map(each, setting.depths))


def ceiling() -> float:
  """GFLOP/s of a large float32 matrix product, the best of four."""
  n = 2048 if jax.default_backend() == "cpu" else 8192
  a = jax.random.normal(jax.random.key(0), (n, n))
  product = jax.jit(jnp.matmul)
  jax.block_until_ready(product(a, a))
  took = []
  for _ in range(4):
    start = time.perf_counter()
    jax.block_until_ready(product(a, a))
    took.append(time.perf_counter() - start)
  return 2 * n**3 / min(took) / 1e9


def machine() -> dict:
  """Device, cores and versions."""
  return {
    "device": jax.devices()[0].device_kind,
    "cores": len(os.sched_getaffinity(0)),
    "jax": jax.__version__,
  }
