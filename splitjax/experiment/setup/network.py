"""Builds the network and the clients of a Config, without data."""

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from splitjax.config.groups import FleetConfig
from splitjax.config.schema import Config
from splitjax.engine import fleets, pace
from splitjax.engine.fleets import Fleet
from splitjax.engine.resources import (
  Devices,
  Profiles,
  Rates,
  draw_profiles,
  read_profiles,
)
from splitjax.methods.allocation import ALLOCATIONS
from splitjax.models import BACKBONES
from splitjax.models.backbones import Backbone
from splitjax.models.build import cut
from splitjax.models.families import Entry, union, with_trunk
from splitjax.registry import Spec
from splitjax.types import UserError, naming


class Network(NamedTuple):
  """The network and the clients, which suffice to read a saved state.

  Attributes:
    backbone: the network; its cuts are the split depths in use.
    fleet: the clients.
    mean: mean of each channel or feature of training samples, before scaling;
      () for token ids (`data.inputs`).
    std: standard deviation of each channel or feature; () for token ids.
    names: the clients' names; () where the data do not name them.
    dtype: dtype of the inputs.
  """

  backbone: Backbone
  fleet: Fleet
  mean: tuple[float, ...]
  std: tuple[float, ...]
  names: tuple[str, ...] = ()
  dtype: str = "uint8"


def make_backbone(
  config: Config, shape: tuple[int, ...], classes: int, vocabulary: int = 0
) -> Backbone:
  """Builds a config's network for inputs of `shape`; checks the split depths.

  With families the result is the union of their networks (`families.union`).
  """
  if not config.families:
    return _one(config, config.backbone, shape, classes, vocabulary)
  entry = Entry(config.entry.width, config.entry.grid)
  edge, width = (entry.grid,) * 2 if entry.grid else (), (entry.width,)
  spec = config.backbone
  spec = dataclasses.replace(spec, options={**spec.options, "depths": (1,)})
  with naming(f"the trunk (entry.grid={entry.grid}, entry.width={width[0]})"):
    trunk = _one(config, spec, edge + width, classes)
  nets, form = {}, (shape, classes, vocabulary)
  for name, family in config.families.items():
    with naming(f"families.{name}"):
      own = _one(config, family.network, *form, "network")
      nets[name] = with_trunk(name, own, family.blocks, entry, trunk)
  return union(nets)


def _one(
  config: Config,
  spec: Spec,
  shape: tuple[int, ...],
  classes: int,
  vocabulary: int = 0,
  field: str = "backbone",
) -> Backbone:
  """Builds a spec's network; for the other arguments see `build.cut`."""
  factory, options = BACKBONES[spec.name], spec.options
  settings = {
    "conv": config.system.conv,
    "dtype": config.system.compute_dtype,
    "norm": "group" if config.batch_norm == "group_norm" else "batch",
  }
  known = inspect.signature(factory).parameters
  options = options | {k: v for k, v in settings.items() if k in known}
  backbone = cut(spec.name, shape, classes, options, vocabulary, field)
  if config.init != "he":
    backbone = dataclasses.replace(backbone, draws=config.init)
  local = config.batch_norm == "local"
  return dataclasses.replace(backbone, local_norm=local) if local else backbone


def from_scratch(config: Config) -> Config:
  """Returns the config without its pretrained weights and schedule of faults.

  Only training reads the files of weights and faults. Without these files,
  the returned config can be checked, or used to evaluate a finished run.
  """

  def bare(spec: Spec) -> Spec:
    options = dict(spec.options)
    if options.get("pretrained") is not None:
      options["pretrained"] = None
    return dataclasses.replace(spec, options=options)

  faults = dataclasses.replace(config.faults, schedule=None)
  of = {
    name: dataclasses.replace(family, network=bare(family.network))
    for name, family in config.families.items()
  }
  net = bare(config.backbone)
  return dataclasses.replace(config, backbone=net, families=of, faults=faults)


def make_network(config: Config, facts: dict) -> Network:
  """Builds a config's network and clients for data with these facts."""
  form = tuple(facts["shape"]), facts["classes"], facts.get("vocabulary", 0)
  backbone = make_backbone(config, *form)
  backbone = everywhere(backbone, public=facts.get("public", 0))
  names = tuple(facts.get("names", ()))
  devices = facts.get("devices") or make_devices(config, backbone, names)
  fleet = fleets.assign_depths(
    config.num_clients,
    backbone.cuts,
    config.seed,
    participants=pace.updates(config.pace, config.participants_per_round),
    participation=config.participation,
    power=config.system.client_power,
    given=devices["depth"],
    families=_members(devices, config),
  )
  profiles = Profiles(*(tuple(devices[name]) for name in Profiles._fields))
  hardware = Devices(profiles, rates(config.fleet))
  fleet = dataclasses.replace(fleet, hardware=hardware)
  mean, std = tuple(facts["mean"]), tuple(facts["std"])
  dtype = facts.get("dtype", "uint8")
  return Network(backbone, fleet, mean, std, names, dtype)


def make_devices(
  config: Config, backbone: Backbone, names: Sequence[str] = ()
) -> dict[str, list]:
  """Returns the clients' depths and resources, [N] each, JSON-ready.

  With families, the result also has each client's family.

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
  told: dict[str, list] = {}
  if config.families:
    shares = {name: family.share for name, family in config.families.items()}
    told["family"] = deal_families(count, shares, config.seed)

  # Choose depths family by family, among the cuts of its network.
  depth = np.zeros(count, int)
  everyone = {"": list(range(count))}
  for family, own in (_members(told, config) or everyone).items():
    net = backbone.of(family)
    devices = Devices(
      Profiles(*(tuple(each[n] for n in own) for each in profiles)),
      rates(config.fleet),
    )
    with naming(f"families.{family}" if family else ""):
      found = np.asarray(allocate(devices, net, config.seed, **options))
    if len(found) != len(own) or not set(found.tolist()) <= set(net.cuts):
      raise UserError(
        f"fleet.allocation={chosen.allocation.name}: gave {np.unique(found)}"
        f" for {len(found)} clients; it must give one of the cuts {net.cuts}"
        f" (backbone.depths) to each of {len(own)}"
      )
    depth[own] = found
  each = {name: list(x) for name, x in profiles._asdict().items()}
  return {"depth": depth.tolist(), **told, **each}


def everywhere(backbone: Backbone, **fields: Any) -> Backbone:
  """Replaces `fields` in copies of a network and of its families' networks."""
  of = {
    family: dataclasses.replace(net, **fields)
    for family, net in backbone.families.items()
  }
  return dataclasses.replace(backbone, families=of, **fields)


def deal_families(
  num_clients: int, shares: Mapping[str, float], seed: int
) -> list[str]:
  """Assigns a family to every client, by the families' shares.

  A family gets N share / (sum of shares) clients, rounded by largest
  remainders. The seed decides which clients these are.

  Returns:
    [N] the family of each client.

  Raises:
    UserError: a family gets no client.
  """
  share = np.array(list(shares.values()))
  counts = fleets.rounded(num_clients * share / share.sum())
  for family, count in zip(shares, counts, strict=True):
    if not count:
      raise UserError(
        f"families.{family}.share={shares[family]:g}: none of the {num_clients}"
        " clients (num_clients) gets this family; raise it, or leave it out"
      )
  names = np.repeat(list(shares), counts)
  rng = np.random.default_rng([seed, 0xFA3177])
  return rng.permutation(names).tolist()


def _members(
  devices: Mapping[str, list], config: Config
) -> dict[str, list[int]] | None:
  """Returns the indices of each family's clients; None without families."""
  if not config.families:
    return None
  of = devices["family"]
  return {
    family: [n for n, own in enumerate(of) if own == family]
    for family in config.families
  }


def rates(fleet: FleetConfig) -> Rates:
  """Returns the server's speed, the powers and the CO2 per kWh of a fleet."""
  return Rates(*(getattr(fleet, name) for name in Rates._fields))
