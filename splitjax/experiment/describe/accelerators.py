"""Descriptions of accelerators, so that XLA can compile for absent devices.

`accelerators.json` has each accelerator's figures and their source. XLA's
compilers are in jax's plugins, which the extra `splitjax[plan]` installs
without NVIDIA's libraries.
"""

import contextlib
import fnmatch
import json
import os
import re
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.experimental import topologies

from splitjax.files import one_line
from splitjax.models import target
from splitjax.models.target import Target
from splitjax.types import UserError

FIGURES = Path(__file__).with_name("accelerators.json")
MOST_GPUS = 8
"""Largest number of GPUs of one machine."""

INSTALL = f"pip install 'jax[cuda12-local,tpu]=={jax.__version__}'"

COMPILERS = {
  "cuda": ("jax-cuda12-plugin", "jax-cuda13-plugin"),
  "tpu": ("libtpu",),
}
"""Platform -> packages that bring XLA's compiler; any one of them is enough."""

OPTIONS = {
  # Triton's matrix products need timed kernels, and no device can time them.
  "cuda": (
    ("xla_gpu_autotune_level", 0),
    ("xla_gpu_enable_triton_gemm", False),
  ),
  "tpu": (),
}
"""Compiler options for a described device, by platform."""

TPU_ALONE = {
  "TPU_SKIP_MDS_QUERY": "1",
  "TPU_WORKER_HOSTNAMES": "localhost",
  "TPU_ACCELERATOR_TYPE": "v5litepod-4",
  "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # another process may describe a TPU
}
"""Environment variables with which libtpu starts without a TPU."""


class Accelerator(NamedTuple):
  """A kind of device.

  Attributes:
    name: its name on the command line.
    platform: "cuda" or "tpu".
    kind: its full name.
    memory: size of the device's memory, bytes.
    bandwidth: the memory's peak rate, bytes/s.
    flops: system.compute_dtype -> peak rate of matrix products, FLOPs/s.
    source: where the figures are from.
    gpu: fields of XLA's description of a GPU; None for a TPU.
  """

  name: str
  platform: str
  kind: str
  memory: float
  bandwidth: float
  flops: dict[str, float]
  source: str
  gpu: dict[str, float] | None = None


def read(word: str) -> tuple[Accelerator, str]:
  """Reads GPUs written as NAME:COUNT, or TPUs as NAME:TOPOLOGY (v5e:2x2).

  Returns:
    The accelerator, and the topology or the count ("1" for NAME without COUNT).

  Raises:
    UserError: the word has neither form, or names no known accelerator.
  """
  name, _, many = word.partition(":")
  known = json.loads(FIGURES.read_text())
  if name not in known:
    raise UserError(
      f"--target={word}: {name!r} is no known accelerator; choose from"
      f" {', '.join(known)}"
    )
  kind = Accelerator(name, **known[name])
  if kind.platform == "tpu":
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)+", many):
      raise UserError(f"--target={word}: give the chips, as in {name}:2x2")
  elif not re.fullmatch(r"[1-9]\d*", many or "1") or int(many or 1) > MOST_GPUS:
    raise UserError(
      f"--target={word}: give the number of GPUs of one machine, 1 to"
      f" {MOST_GPUS}, as in {name}:4"
    )
  return kind, many or "1"


def described(word: str) -> Target:
  """Returns the devices that `word` names, as a target to compile for.

  Raises:
    UserError: see `read` and `check_plugin`; or the plugin cannot describe the
      devices.
  """
  kind, many = read(word)
  check_plugin(word, kind.platform)
  try:
    if kind.platform == "tpu":
      for name, value in TPU_ALONE.items():
        os.environ.setdefault(name, value)
      found = topologies.get_topology_desc(word, platform="tpu")
    else:
      found = topologies.get_topology_desc(
        kind.name,
        platform="cuda",
        target_config=gpu_text(kind),
        topology=f"1x1x{many}",
      )
  except NotImplementedError:  # the plugin saw no GPU, and gave up
    raise UserError(
      f"--target={word}: set JAX_PLATFORMS=cpu before jax starts: its plugin"
      " looks for a GPU"
    ) from None
  except (RuntimeError, ValueError) as error:
    raise UserError(
      f"--target={word}: its plugin cannot describe it ({one_line(error)})"
    ) from None
  return target.of(found.devices)._replace(
    kind=kind.kind,
    memory=int(kind.memory),
    options=OPTIONS[kind.platform],
    described=True,
  )


def check_plugin(word: str, platform: str) -> None:
  """Raises UserError if a platform's compiler is missing or does not suit jax.

  A CUDA plugin must have the same version as jax. libtpu must have the version
  that jax's metadata require.
  """
  wanted = jax.__version__
  if platform == "tpu":
    needs = " ".join(metadata.requires("jax") or ())
    pin = re.search(r"libtpu==([\w.*]+)", needs)
    wanted = pin[1] if pin else "*"
  found = dict[str, str]()
  for name in COMPILERS[platform]:
    with contextlib.suppress(metadata.PackageNotFoundError):
      found[name] = metadata.version(name)
  if not found:
    names = " or ".join(COMPILERS[platform])
    raise UserError(
      f"--target={word} needs XLA's compiler for it ({names}): {INSTALL}"
    )
  if not any(fnmatch.fnmatch(each, wanted) for each in found.values()):
    have = " and ".join(map(" ".join, found.items()))
    raise UserError(
      f"--target={word}: {have} is not for jax {jax.__version__}, which needs"
      f" {wanted}: {INSTALL}"
    )


def gpu_text(kind: Accelerator) -> str:
  """Formats a GPU's figures as the text of XLA's GpuTargetConfigProto."""
  assert kind.gpu is not None
  fields: dict[str, Any] = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "shared_memory_per_block": 49152,
    "threads_per_core_limit": 2048,
    "block_dim_limit_x": 2**31 - 1,
    "block_dim_limit_y": 65535,
    "block_dim_limit_z": 65535,
    "registers_per_core_limit": 65536,
    "registers_per_block_limit": 65536,
    "memory_bandwidth": int(kind.bandwidth),
    "device_memory_size": int(kind.memory),
    **kind.gpu,
  }
  major = fields.pop("capability")
  lines = [f"{name}: {value}" for name, value in fields.items()]
  lines.append(f"cuda_compute_capability {{ major: {major} }}")
  return (
    f"gpu_device_info {{ {' '.join(lines)} }}\n"
    'platform_name: "CUDA"\n'
    "dnn_version_info { major: 9 minor: 8 }\n"
    f'device_description_str: "{kind.kind}"\n'
  )
