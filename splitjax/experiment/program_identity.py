"""What a method's programs are made from, beside their arguments."""

import dataclasses
import functools
import json
from collections.abc import Callable, Hashable
from typing import Any

import jax

from splitjax.config.messages import CHANNELS
from splitjax.config.schema import Config
from splitjax.experiment.task import Task
from splitjax.experiment.training_setup import Federation
from splitjax.methods import METHODS
from splitjax.methods.optimizer import OPTIMIZERS
from splitjax.models import BACKBONES
from splitjax.registry import flat

NAMES = ("name", "label")
"""Of a method in a config: what is no option."""

ROWS = "finetune"
"""An option of splitjax's methods that decides their result rows alone, and so
which programs are run, not what they are."""

TOGETHER = ("seeds_batched", "settings_batched")
"""Of the system: what trains beside a run is no part of its own program."""


def _unbound(factory: Callable) -> tuple[Callable, dict[str, Any]]:
  """A factory, and the arguments that functools.partial binds."""
  if isinstance(factory, functools.partial):
    return factory.func, dict(factory.keywords)
  return factory, {}


def hyper_parameters(config: Config, key: str) -> dict[str, float]:
  """The numbers that a program takes as arguments, by their paths.

  Those of a method's options, of the optimiser, and of noise where there is
  any.
  """
  spec = config.methods[key]
  _, bound = _unbound(METHODS[spec.name])
  given = {
    "optimizer": dataclasses.asdict(config.optimizer),
    "options": bound | spec.options,
    "privacy": {
      f"{kind}.{name}": value
      for kind in config.privacy.noisy()
      for name, value in vars(getattr(config.privacy, kind)).items()
    },
  }
  return {
    f"{group}.{name}": value
    for group, tree in given.items()
    for name, value in tree.items()
    if type(value) is float
  }


def identity(task: Task, federation: Federation) -> Hashable:
  """All that a method's programs depend on, beside their arguments.

  Of the fleet its sizes: who the clients are is data.
  """
  config, fleet = task.config.to_dict(), federation.fleet
  spec = config["methods"][federation.key]
  factory, bound = _unbound(METHODS[spec["name"]])
  module = getattr(factory, "__globals__", {}).get("__name__", "")
  ours = module.startswith("splitjax.methods.")
  unseen = (*NAMES, ROWS) if ours else NAMES
  names = (
    "backbone", "batch_norm", "init", "rounds", "optimizer", "mean_optimizer",
    "wire", "faults",
  )  # fmt: skip
  system = config["system"]
  settings: dict[str, Any] = {name: config[name] for name in names} | {
    "system": {k: v for k, v in system.items() if k not in TOGETHER},
    "method": {k: v for k, v in (bound | spec).items() if k not in unseen},
    "privacy": flat({kind: config["privacy"][kind] for kind in CHANNELS}),
    "proxy": config["eval"]["proxy"],
    "data": [task.facts["shape"], task.facts["classes"]],
  }
  # Hyper-parameters are arguments of the program.
  for path in hyper_parameters(task.config, federation.key):
    group, _, name = path.partition(".")
    place = "method" if group == "options" else group
    settings[place] = {**settings[place], name: "number"}
  # Weights and planned faults are data: their files do not count.
  for group, name in (("backbone", "pretrained"), ("faults", "schedule")):
    path = settings[group].get(name)
    settings[group] = {**settings[group], name: path is not None}
  rules = [config["optimizer"][field] for field in ("name", "server_name")]
  cohorts = [(c.depth, len(c.ids), c.padding, c.chunk) for c in fleet.cohorts]
  return (
    factory,
    BACKBONES[config["backbone"]["name"]],
    *(OPTIMIZERS[name] for name in rules if name is not None),
    json.dumps(settings, sort_keys=True),
    federation.plans,
    (*cohorts, fleet.participants, fleet.participation, fleet.devices),
    task.mesh,
    flags(),
  )


def flags() -> Hashable:
  """The settings of jax that a program is compiled under."""
  settings: Any = jax.config
  return (
    settings.jax_enable_x64,
    settings.jax_default_matmul_precision,
    settings.jax_threefry_partitionable,
    settings.read("jax_disable_most_optimizations"),
  )
