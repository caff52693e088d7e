"""The network, the clients and the methods of a Config, without data."""

import copy
import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from splitjax.config.config import CHANNELS, Config, OptimizerConfig
from splitjax.engine import round
from splitjax.fields import naming
from splitjax.fleet import fleets
from splitjax.fleet.allocation import ALLOCATIONS
from splitjax.fleet.fleets import Fleet, Layout, own_fleet
from splitjax.fleet.resources import Devices, Rates, draw_devices
from splitjax.methods import METHODS, task_losses
from splitjax.methods.fedavg import FedBN
from splitjax.methods.method import Method
from splitjax.methods.optimizer import Optimizer, Outer
from splitjax.models import BACKBONES, sizes
from splitjax.models.build import cut
from splitjax.models.layers import Norm, Style
from splitjax.models.network import Backbone, is_norm
from splitjax.types import State, UserError
from splitjax.wire import Channel, Wire

_NORMS = {"local": "BatchNorm", "group_norm": "GroupNorm"}
"""Value of batch_norm -> the layers that it needs."""


class Network(NamedTuple):
  """The network and the clients, which suffice to read a saved state."""

  backbone: Backbone  #: its cuts are the split depths in use
  fleet: Fleet
  mean: tuple[float, ...]  #: of each channel or feature; () for token ids
  std: tuple[float, ...]  #: likewise, of training samples before scaling
  names: tuple[str, ...] = ()  #: of the clients; () where there are none
  class_names: tuple[str, ...] = ()  #: likewise of the classes
  dtype: str = "uint8"  #: of the inputs


def make_backbone(
  config: Config, shape: tuple[int, ...], classes: int, vocabulary: int = 0
) -> Backbone:
  """Builds a config's network for inputs of `shape`; checks its depths."""
  spec = config.backbone
  options = dict(spec.options)
  if _takes_style(spec.name):
    norm: Norm = "group" if config.batch_norm == "group_norm" else "batch"
    options["style"] = Style(config.system.compute_dtype, norm)
  backbone = cut(spec.name, shape, classes, options, vocabulary)
  if config.init == "he":
    return backbone
  return dataclasses.replace(backbone, start=config.init)


def _takes_style(name: str) -> bool:
  """Tells whether a network's factory takes dtype and norm from the config."""
  return "style" in inspect.signature(BACKBONES[name]).parameters


def from_scratch(config: Config) -> Config:
  """Returns the config without pretrained weights, which training reads."""
  if config.backbone.options.get("pretrained") is None:
    return config
  net = copy.deepcopy(config.backbone)
  net.pretrained = None
  return dataclasses.replace(config, backbone=net)


def make_network(config: Config, facts: Mapping[str, Any]) -> Network:
  """Builds a config's network and clients, whose depths facts may have."""
  backbone = make_backbone(
    config, tuple(facts["shape"]), facts["classes"], facts.get("vocabulary", 0)
  )
  options = vars(config.fleet)
  rates = Rates(**{name: options[name] for name in Rates._fields})
  drawn = draw_devices(config.num_clients, config.seed, options)
  hardware = drawn._replace(rates=rates)
  fleet = fleets.assign_depths(
    config.num_clients,
    backbone.cuts,
    config.seed,
    participants=config.participants_per_round,
    power=config.system.client_power,
    cuts=facts.get("depth") or _allocated(config, hardware, backbone),
  )
  listed = ("mean", "std", "names", "class_names")
  return Network(
    backbone=backbone,
    fleet=fleet._replace(hardware=hardware),
    dtype=facts.get("dtype", "uint8"),
    **{name: tuple(facts.get(name, ())) for name in listed},
  )


def _allocated(
  config: Config, hardware: Devices, backbone: Backbone
) -> list[int]:
  """Returns the depths [N] by the config's rule, which may be one's own."""
  rule = config.fleet.allocation
  count = config.num_clients
  allocate = ALLOCATIONS[rule.name]
  depth = np.asarray(allocate(hardware, backbone, config.seed, **rule.options))
  if len(depth) != count or not set(depth.tolist()) <= set(backbone.cuts):
    raise UserError(
      f"fleet.allocation={rule.name}: gave {np.unique(depth)} for {len(depth)}"
      f" clients; it must give one of the cuts {backbone.cuts}"
      f" (backbone.depths) to each of {count}"
    )
  return depth.tolist()


def check_layers(config: Config, net: Backbone) -> None:
  """Raises UserError if the network lacks what the config says of layers."""
  name = config.backbone.name
  dtype = config.system.compute_dtype
  if dtype != "float32" and not _takes_style(name):
    raise UserError(
      f"system.compute_dtype={dtype!r}: {name} computes in float32; give its"
      " factory the argument style, or leave it out"
    )
  leaves = jax.tree_util.tree_leaves_with_path(sizes.shapes(net).params)
  layers = {
    jax.tree_util.keystr(path, simple=True, separator="/"): leaf
    for path, leaf in leaves
  }
  draws = any(p.endswith("/kernel") and x.ndim == 3 for p, x in layers.items())
  if config.init != "he" and draws:
    raise UserError(
      f"init={config.init!r}: {name} draws its layers as its paper does; leave"
      " it 'he'"
    )
  needs = {f"batch_norm={config.batch_norm!r}": _NORMS.get(config.batch_norm)}
  for key, spec in config.methods.items():
    if METHODS[spec.name] is FedBN:
      needs[f"methods.{key}={spec.name}"] = "BatchNorm"
  for field, norm in needs.items():
    if norm and not any(is_norm(path, norm) for path in layers):
      raise UserError(f"{field}: {name} does not normalise batches; change it")


# Methods.


def make_method(config: Config, backbone: Backbone, key: str) -> Method:
  """Makes the method of a key in config.methods; checks its options."""
  spec = config.methods[key]
  loss = config.loss
  of_sample = task_losses.make_loss(loss.name, backbone.classes, loss.options)
  channels = {}
  for kind in CHANNELS:
    form = vars(getattr(config.wire, kind))
    noise = getattr(config.privacy, kind)
    channels[kind] = Channel(**form, clip=noise.clip, noise=noise.noise or None)
  outer = vars(config.mean_optimizer)
  # A kept program must not keep the arrays of pretrained weights.
  start = backbone.start if isinstance(backbone.start, str) else "he"
  with naming(f"methods.{key}"):
    method = METHODS[spec.name](
      backbone=dataclasses.replace(backbone, loss=of_sample, start=start),
      optimizer=make_optimizer(config.optimizer, config.rounds),
      channels=Wire(**channels),
      outer=Outer(**outer) if outer["name"] else None,
      local_norm=config.batch_norm == "local",
      **spec.options,
    )
    if not isinstance(method, Method):
      raise UserError(f"{spec.name} makes a {type(method).__name__}, no Method")
  return method


def make_optimizer(chosen: OptimizerConfig, rounds: int) -> Optimizer:
  """Makes the optimiser of both sides, for a run of so many rounds."""
  fields = dataclasses.asdict(chosen)
  # None, not 0, leaves out a buffer that would take memory and time.
  fields |= {k: fields[k] or None for k in ("momentum", "weight_decay")}
  return Optimizer(**fields, rounds=rounds)


def abstract_state(
  method: Method, network: Network, layout: Layout | None = None
) -> State:
  """Returns shapes and dtypes of a method's state; computes nothing.

  `layout` has the cohorts with their padding; None: they have none. UserError
  if the method cannot start with these clients.
  """
  clients = layout or own_fleet(method, network.fleet).layout
  return jax.eval_shape(
    lambda full, key: round.start(method, clients, full, key),
    sizes.shapes(network.backbone),
    jax.random.key(0),
  )
