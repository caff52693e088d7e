"""Compiled rounds of methods, as in a run, on clients with images of noise.

  python -m benchmarks.rounds ['{"method": "splitgp", "rounds": 2}']

Without an argument it prints what the device is. The argument has the fields of
a Setting, a method, the number of rounds and, if the last is to be profiled, a
folder for that. Every part prints one JSON object when it ends, so that a
stopped process has reported its earlier parts.
"""

import contextlib
import functools
import importlib.metadata
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from splitjax import simulation, target
from splitjax.engine import devices, round
from splitjax.fleet import fleets
from splitjax.methods import METHODS, Method, Optimizer
from splitjax.models import BACKBONES
from splitjax.models.network import Backbone
from splitjax.types import Shard

INPUTS: dict[str, tuple[tuple[int, int, int], int]] = {
  "cnn8": ((28, 28, 1), 10),
  "cnn4": ((28, 28, 1), 10),
  "vgg11": ((32, 32, 3), 10),
  "mobilenet_v1": ((32, 32, 3), 10),
  "mobilenet_v2": ((32, 32, 3), 100),
  "resnet18": ((64, 64, 3), 200),
  "resnet50": ((64, 64, 3), 200),
  "resnet101": ((32, 32, 3), 10),
  "vit_s16": ((32, 32, 3), 100),
  "vit_b16": ((32, 32, 3), 10),
}
"""Backbone -> images and classes of the paper that cuts it."""

PACKAGES = (
  "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "flax", "optax", "torch",
)  # fmt: skip


def machine() -> dict[str, Any]:
  """Device, cores and version of jax."""
  return {
    "device": jax.devices()[0].device_kind,
    "cores": len(os.sched_getaffinity(0)),
    "jax": jax.__version__,
  }


def about() -> dict[str, Any]:
  """What the device and the installed versions are."""
  stats = jax.devices()[0].memory_stats() or {}
  result = {
    **machine(),
    "platform": jax.devices()[0].client.platform_version,
    "devices": len(jax.devices()),
    "memory_mb": stats.get("bytes_limit", 0) / 1e6 or None,
    "python": platform.python_version(),
  }
  for name in PACKAGES:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      result[name] = importlib.metadata.version(name)
  return result


class Setting(NamedTuple):
  """Clients with as many samples each, and what they train."""

  backbone: str = "cnn8"  #: key of BACKBONES
  clients: int = 20
  participants: int | None = None  #: of a round; None: all
  samples: int = 200  #: of each client
  batch: int = 50
  width: float | None = 1.0  #: of the backbone; None: its usual one
  chunk: int | None = None  #: side by side; None: one on a CPU, else all

  @property
  def network(self) -> Backbone:
    """The whole network."""
    options = {} if self.width is None else {"width": self.width}
    return BACKBONES[self.backbone](*INPUTS[self.backbone], **options)

  @property
  def depths(self) -> list[int]:
    """The cut of every client."""
    return fleets.assign_depths(self.clients, self.network.cuts, 0).depths

  def noise(self) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Images [Z, H, W, c] uint8, labels [Z] int32, rows of every client."""
    rng, count = np.random.default_rng(0), self.clients * self.samples
    shape, classes = INPUTS[self.backbone]
    image = rng.integers(0, 256, (count, *shape), np.uint8)
    label = rng.integers(0, classes, count).astype(np.int32)
    return image, label, np.split(np.arange(count), self.clients)

  def method(self, name: str) -> Method:
    """The method of that name."""
    options: dict = {"inner_steps": 3} if name == "harmony" else {}
    sgd = Optimizer(lr=0.025, momentum=0.9)
    return METHODS[name](backbone=self.network, optimizer=sgd, **options)


class Rounds:
  """A method's compiled round and its state; a call runs one round.

  `trace_s` and `compile_s` are the seconds of tracing with lowering and of
  compiling, `compiled` is the program.
  """

  def __init__(self, setting: Setting, name: str):
    self.method = setting.method(name)
    fleet = simulation.fleet_of(
      self.method, setting.clients, participants=setting.participants
    )
    form = fleet.layout
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
      validation=parts[0][: max(1, setting.samples // 10)],
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
    laid_out = jax.jit(functools.partial(devices.laid_out, mesh=mesh))
    self.state = laid_out(sim.start(self.method))
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


def memory() -> dict[str, float]:
  """Peak memory of this process, 10^6 bytes.

  Linux tells; its `getrusage` would inherit the peak of the parent process.
  """
  with contextlib.suppress(OSError):
    text = Path("/proc/self/status").read_text()
    lines = dict(x.split(":", 1) for x in text.splitlines())
    return {"peak_mb": int(lines["VmHWM"].split()[0]) * 1024 / 1e6}
  return {}


def report(**facts: Any) -> None:
  """Prints results as a JSON object."""
  print(json.dumps(facts), flush=True)


def needs(compiled: Any) -> dict[str, float]:
  """XLA's own account of a program on one device, 10^6 bytes."""
  account = compiled.memory_analysis()
  if account is None:
    return {}
  parts = "argument", "output", "temp", "alias"
  sizes = {p: getattr(account, f"{p}_size_in_bytes") / 1e6 for p in parts}
  total = sum(sizes.values()) - 2 * sizes["alias"]
  return {"program_mb": total, "temp_mb": sizes["temp"]}


def bound(rounds: Rounds, setting: Setting) -> dict[str, float]:
  """The seconds in which a round's bytes could be moved at the least.

  XLA counts the body of a loop once. A round of clients side by side is a loop
  over local steps; HARMONY's inner steps, a loop in it, count as one, so its
  bound is low. The rate is that of a copy on this device.
  """
  costs = rounds.compiled.cost_analysis() or {}
  steps = -(-setting.samples // setting.batch)
  copy = jax.jit(lambda x: x + 1)
  x = jax.block_until_ready(copy(jnp.zeros(2**26)))
  start = time.perf_counter()
  jax.block_until_ready(copy(x))
  rate = 2 * x.nbytes / (time.perf_counter() - start)
  size = steps * costs.get("bytes accessed", 0.0)
  return {"round_bytes": size, "bytes_per_s": rate, "bound_s": size / rate}


def main() -> None:
  """Measures a point: set-up, compilation, rounds."""
  if not sys.argv[1:]:
    report(**about())
    return
  point = json.loads(sys.argv[1])
  method, count = point.pop("method"), point.pop("rounds")
  profile = point.pop("profile", "")
  setting = Setting(**point)
  jax.block_until_ready(jnp.zeros(1) + 1)  # the backend has started
  report(baseline_mb=memory().get("peak_mb"), **machine())
  start = time.perf_counter()
  rounds = Rounds(setting, method)
  report(
    setup_s=time.perf_counter() - start,
    trace_s=rounds.trace_s,
    compile_s=rounds.compile_s,
    **needs(rounds.compiled),
    **memory(),
  )
  wall, cpu = [], []
  for i in range(count):
    traced = profile and i == count - 1
    before = time.process_time()
    with jax.profiler.trace(profile) if traced else contextlib.nullcontext():
      wall.append(rounds())
    cpu.append(time.process_time() - before)
    report(rounds_s=wall, rounds_cpu_s=cpu, **memory())
  stats = jax.local_devices()[0].memory_stats() or {}
  if "peak_bytes_in_use" in stats:
    report(device_peak_mb=stats["peak_bytes_in_use"] / 1e6)
  if count:
    report(**bound(rounds, setting))


if __name__ == "__main__":
  main()
