"""Makes and checks the methods of a Config; derives the shapes of states."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from splitjax.config.messages import CHANNELS
from splitjax.config.schema import Config
from splitjax.engine import fleets
from splitjax.engine.fleets import Fleet
from splitjax.experiment.setup.network import Network
from splitjax.methods import METHODS, mean_optimizer, optimizers, task_losses
from splitjax.models import shapes
from splitjax.models.backbones import Backbone
from splitjax.registry import flat
from splitjax.types import Method, State, UserError, naming
from splitjax.wire import Channel

Methods = Mapping[str, Method]
"""The methods of a run by their keys in config.methods."""


def make_method(
  config: Config,
  backbone: Backbone,
  key: str,
  numbers: Mapping[str, Any] | None = None,
) -> Method:
  """Makes the method of a key in config.methods; checks its options.

  `numbers` maps hyper-parameters to values that replace those of the config.
  Its keys are optimizer.NAME, options.NAME, loss.NAME, privacy.CHANNEL.NAME.
  """
  spec = config.methods[key]
  chosen, options = dataclasses.asdict(config.optimizer), dict(spec.options)
  noise = flat(dataclasses.asdict(config.privacy))
  loss = dict(config.loss.options)
  groups = {"optimizer": chosen, "options": options}
  groups |= {"privacy": noise, "loss": loss}
  for path, number in (numbers or {}).items():
    group, _, name = path.partition(".")
    groups[group][name] = number
  optimizer = optimizers.make_optimizer(**chosen, rounds=config.rounds)
  backbone = _wired(config, backbone, noise, loss)
  factory = METHODS[spec.name]
  with naming(f"methods.{key}"):
    made = factory(backbone, optimizer, **options)
    if not isinstance(made, Method):
      raise UserError(
        f"{spec.name} makes a {type(made).__name__}, no Method: return that of"
        " base.method"
      )
  if config.mean_weights == "uniform":
    made = mean_optimizer.with_uniform_weights(made)
  of_means = dataclasses.asdict(config.mean_optimizer)
  if of_means["name"] is not None:
    made = mean_optimizer.on_means(
      made, mean_optimizer.make_mean_optimizer(**of_means)
    )
  return made


def _wired(
  config: Config,
  backbone: Backbone,
  noise: Mapping[str, Any],
  of_loss: Mapping[str, Any],
) -> Backbone:
  """Adds a config's loss and channels (wire and privacy) to the network.

  `noise` maps KIND.clip and KIND.noise to numbers, and `of_loss` maps options
  of the loss to values.
  """
  channels: dict[str, Any] = {
    kind: Channel(
      **dataclasses.asdict(getattr(config.wire, kind)),
      clip=noise[f"{kind}.clip"],
      noise=noise[f"{kind}.noise"],
    )
    for kind in CHANNELS
  }
  wire = backbone.wire._replace(**channels)
  loss = task_losses.make_loss(config.loss.name, backbone.classes, of_loss)
  return dataclasses.replace(backbone, wire=wire, loss=loss)


def own_fleet(method: Method, network: Network) -> Fleet:
  """Returns the network's fleet, divided into the method's cohorts.

  A cohort has the clients of one split depth. Clients that hold the whole
  network are one cohort.
  """
  if method.traits.depth != "full":
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
  fleet = own_fleet(method, network)
  if places is not None:
    cohorts = tuple(
      dataclasses.replace(cohort, padding=count - len(cohort.ids))
      for cohort, count in zip(fleet.cohorts, places, strict=True)
    )
    fleet = dataclasses.replace(fleet, cohorts=cohorts)

  return jax.eval_shape(
    lambda key, full: method.init(key, fleet, full),
    jax.random.key(0),
    shapes.network(network.backbone),
  )
