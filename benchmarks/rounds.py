"""Compiled rounds of methods, as in a run, on clients with images of noise."""

import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from splitjax.data import feed, inputs
from splitjax.engine import fleets, rounds, sharding
from splitjax.methods import METHODS, optimizers
from splitjax.models import BACKBONES, drawing, target
from splitjax.models.backbones import Backbone
from splitjax.types import Method, Shard

OPTIONS: dict[str, dict] = {
  "harmony": {"inner_steps": 3},
  "fedrep": {"head_epochs": 1},
}
"""Method -> options that differ from its defaults."""


class Setting(NamedTuple):
  """Clients with as many samples each, and what they train.

  Attributes:
    backbone: key of BACKBONES, for images 28x28x1 of ten classes.
    clients: N.
    samples: of each client.
    batch: B.
    epochs: local epochs.
    width: of the backbone.
    lr: of SGD.
    momentum: of SGD.
  """

  backbone: str = "cnn8"
  clients: int = 20
  samples: int = 200
  batch: int = 50
  epochs: int = 1
  width: float = 1.0
  lr: float = 0.025
  momentum: float = 0.9

  @property
  def network(self) -> Backbone:
    """The whole network."""
    return BACKBONES[self.backbone]((28, 28, 1), 10, width=self.width)

  @property
  def sgd(self) -> optimizers.Optimizer:
    """The optimiser of both sides."""
    return optimizers.sgd(self.lr, momentum=self.momentum)

  @property
  def depths(self) -> list[int]:
    """The cut of every client."""
    fleet = fleets.assign_depths(self.clients, self.network.cuts, 0)
    out = {i: c.depth for c in fleet.cohorts for i in c.ids}
    return [out[i] for i in sorted(out)]

  def noise(self) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Images [Z, 28, 28, 1] uint8, labels [Z] int32, rows of every client."""
    rng, count = np.random.default_rng(0), self.clients * self.samples
    image = rng.integers(0, 256, (count, 28, 28, 1), np.uint8)
    label = rng.integers(0, 10, count).astype(np.int32)
    return image, label, np.split(np.arange(count), self.clients)

  def method(self, name: str) -> Method:
    """The method of that name."""
    return METHODS[name](self.network, self.sgd, **OPTIONS.get(name, {}))


class Rounds:
  """A method's compiled round and its state; a call runs one round.

  As in a run: on a CPU each device has a core and trains one client at a time,
  elsewhere all clients at once.

  Attributes:
    state: after the last round.
    devices: number of devices.
    steps: local steps of a client in a round.
    compile_s: seconds of compiling.
  """

  def __init__(self, setting: Setting, name: str):
    net, method = setting.network, setting.method(name)
    fleet = fleets.assign_depths(setting.clients, net.cuts, 0)
    if method.traits.depth == "full":
      fleet = fleets.with_full_depth(fleet, net.length)
    most = max(fleets.slots(fleet))
    self.devices = min(len(jax.devices()), most)
    mesh = sharding.make_mesh(self.devices)
    alone = 1 if target.current().platform == "cpu" else None
    chunks = [alone] * len(fleet.cohorts)
    fleet = fleets.divide(fleet, self.devices, chunks)

    image, label, parts = setting.noise()
    sizes, stats = [setting.samples] * setting.clients, inputs.statistics(image)
    plan = feed.plan(sizes, setting.batch, setting.epochs, *stats)
    self.steps = plan.steps * plan.epochs
    data = sharding.put_on_devices(mesh, (image, label))
    shards = []
    for cohort in fleet.cohorts:
      mine = [parts[i] for i in cohort.places]
      shard = feed.shards(*data, mine, 10, cohort.places)
      if method.traits.validates:  # on a tenth of a client's own images
        held = np.stack(mine)[:, : max(1, setting.samples // 10)]
        shard = shard._replace(held=jnp.asarray(held, jnp.int32))
      own = jax.device_get(tuple(shard[2:]))
      shards.append(
        Shard(*data, *sharding.put_on_devices(mesh, own, sharding.DIVIDED))
      )
    self.shards = tuple(shards)

    # The state in buffers that may be donated, and the program.
    full = drawing.init(net, jax.random.key(0))
    specs = sharding.state_specs(len(fleet.cohorts))
    init = jax.jit(
      lambda: method.init(jax.random.key(1), fleet, full),
      out_shardings=sharding.client_sharding(mesh, specs),
    )
    self.state, plans = init(), (plan,) * len(fleet.cohorts)
    step = rounds.make_round(method, plans, fleet, mesh=mesh)
    lowered = step.lower(self.state, self.shards)
    start = time.perf_counter()
    self.step = lowered.compile(sharding.quick_options())
    self.compile_s = time.perf_counter() - start

  def __call__(self) -> float:
    """Runs a round; returns its seconds."""
    start = time.perf_counter()
    self.state, metrics = self.step(self.state, self.shards)
    jax.block_until_ready((self.state, metrics))
    return time.perf_counter() - start
