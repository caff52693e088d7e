"""The formulations of a method's convolutions: the fastest by measurement.

A resumed run keeps the formulations that its checkpoints name. The module
`times` remembers what was measured.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

from splitjax.config.groups import System
from splitjax.engine import distributed, tuning
from splitjax.experiment.console.progress import say
from splitjax.experiment.setup import training_setup
from splitjax.experiment.setup.training_setup import TrainingSetup
from splitjax.experiment.trainers import times
from splitjax.experiment.trainers.times import Times, device
from splitjax.models import formulations, target
from splitjax.models.formulations import Layer


@contextlib.contextmanager
def chosen(
  setup: TrainingSetup, begun: Mapping[str, Any] | None = None
) -> Iterator[None]:
  """Sets the formulations for programs that are traced inside the context.

  If the config asks for measured formulations, these are the fastest ones,
  measured once for each kind of device. Otherwise nothing is set.

  Args:
    setup: the method.
    begun: the record in the method's checkpoint or about.json, if there is one.
      Its formulations are kept unless they were measured on another device.

  Raises:
    UserError: the file of remembered times is damaged or holds no times.
  """
  if not asked(setup.task.config.system):
    yield
    return
  before = (begun or {}).get("formulations") or {}
  same = before.get("device", device()) == device()
  table = before.get("layers", {}) if begun and same else _fastest(setup)
  with using(table):
    yield


def kept(about: Mapping[str, Any]) -> Any:
  """Makes a context that sets the formulations of a finished run.

  It sets nothing if they were measured on another kind of device.
  """
  before = about.get("formulations") or {}
  same = before.get("device") == device()
  return using(before["layers"]) if same else contextlib.nullcontext()


def using(table: Mapping[str, str]) -> Any:
  """Makes a context that sets formulations; `table` is layer -> formulation."""
  pairs = tuple(table.items())
  return target.aimed_at(target.current()._replace(formulations=pairs))


def record() -> dict[str, Any]:
  """Returns the formulations in use, for checkpoints and reports; {} if none.

  Its entries are "layers" (layer in words -> formulation) and "device".
  """
  table = dict(target.current().formulations)
  return {"device": device(), "layers": table} if table else {}


def note(label: str) -> list[str]:
  """Says in a sentence which formulations are in use; [] if none are set."""
  by = dict[str, list[str]]()
  for layer, conv in target.current().formulations:
    by.setdefault(conv, []).append(f"({layer})")
  if not by:
    return []
  each = "; ".join(f"{conv} for {' '.join(of)}" for conv, of in by.items())
  return [f"{label}: convolutions as measured on {device()}: {each}."]


def remembered(setup: TrainingSetup) -> list[dict[str, Any]]:
  """Lists a method's layers with their remembered times, for `describe`.

  An entry has "layer", "images", "clients", "microseconds" by formulation, and
  "chosen", the fastest formulation. Before the first run "microseconds" is {}
  and "chosen" is None.
  """
  if not asked(setup.task.config.system):
    return []
  clients, known = _side_by_side(setup), times.known()
  out = []
  for layer, images in _layers(setup).items():
    found = known.get(_words(layer, images, clients), {})
    size = {"layer": layer.name, "images": images, "clients": clients}
    best = tuning.fastest(found)
    out.append({**size, "microseconds": found, "chosen": best})
  return out


def asked(system: System) -> bool:
  """Tells whether formulations are to be measured."""
  return formulations.measured(system.conv)


def _layers(setup: TrainingSetup) -> dict[Layer, int]:
  batch = max(plan.batch for plan in setup.plans)
  return tuning.layers(setup.task.network.backbone, batch)


def _side_by_side(setup: TrainingSetup) -> int:
  return max(training_setup.side_by_side(setup))


def _words(layer: Layer, images: int, clients: int) -> str:
  return f"{layer.name}; {images} images, {clients} clients"


def _fastest(setup: TrainingSetup) -> dict[str, str]:
  """Chooses each layer's fastest formulation; the first process measures."""
  found, clients = _layers(setup), _side_by_side(setup)
  first = distributed.is_first_process()
  known = _times(setup, found, clients) if first else {}
  table: dict[str, str] = {}
  for layer, images in found.items():
    own = known.get(_words(layer, images, clients), {})
    best = tuning.fastest({conv: own.get(conv) for conv in layer.formulations})
    every = layer.formulations
    chosen = distributed.of_first(every.index(best) if best else -1)
    if chosen >= 0:
      table[layer.name] = every[chosen]
  return table


def _times(
  setup: TrainingSetup, found: Mapping[Layer, int], clients: int
) -> Times:
  """Returns the times of layers; measures, prints and remembers new times."""
  known = times.known()
  new = [x for x in found.items() if _words(*x, clients) not in known]
  if not new:
    return known
  label, measured = setup.labels[0], Times()
  say(
    f"{label}: times {len(new)} convolutions in every formulation on"
    f" {device()}, once"
  )
  for number, (layer, images) in enumerate(new, 1):
    each = tuning.microseconds(layer, images, clients)
    measured[_words(layer, images, clients)] = each
    say(f"{label}: {number}/{len(new)} {layer.name}: {in_words(each)}")
  times.remember(measured)
  return known | measured


def in_words(found: Mapping[str, float | None]) -> str:
  """Formats a layer's times, the fastest first."""
  ranked = sorted(found, key=lambda conv: found[conv] or math.inf)
  return ", ".join(
    f"{conv} {time:,.0f} µs" if (time := found[conv]) else f"{conv} fails"
    for conv in ranked
  )
