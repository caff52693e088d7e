"""Compiled rounds of methods, as in a run, on clients with images of noise."""

import time
from typing import NamedTuple

import jax
import numpy as np

from splitjax import simulation, target
from splitjax.engine import devices, layout, round
from splitjax.fleet import fleets
from splitjax.methods import METHODS, Method, Optimizer
from splitjax.models import BACKBONES
from splitjax.models.network import Backbone
from splitjax.types import Shard

OPTIONS: dict[str, dict] = {
  "harmony": {"inner_steps": 3},
  "fedrep": {"head_epochs": 1},
}
"""Method -> options that differ from its defaults."""


class Setting(NamedTuple):
  """Clients with as many samples each, and what they train.

  Attributes:
    backbone: key of BACKBONES.
    shape: of the images.
    classes: C.
    clients: N.
    participants: of a round; None: all clients.
    samples: of each client.
    batch: B.
    epochs: local epochs.
    width: of the backbone; None where it has no width.
    chunk: clients that a device trains at a time; None: one on a CPU, all
      elsewhere.
    lr: of SGD.
    momentum: of SGD.
  """

  backbone: str = "cnn8"
  shape: tuple[int, int, int] = (28, 28, 1)
  classes: int = 10
  clients: int = 20
  participants: int | None = None
  samples: int = 200
  batch: int = 50
  epochs: int = 1
  width: float | None = 1.0
  chunk: int | None = None
  lr: float = 0.025
  momentum: float = 0.9

  @property
  def network(self) -> Backbone:
    """The whole network."""
    options = {} if self.width is None else {"width": self.width}
    return BACKBONES[self.backbone](self.shape, self.classes, **options)

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
    """Images [Z, H, W, c] uint8, labels [Z] int32, rows of every client."""
    rng, count = np.random.default_rng(0), self.clients * self.samples
    image = rng.integers(0, 256, (count, *self.shape), np.uint8)
    label = rng.integers(0, self.classes, count).astype(np.int32)
    return image, label, np.split(np.arange(count), self.clients)

  def method(self, name: str) -> Method:
    """The method of that name."""
    options = OPTIONS.get(name, {})
    return METHODS[name](backbone=self.network, optimizer=self.sgd, **options)


class Rounds:
  """A method's compiled round and its state; a call runs one round.

  Attributes:
    method: with the optimiser of the setting.
    state: after the last round.
    devices: number of devices.
    compiled: the program.
    trace_s: seconds of tracing and lowering.
    compile_s: seconds of compiling.
  """

  def __init__(self, setting: Setting, name: str):
    self.method = setting.method(name)
    fleet = simulation.fleet_of(
      self.method, setting.clients, participants=setting.participants
    )
    form = layout.of(fleet)
    most = max(form.computed(cohort) for cohort in form.cohorts)
    self.devices = min(len(jax.devices()), most)
    mesh = devices.make_mesh(self.devices)
    single = 1 if target.current().platform == "cpu" else None
    chunks = [setting.chunk or single] * len(fleet.cohorts)
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
    start = time.perf_counter()
    lowered = round.run_round.lower(
      self.method, self.state, self.shards, mesh=mesh, **sim.how
    )
    self.trace_s = time.perf_counter() - start
    start = time.perf_counter()
    self.compiled = lowered.compile(devices.quick_options())
    self.compile_s = time.perf_counter() - start
    self.data = {"faults": sim.faults}

  def __call__(self) -> float:
    """Runs a round; returns its seconds."""
    start = time.perf_counter()
    self.state, metrics = self.compiled(
      self.method, self.state, self.shards, **self.data
    )
    jax.block_until_ready((self.state, metrics))
    return time.perf_counter() - start
