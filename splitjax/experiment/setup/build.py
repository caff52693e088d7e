"""Network, clients and methods of a Config, built without data."""

import contextlib
import dataclasses
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from splitjax.config.messages import CHANNELS
from splitjax.config.schema import Config
from splitjax.engine import fleets
from splitjax.engine.fleets import Fleet
from splitjax.engine.resources import (
  Devices,
  Profiles,
  Rates,
  draw_profiles,
  read_profiles,
)
from splitjax.methods import METHODS, mean_optimizer, optimizers
from splitjax.methods.allocation import ALLOCATIONS
from splitjax.models import BACKBONES, backbones, shapes
from splitjax.models.backbones import Backbone
from splitjax.models.build import cut
from splitjax.registry import flat
from splitjax.types import Method, State, UserError
from splitjax.wire import Channel, Parameters


class Network(NamedTuple):
  """The network and the clients: all that is needed to read a saved state.

  Attributes:
    backbone: the network, at the cuts in use.
    fleet: the clients.
    mean: per-channel mean of the training split, pixel values.
    std: per-channel standard deviation of the same pixel values.
    names: the clients' names; () where the data do not name them.
  """

  backbone: Backbone
  fleet: Fleet
  mean: tuple[float, ...]
  std: tuple[float, ...]
  names: tuple[str, ...] = ()


Methods = Mapping[str, Method]
"""The methods of a run by their keys in config.methods."""


def make_backbone(
  config: Config, shape: tuple[int, int, int], classes: int
) -> Backbone:
  """Builds a config's network for images of a shape; checks the depths."""
  factory, options = BACKBONES[config.backbone.name], config.backbone.options
  settings = {
    "conv": config.system.conv,
    "dtype": config.system.compute_dtype,
    "norm": "group" if config.batch_norm == "group_norm" else "batch",
  }
  known = inspect.signature(factory).parameters
  options = options | {k: v for k, v in settings.items() if k in known}
  backbone = cut(config.backbone.name, shape, classes, options)
  if config.init != "he":
    backbone = dataclasses.replace(backbone, draws=config.init)
  local = config.batch_norm == "local"
  return dataclasses.replace(backbone, local_norm=local) if local else backbone


def from_scratch(config: Config) -> Config:
  """Returns the config without the files that only training reads.

  These are pretrained weights and a schedule of faults; they may be missing.
  """
  options = config.backbone.options
  if options.get("pretrained") is not None:
    options = {**options, "pretrained": None}
    backbone = dataclasses.replace(config.backbone, options=options)
    config = dataclasses.replace(config, backbone=backbone)
  faults = dataclasses.replace(config.faults, schedule=None)
  return dataclasses.replace(config, faults=faults)


def make_network(config: Config, facts: dict) -> Network:
  """Builds a config's network and clients for data with these facts."""
  backbone = make_backbone(config, tuple(facts["shape"]), facts["classes"])
  names = tuple(facts.get("names", ()))
  devices = facts.get("devices") or make_devices(config, backbone, names)
  fleet = fleets.assign_depths(
    config.num_clients,
    backbone.cuts,
    config.seed,
    participants=config.participants_per_round,
    participation=config.participation,
    power=config.system.client_power,
    given=devices["depth"],
  )
  profiles = Profiles(*(tuple(devices[name]) for name in Profiles._fields))
  hardware = Devices(profiles, rates(config))
  fleet = dataclasses.replace(fleet, hardware=hardware)
  mean, std = tuple(facts["mean"]), tuple(facts["std"])
  return Network(backbone, fleet, mean, std, names)


def make_devices(
  config: Config, backbone: Backbone, names: Sequence[str] = ()
) -> dict[str, list]:
  """Returns the clients' split depths and resources, [N] each, JSON-ready.

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
  devices = Devices(profiles, rates(config))
  depth = np.asarray(allocate(devices, backbone, config.seed, **options))
  if len(depth) != count or not set(depth.tolist()) <= set(backbone.cuts):
    raise UserError(
      f"fleet.allocation={chosen.allocation.name}: gave {np.unique(depth)} for"
      f" {len(depth)} clients; it must give one of the cuts {backbone.cuts}"
      f" (backbone.depths) to each of {count}"
    )
  each = {name: list(x) for name, x in profiles._asdict().items()}
  return {"depth": depth.tolist(), **each}


def rates(config: Config) -> Rates:
  """Returns the server's speed and the powers of a config."""
  return Rates(*(getattr(config.fleet, name) for name in Rates._fields))


def own_fleet(method: Method, network: Network) -> Fleet:
  """Returns a method's fleet: one cohort if clients have the whole network."""
  if method.traits.depth == "full":
    return fleets.with_full_depth(network.fleet, network.backbone.length)
  return network.fleet


def check_start(
  config: Config, key: str, method: Method, network: Network
) -> None:
  """Raises UserError if a method cannot start with these clients."""
  fleet = own_fleet(method, network)
  with naming(key):
    jax.eval_shape(
      lambda key, full: method.init(key, fleet, full),
      jax.random.key(0),
      shapes.network(network.backbone),
    )


@contextlib.contextmanager
def naming(key: str) -> Iterator[None]:
  """Adds the key of the method to a UserError."""
  try:
    yield
  except UserError as error:
    name = f"methods.{key}: "
    raise UserError(f"{name}{str(error).removeprefix(name)}") from None


def places(state: State) -> list[int]:
  """Counts the clients in every cohort of a state, padding included."""
  return [jax.tree.leaves(half)[0].shape[0] for half in state.clients]


def abstract_state(
  method: Method, network: Network, places: Sequence[int] | None = None
) -> State:
  """Returns shapes and dtypes of a method's state; computes nothing.

  `places` counts the clients of each cohort, padding included; None: no
  padding.
  """
  fleet = own_fleet(method, network)
  if places is not None:
    cohorts = tuple(
      dataclasses.replace(cohort, padding=count - len(cohort.ids))
      for cohort, count in zip(fleet.cohorts, places, strict=True)
    )
    fleet = dataclasses.replace(fleet, cohorts=cohorts)

  def draw(key):
    return method.init(key, fleet, backbones.init(network.backbone, key))

  return jax.eval_shape(draw, jax.random.key(0))


def wired(
  config: Config, backbone: Backbone, noise: Mapping[str, Any] | None = None
) -> Backbone:
  """Adds a config's channels (wire and privacy) to the network.

  `noise` maps KIND.clip and KIND.noise to numbers; None: the config's.
  """
  noise = noise or flat(dataclasses.asdict(config.privacy))
  channels: dict[str, Any] = {
    kind: Channel(
      **dataclasses.asdict(getattr(config.wire, kind)),
      clip=noise[f"{kind}.clip"],
      noise=noise[f"{kind}.noise"],
    )
    for kind in CHANNELS
  }
  exchanged = Parameters(**dataclasses.asdict(config.wire.parameters))
  wire = backbone.wire._replace(**channels, parameters=exchanged)
  return dataclasses.replace(backbone, wire=wire)


def make_method(
  config: Config,
  backbone: Backbone,
  key: str,
  numbers: Mapping[str, Any] | None = None,
) -> Method:
  """Makes the method of a key in config.methods; checks its options.

  `numbers` replace hyper-parameters: optimizer.NAME, options.NAME,
  privacy.CHANNEL.NAME.
  """
  spec = config.methods[key]
  chosen, options = dataclasses.asdict(config.optimizer), dict(spec.options)
  noise = flat(dataclasses.asdict(config.privacy))
  groups = {"optimizer": chosen, "options": options, "privacy": noise}
  for path, number in (numbers or {}).items():
    group, _, name = path.partition(".")
    groups[group][name] = number
  optimizer = optimizers.make(**chosen, rounds=config.rounds)
  backbone = wired(config, backbone, noise)
  factory = METHODS[spec.name]
  with naming(key):
    made = factory(backbone, optimizer, **options)
    if not isinstance(made, Method):
      raise UserError(
        f"{spec.name} makes a {type(made).__name__}, no Method: return that of"
        " base.method"
      )
  of_means = dataclasses.asdict(config.mean_optimizer)
  if of_means["name"] is None:
    return made
  return mean_optimizer.on_means(made, mean_optimizer.make(**of_means))
