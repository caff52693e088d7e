"""From a Config to a network and its clients, without any data."""

import dataclasses
import inspect
from typing import Any, NamedTuple

import jax
import numpy as np

from splitjax import backbone as bb
from splitjax import fleet as fleets
from splitjax.backbone import Backbone
from splitjax.backbones import BACKBONES
from splitjax.block import is_norm
from splitjax.config import Config
from splitjax.fleet import Fleet
from splitjax.types import UserError

MOST = {
  "width": 10**6,
  "resolution": 10**6,
  "length": 1000,
  "stages": 1000,
  "repeats": 1000,
}
"""Option -> its largest value, of several numbers their sum. Beyond it a
network cannot be counted: edges of arrays overflow, tracing never ends."""

MOST_PARAMETERS = 10**10
"""40 GB in float32, of one copy."""


class Network(NamedTuple):
  """What a saved state needs to be read again, without any data.

  Attributes:
    backbone: the network, at the cuts in use.
    fleet: the clients.
    mean: per-channel mean of the training split, pixel values.
    std: per-channel standard deviation, likewise.
  """

  backbone: Backbone
  fleet: Fleet
  mean: tuple[float, ...]
  std: tuple[float, ...]


def cut(
  name: str, shape: tuple[int, int, int], classes: int, options: dict[str, Any]
) -> Backbone:
  """A network at the cuts of its options.

  Args:
    name: in BACKBONES.
    shape: (H, W, c) of one image.
    classes: C.
    options: of the factory.

  Raises:
    UserError: a size that cannot be, or a depth that the network lacks.
  """
  _check_options(options)
  backbone = BACKBONES[name](shape, classes, **options)
  depths = options["depths"]
  for depth in depths:
    if not 1 <= depth < backbone.length:
      raise UserError(
        f"backbone.depths={depths}: {name} cannot be cut at {depth}; choose"
        f" from 1..{backbone.length - 1}"
      )
  size = sum(bb.sizes(backbone).values())
  if size > MOST_PARAMETERS:
    raise UserError(
      f"backbone.name={name!r}: with these options it has {size:,} parameters,"
      f" more than {MOST_PARAMETERS:,}; choose a smaller backbone.width"
    )
  return backbone


def _check_options(options: dict[str, Any]) -> None:
  """Raises UserError where an option has the right type and cannot be."""
  for field in ("width", "length"):
    if field in options and not options[field] > 0:  # NaN is neither
      raise UserError(f"backbone.{field}={options[field]} must be above 0")
  for field, most in MOST.items():
    if np.sum(options.get(field, 0)) > most:
      several = "sum to" if isinstance(options[field], tuple) else "be"
      raise UserError(
        f"backbone.{field}={options[field]} must {several} at most {most:,}"
      )
  depths = options["depths"]
  if not depths:
    raise UserError("backbone.depths=() must name at least one split depth")
  if len(set(depths)) < len(depths):
    raise UserError(f"backbone.depths={depths} must differ from one another")


def make_backbone(
  config: Config, shape: tuple[int, int, int], classes: int
) -> Backbone:
  """The network of a config, for images of a shape.

  Raises:
    UserError: a split depth that the network does not allow.
  """
  factory, options = BACKBONES[config.backbone.name], config.backbone.options
  settings = {
    "conv": config.system.conv,
    "dtype": config.system.compute_dtype,
    "norm": "group" if config.batch_norm == "group_norm" else "batch",
  }
  known = inspect.signature(factory).parameters
  options = options | {k: v for k, v in settings.items() if k in known}
  backbone = cut(config.backbone.name, shape, classes, options)
  if config.batch_norm == "average":
    return backbone
  _check_norm(config, backbone)
  local = config.batch_norm == "local"
  return dataclasses.replace(backbone, local_norm=local)


def _check_norm(config: Config, backbone: Backbone) -> None:
  """Raises UserError where a policy is chosen for what is not there."""
  full = jax.eval_shape(lambda: bb.init(backbone, jax.random.key(0)))
  kind = "BatchNorm" if config.batch_norm == "local" else "GroupNorm"
  paths = jax.tree_util.tree_leaves_with_path(full.params)
  if not any(is_norm(path, kind) for path, _ in paths):
    raise UserError(
      f"batch_norm='{config.batch_norm}': {config.backbone.name} does not"
      " normalise batches; leave it 'average'"
    )


def from_scratch(config: Config) -> Config:
  """The config without what training alone reads: its files may be gone.

  Those are a checkpoint to start from and a schedule of faults.
  """
  options = config.backbone.options
  if options.get("pretrained") is not None:
    options = {**options, "pretrained": None}
    backbone = dataclasses.replace(config.backbone, options=options)
    config = dataclasses.replace(config, backbone=backbone)
  faults = dataclasses.replace(config.faults, schedule=None)
  return dataclasses.replace(config, faults=faults)


def make_network(config: Config, facts: dict) -> Network:
  """The network and clients of a config.

  Args:
    config: the run.
    facts: shape (H, W, c), classes, mean and std of the data, as
      `world.facts` gives them.

  Raises:
    UserError: impossible depths or numbers of clients.
  """
  backbone = make_backbone(config, tuple(facts["shape"]), facts["classes"])
  fleet = fleets.deal(
    config.num_clients,
    backbone.cuts,
    config.seed,
    participants=config.participants_per_round,
    participation=config.participation,
    power=config.system.client_power,
  )
  return Network(backbone, fleet, tuple(facts["mean"]), tuple(facts["std"]))
