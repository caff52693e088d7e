"""Rounds compiled for an H100 and a TPU v5e, on a machine without either.

  JAX_PLATFORMS=cpu python -m benchmarks.compile_for

`make test-accelerators` has the compilers, which are in jax's plugins. Nothing
runs, but the program, its memory and the compiler's errors are real: `cnn8`,
all clients side by side with one cut. A GPU's kernels are not tuned, for no
device can time them; a TPU's program is compiled at the lowest effort. Fails if
a round does not compile, or if its memory is not known.
"""

import os
import sys
import time
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from tabulate import tabulate

from splitjax import target
from splitjax.engine.round import run_round
from splitjax.methods import METHODS, Optimizer
from splitjax.models import BACKBONES
from splitjax.simulation import sandbox

ROUNDS = ("harmony", "splitgp", "pgfedsplit", "hydra")
IMAGE, CUT, BATCH, CLIENTS = (28, 28, 1), 3, 50, 12

# From openxla/xla, xla/backends/gpu/target_config/specs/h100_sxm.txtpb.
H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 core_count: 132
  shared_memory_per_block: 49152 shared_memory_per_core: 233472
  shared_memory_per_block_optin: 232448 threads_per_core_limit: 2048
  fpus_per_core: 128 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 memory_bandwidth: 3352320000000
  l2_cache_size: 52428800 clock_rate_ghz: 1.98 device_memory_size: 84942979072
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  cuda_compute_capability { major: 9 }
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""

TARGETS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
  "h100": (
    "cuda", "H100", {"target_config": H100, "topology": "1x1x1"},
    # Triton's matrix products need timed kernels.
    {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False},
  ),
  "v5e": ("tpu", "v5e:2x2", {}, {"exec_time_optimization_effort": -1.0}),
}  # fmt: skip
"""Target -> platform, topology, its options and those of the compiler."""

# With which libtpu starts without a TPU.
os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost"}
os.environ["TPU_ACCELERATOR_TYPE"] = "v5litepod-4"


def compiled(name: str, word: str) -> dict[str, Any]:
  """Compiles a method's round; returns its seconds and its megabytes."""
  platform, topology, how, options = TARGETS[word]
  found = topologies.get_topology_desc(topology, platform=platform, **how)
  device = found.devices[0]

  make = BACKBONES["cnn8"]
  net = make(IMAGE, sandbox.CLASSES, depths=(CUT,))
  method = METHODS[name](backbone=net, optimizer=Optimizer(lr=0.025))
  sizes = (60,) * CLIENTS
  fleet = sandbox.fleet_of(method, clients=CLIENTS)
  blank = np.zeros((sum(sizes) + 5, *IMAGE), np.uint8)
  trial = sandbox.build(method, fleet, sizes, batch=BATCH, image=blank)

  def placed(x):
    where = jax.sharding.SingleDeviceSharding(device)
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where)

  state, shards = jax.tree.map(
    placed, (jax.eval_shape(lambda: trial.start(method)), trial.shards)
  )
  start = time.monotonic()
  with target.aimed_at(target.of([device])):
    traced = run_round.trace(method, state, shards, **trial.how)
    lowered = traced.lower(lowering_platforms=(platform,))
    memory = lowered.compile(options).memory_analysis()
  megabytes = {
    "arguments": memory.argument_size_in_bytes / 1e6,
    "temporaries": memory.temp_size_in_bytes / 1e6,
  }
  if min(megabytes.values()) <= 0:
    raise RuntimeError(f"{name}, {word}: no memory is known ({megabytes})")
  return {"compile": time.monotonic() - start, **megabytes}


def main() -> None:
  """Prints a table."""
  rows = list[dict[str, Any]]()
  for word in TARGETS:
    for name in ROUNDS:
      print(f"{name} for {word} ...", file=sys.stderr, flush=True)
      found = compiled(name, word)
      rows.append({"method": name, "target": word, **found})
  print(tabulate(rows, headers="keys", floatfmt=".1f"))


if __name__ == "__main__":
  main()
