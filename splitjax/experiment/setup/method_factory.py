"""Makes and checks the methods of a Config; derives the shapes of states."""

import dataclasses
from collections.abc import Mapping, Sequence

import jax

from splitjax.config.config import CHANNELS, Config, OptimizerConfig
from splitjax.engine import layout, round
from splitjax.experiment.setup.network import Network
from splitjax.fleet import fleets
from splitjax.fleet.fleets import Fleet
from splitjax.methods import METHODS, task_losses
from splitjax.methods.method import Method
from splitjax.methods.optimizer import Optimizer
from splitjax.methods.outer import Outer
from splitjax.models import sizes
from splitjax.models.network import Backbone
from splitjax.types import State, UserError, naming
from splitjax.wire import Channel, Wire

Methods = Mapping[str, Method]
"""The methods of a run by their keys in config.methods."""


def make_method(config: Config, backbone: Backbone, key: str) -> Method:
  """Makes the method of a key in config.methods; checks its options."""
  spec, options = config.methods[key], {}
  if config.mean_weights == "uniform":
    options["mean"] = "uniform"
  with naming(f"methods.{key}"):
    method = METHODS[spec.name](
      backbone=_with_loss(config, backbone),
      optimizer=make_optimizer(config.optimizer, config.rounds),
      channels=_channels(config),
      outer=_outer(config),
      local_norm=config.batch_norm == "local",
      **spec.options | options,
    )
    if not isinstance(method, Method):
      raise UserError(f"{spec.name} makes a {type(method).__name__}, no Method")
  return method


def make_optimizer(chosen: OptimizerConfig, rounds: int) -> Optimizer:
  """Makes the optimiser of both sides, for a run of so many rounds."""
  given = dataclasses.asdict(chosen)
  # None, not 0, leaves out a buffer that would take memory and time.
  given |= {name: given[name] or None for name in OPTIONAL}
  return Optimizer(**given, rounds=rounds)


OPTIONAL = ("momentum", "weight_decay")
"""Parts of an optimiser that 0 switches off."""


def _channels(config: Config) -> Wire:
  """Makes the channels of config.wire and config.privacy."""
  channels = {}
  for kind in CHANNELS:
    chosen = getattr(config.privacy, kind)
    channels[kind] = Channel(
      **dataclasses.asdict(getattr(config.wire, kind)),
      clip=chosen.clip,
      noise=chosen.noise or None,
    )
  return Wire(**channels)


def _outer(config: Config) -> Outer | None:
  chosen = dataclasses.asdict(config.mean_optimizer)
  return None if chosen["name"] is None else Outer(**chosen)


def _with_loss(config: Config, backbone: Backbone) -> Backbone:
  chosen = config.loss
  loss = task_losses.make_loss(chosen.name, backbone.classes, chosen.options)
  # A kept program must not keep the arrays of pretrained weights.
  start = backbone.start if isinstance(backbone.start, str) else "he"
  return dataclasses.replace(backbone, loss=loss, start=start)


def own_fleet(method: Method, network: Network) -> Fleet:
  """Returns the network's fleet, divided into the method's cohorts.

  A cohort has the clients of one split depth. Clients that hold the whole
  network are one cohort.
  """
  if not method.uncut:
    return network.fleet
  return fleets.with_full_depth(network.fleet, network.backbone.length)


def abstract_state(
  method: Method, network: Network, places: Sequence[int] | None = None
) -> State:
  """Returns shapes and dtypes of a method's state; computes nothing.

  `places` are the numbers of clients in the cohorts, padding included; if None,
  there is no padding. Raises UserError if the method cannot start with these
  clients.
  """
  clients = layout.of(own_fleet(method, network))
  if places is not None:
    cohorts = tuple(
      cohort._replace(width=count)
      for cohort, count in zip(clients.cohorts, places, strict=True)
    )
    clients = clients._replace(cohorts=cohorts)
  return jax.eval_shape(
    lambda full, key: round.start(method, clients, full, key),
    sizes.shapes(network.backbone),
    jax.random.key(0),
  )
