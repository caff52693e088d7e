"""Checks of a config against its data, network and methods, before compiling.

`fields` checks single fields; the groups of `config.config` check fields
against each other.
"""

import inspect

import jax
import numpy as np

from splitjax import machine
from splitjax.config.config import CHANNELS, Config, Data, Noise, Rows
from splitjax.data import Dataset, TestSets
from splitjax.data.sources import FORMS
from splitjax.engine import layout
from splitjax.engine.loops import one_server
from splitjax.experiment.setup import method_factory, network, tracing
from splitjax.experiment.setup.method_factory import Methods
from splitjax.experiment.setup.network import Network
from splitjax.files import is_own
from splitjax.methods import METHODS
from splitjax.methods.fedavg import FedBN
from splitjax.methods.method import Method
from splitjax.models import BACKBONES, sizes
from splitjax.models.network import Backbone, is_norm
from splitjax.types import UserError
from splitjax.wire import KINDS


def check_first(config: Config) -> None:
  """Checks network and methods before data are loaded.

  Input shape and classes are taken from `FORMS`. If `FORMS` lacks the data set,
  or if the network is the user's own, network and methods are not checked here.
  `build` checks everything again with the data.
  """
  form = FORMS.get(config.data.name)
  if form is None or is_own(BACKBONES[config.backbone.name]):
    return
  net = network.make_backbone(network.from_scratch(config), *form)
  check_layers(config, net)
  for key in config.methods:
    method_factory.make_method(config, net, key)


def checked_owners(chosen: Data, data: Dataset) -> np.ndarray:
  """Returns the owner of each training sample, [Z].

  Raises UserError if samples have no owners or if `chosen.dealt` is "by_depth".
  """
  name = chosen.partition.name
  if data.train_client is None:
    raise UserError(
      f"data.partition={name}: {data.name} does not name its samples' clients;"
      " choose another, or data with train_client (npz:PATH)"
    )
  if chosen.dealt == "by_depth":
    raise UserError(
      f"data.dealt=by_depth: {name} gives client n the n-th owner's samples;"
      " leave it 'any', and choose depths by fleet.profiles"
    )
  return data.train_client


def check_layers(config: Config, net: Backbone) -> None:
  """Raises UserError if the network does not support dtype, init or norm.

  It must compute in system.compute_dtype, initialise its layers as `init` says,
  and have the norm layers that `batch_norm` or the method fedbn needs.
  """
  name, dtype = config.backbone.name, config.system.compute_dtype
  takes_style = "style" in inspect.signature(BACKBONES[name]).parameters
  if dtype != "float32" and not takes_style:
    raise UserError(
      f"system.compute_dtype={dtype!r}: {name} computes in float32; give its"
      " factory the argument style, or leave it out"
    )
  by_name = [k for k, s in config.methods.items() if METHODS[s.name] is FedBN]
  norm = "local" if by_name else config.batch_norm
  if config.init == "he" and norm == "average":
    return
  layers = jax.tree_util.tree_leaves_with_path(sizes.shapes(net).params)
  own = any(path[-1].key == "kernel" and x.ndim == 3 for path, x in layers)
  if config.init != "he" and own:
    raise UserError(
      f"init='{config.init}': {name} draws its layers as its paper does; leave"
      " it 'he'"
    )
  kinds = {"local": "BatchNorm", "group_norm": "GroupNorm"}
  kind = kinds.get(norm)
  if kind and not any(is_norm(path, kind) for path, _ in layers):
    field, remedy = f"batch_norm='{norm}'", "leave it 'average'"
    if by_name:
      field, remedy = f"methods.{by_name[0]}=fedbn", "choose fedavg"
    raise UserError(f"{field}: {name} does not normalise batches; {remedy}")


def check_methods(
  config: Config, network: Network, methods: Methods, test_sets: TestSets
) -> None:
  """Raises UserError where methods and config contradict each other."""
  _check_best(config, test_sets)
  _check_prices(config, network, methods)
  for key, method in methods.items():
    if one_server(method):
      _check_one_server(config, network.backbone.cuts, key, method)


def _check_best(config: Config, test_sets: TestSets) -> None:
  """Raises UserError if checkpoint.best is no metric of an evaluation."""
  best, names = config.checkpoint.best, ("loss", *test_sets.names)
  if best is not None and best not in names:
    raise UserError(f"checkpoint.best={best} must be one of {', '.join(names)}")


def _check_prices(config: Config, network: Network, methods: Methods) -> None:
  """Raises UserError if a message with a form or noise is only priced.

  A method may count a message's bytes without sending it (`wire.record`). The
  ledger would then have the bytes of a form that rounds nothing.
  """
  for kind in CHANNELS:
    form, noise = getattr(config.wire, kind), getattr(config.privacy, kind)
    if (form, noise) == (Rows(), Noise()):
      continue
    names = {name for name, channel in KINDS.items() if channel == kind}
    for key, method in methods.items():
      fleet = method_factory.own_fleet(method, network)
      sent = tracing.of_steps(method, layout.of(fleet))
      if names & sent.priced and not names & set().union(*sent.counts):
        raise UserError(
          f"wire.{kind} and privacy.{kind}: {key} only counts the bytes of"
          f" {kind}, because its clients train the whole network"
          " (`Method.cuts`); set them back"
        )


def _check_one_server(
  config: Config, cuts: tuple[int, ...], key: str, method: Method
) -> None:
  name = config.methods[key].name
  if len(cuts) > 1:
    raise UserError(
      f"backbone.depths={cuts}: {name} has one server for clients of one"
      f" depth; choose one, as in ({cuts[0]},)"
    )
  if config.system.devices not in (None, 1) or machine.is_distributed():
    raise UserError(
      f"system.devices={config.system.devices}: {name} has one server, whose"
      " clients train on one device in one process; set it to 1"
    )
  if method.topology == "relay" and config.batch_norm == "local":
    raise UserError(
      f"batch_norm=local: {name} passes one part-1 from client to client;"
      " choose average or group_norm"
    )
