"""Times of convolutions, remembered on the disk beside compiled programs.

The file is JSON, three dicts deep. The keys of the outer dict name a device and
versions. The next keys name a layer, with its numbers of images and of clients
side by side. The inner dicts map formulations to microseconds. Reading the file
runs no code in it.
"""

import json
import math
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from splitjax import files
from splitjax.experiment.console import machine
from splitjax.experiment.console.progress import say
from splitjax.models import formulations, target
from splitjax.types import UserError

FILE = "formulations.json"
Times = dict[str, dict[str, float | None]]
"""Layer in words -> formulation -> microseconds, see `tuning.microseconds`."""

_known: dict[str, Times] = {}
"""Times of this process: device and versions -> Times."""


def device() -> str:
  """Names the kind of device; for a CPU, names the processor too."""
  goal = target.current()
  if goal.platform != "cpu":
    return goal.kind
  return f"{goal.kind} {machine.processor()}".strip()


def _versions() -> str:
  """Returns the key of times for this kind of device and these versions."""
  jaxlib = metadata.version("jaxlib")
  return (
    f"{device()}, jax {jax.__version__}, jaxlib {jaxlib},"
    f" formulations {formulations.VERSION}"
  )


def _place() -> Path | None:
  """Returns the file of remembered times; None if nothing is kept."""
  now: Any = jax.config  # whose type does not tell its options
  folder = now.jax_compilation_cache_dir
  kept = folder and now.jax_enable_compilation_cache
  return Path(folder) / FILE if kept else None


def known() -> Times:
  """Returns the process's and the file's times for this device and versions."""
  own, path = _known.get(_versions(), {}), _place()
  return own if path is None else read(path).get(_versions(), {}) | own


def remember(times: Times) -> None:
  """Adds times to those of this process and to the file."""
  key, path = _versions(), _place()
  _known[key] = _known.get(key, {}) | times
  if path is None:
    return
  try:
    with files.locked(path.with_suffix(".lock"), wait=True):
      tree = read(path)
      tree[key] = tree.get(key, {}) | times
      files.write_json(path, tree)
  except OSError as error:
    say(f"{path}: {error}; convolutions are timed again by the next start")


def read(path: Path) -> dict[str, Times]:
  """Reads remembered times; {} if there is no file.

  Raises:
    UserError: the file is damaged, too large, or holds no times.
  """
  try:
    tree = json.loads(path.read_bytes())
    problem = "" if _sound(tree) else "its JSON holds something else"
  except FileNotFoundError:
    return {}
  except (OSError, ValueError, RecursionError) as error:
    problem = files.one_line(error)
  if problem:
    raise UserError(
      f"{path} is damaged or holds no times of convolutions ({problem}): delete"
      " it, and they are measured again"
    )
  return tree


def _sound(tree: Any) -> bool:
  """Tells whether a JSON tree maps keys (device and versions) to Times."""

  def maps(tree: Any, inside: Any) -> bool:
    return isinstance(tree, dict) and all(map(inside, tree.values()))

  def is_time(x: Any) -> bool:
    number = isinstance(x, int | float) and not isinstance(x, bool)
    return x is None or (number and 0 < x < math.inf)

  def of_layer(times: Any) -> bool:
    return maps(times, is_time) and times.keys() <= {*formulations.NAMES}

  return maps(tree, lambda layers: maps(layers, of_layer))
