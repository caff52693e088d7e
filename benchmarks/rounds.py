"""Compiled rounds of methods, as in a run, on clients with images of noise."""

import time
from typing import NamedTuple

import jax
import numpy as np

from splitjax import simulation
from splitjax.engine import devices, layout, round
from splitjax.fleet import fleets
from splitjax.methods import METHODS, Method, Optimizer
from splitjax.models import BACKBONES, target
from splitjax.models.backbones import Backbone
from splitjax.types import Shard

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
  def sgd(self) -> Optimizer:
    """The optimiser of both sides."""
    return Optimizer(lr=self.lr, momentum=self.momentum or None)

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
    options = OPTIONS.get(name, {})
    return METHODS[name](backbone=self.network, optimizer=self.sgd, **options)


class Rounds:
  """A method's compiled round and its state; a call runs one round.

  As in a run: on a CPU each device has a core and trains one client at a time,
  elsewhere all clients at once.

  Attributes:
    method: with the optimiser of the setting.
    state: after the last round.
    devices: number of devices.
    steps: local steps of a client in a round.
    compile_s: seconds of compiling.
  """

  def __init__(self, setting: Setting, name: str):
    self.method = setting.method(name)
    fleet = simulation.fleet_of(self.method, setting.clients)
    form = layout.of(fleet)
    most = max(form.computed(cohort) for cohort in form.cohorts)
    self.devices = min(len(jax.devices()), most)
    mesh = devices.make_mesh(self.devices)
    single = 1 if target.current().platform == "cpu" else None
    chunks = [single] * len(fleet.cohorts)
    fleet = fleets.divide(fleet, self.devices, chunks)

    image, label, parts = setting.noise()
    sim = simulation.simulate(
      self.method,
      image,
      label,
      parts,
      fleet=fleet,
      batch=setting.batch,
      epochs=setting.epochs,
      held=parts[0][: max(1, setting.samples // 10)],
    )
    self.steps = sim.plans[0].steps * sim.plans[0].epochs
    data = devices.put_on_devices(mesh, (image, label))
    self.shards = tuple(
      Shard(
        *data,
        *devices.put_on_devices(
          mesh, jax.device_get(tuple(shard[2:])), devices.DIVIDED
        ),
      )
      for shard in sim.shards
    )

    # The state in buffers that may be donated, and the program.
    specs = devices.state_specs(len(fleet.cohorts))
    placed = devices.client_sharding(mesh, specs)
    init = jax.jit(lambda state: state, out_shardings=placed)
    self.state = init(sim.start(self.method))
    lowered = round.run_round.lower(
      self.method, self.state, self.shards, mesh=mesh, **sim.how
    )
    start = time.perf_counter()
    self.step = lowered.compile(devices.quick_options())
    self.compile_s = time.perf_counter() - start
    self.data = {"faults": sim.faults}

  def __call__(self) -> float:
    """Runs a round; returns its seconds."""
    start = time.perf_counter()
    self.state, metrics = self.step(
      self.method, self.state, self.shards, **self.data
    )
    jax.block_until_ready((self.state, metrics))
    return time.perf_counter() - start
