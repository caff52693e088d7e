"""Builds the network and the clients of a Config, without data."""

import dataclasses
import inspect
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from splitjax.config.config import Config, FleetConfig
from splitjax.fleet import fleets
from splitjax.fleet.allocation import ALLOCATIONS
from splitjax.fleet.fleets import Fleet
from splitjax.fleet.resources import (
  Devices,
  Profiles,
  Rates,
  draw_profiles,
  read_profiles,
)
from splitjax.models import BACKBONES
from splitjax.models.build import cut
from splitjax.models.layers import Norm, Style
from splitjax.models.network import Backbone
from splitjax.types import UserError


class Network(NamedTuple):
  """The network and the clients, which suffice to read a saved state.

  Attributes:
    backbone: the network; its cuts are the split depths in use.
    fleet: the clients.
    mean: mean of each channel or feature of training samples, before scaling;
      () for token ids (`data.dataset`).
    std: standard deviation of each channel or feature; () for token ids.
    names: the clients' names; () where the data do not name them.
    class_names: the classes' names, likewise.
    dtype: dtype of the inputs.
  """

  backbone: Backbone
  fleet: Fleet
  mean: tuple[float, ...]
  std: tuple[float, ...]
  names: tuple[str, ...] = ()
  class_names: tuple[str, ...] = ()
  dtype: str = "uint8"


def make_backbone(
  config: Config, shape: tuple[int, ...], classes: int, vocabulary: int = 0
) -> Backbone:
  """Builds a config's network for inputs of `shape`; checks its depths."""
  spec = config.backbone
  options = dict(spec.options)
  if "style" in inspect.signature(BACKBONES[spec.name]).parameters:
    norm: Norm = "group" if config.batch_norm == "group_norm" else "batch"
    options["style"] = Style(config.system.compute_dtype, norm)
  backbone = cut(spec.name, shape, classes, options, vocabulary)
  if config.init == "he":
    return backbone
  return dataclasses.replace(backbone, start=config.init)


def from_scratch(config: Config) -> Config:
  """Returns the config without its pretrained weights.

  Only training reads their file. Without it, the returned config can be
  checked, or used to evaluate a finished run.
  """
  net = config.backbone
  if net.options.get("pretrained") is not None:
    net = net.with_options(pretrained=None)
  return dataclasses.replace(config, backbone=net)


def make_network(config: Config, facts: dict) -> Network:
  """Builds a config's network and clients for data with these facts."""
  form = tuple(facts["shape"]), facts["classes"], facts.get("vocabulary", 0)
  backbone = make_backbone(config, *form)
  names = tuple(facts.get("names", ()))
  devices = facts.get("devices") or make_devices(config, backbone, names)
  fleet = fleets.assign_depths(
    config.num_clients,
    backbone.cuts,
    config.seed,
    participants=config.participants_per_round,
    power=config.system.client_power,
    given=devices["depth"],
  )
  profiles = Profiles(*(tuple(devices[name]) for name in Profiles._fields))
  hardware = Devices(profiles, rates(config.fleet))
  fleet = dataclasses.replace(fleet, hardware=hardware)
  return Network(
    backbone=backbone,
    fleet=fleet,
    mean=tuple(facts["mean"]),
    std=tuple(facts["std"]),
    names=names,
    class_names=tuple(facts.get("class_names", ())),
    dtype=facts.get("dtype", "uint8"),
  )


def make_devices(
  config: Config, backbone: Backbone, names: Sequence[str] = ()
) -> dict[str, list]:
  """Returns the clients' depths and resources, [N] each, JSON-ready.

  Raises:
    UserError: ranges, profiles or options of the allocation are invalid.
  """
  chosen, count = config.fleet, config.num_clients
  if chosen.profiles is None:
    bounds = (getattr(chosen, name) for name in Profiles._fields)
    profiles = draw_profiles(count, config.seed, Profiles(*bounds))
  else:
    profiles = read_profiles(chosen.profiles, count, names)
  allocate = ALLOCATIONS[chosen.allocation.name]
  options = chosen.allocation.options
  devices = Devices(profiles, rates(config.fleet))
  depth = np.asarray(allocate(devices, backbone, config.seed, **options))
  if len(depth) != count or not set(depth.tolist()) <= set(backbone.cuts):
    raise UserError(
      f"fleet.allocation={chosen.allocation.name}: gave {np.unique(depth)}"
      f" for {len(depth)} clients; it must give one of the cuts {backbone.cuts}"
      f" (backbone.depths) to each of {count}"
    )
  resources = {name: list(x) for name, x in profiles._asdict().items()}
  return {"depth": depth.tolist(), **resources}


def rates(fleet: FleetConfig) -> Rates:
  """Returns the server's speed, the powers and the CO2 per kWh of a fleet."""
  return Rates(*(getattr(fleet, name) for name in Rates._fields))
