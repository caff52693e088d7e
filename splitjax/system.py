"""The simulated machines: how large each share is, and how fast each is."""

import math

import numpy as np

from splitjax import backbone as bb
from splitjax import metrics
from splitjax.config import Config
from splitjax.fleet import Fleet
from splitjax.network import Network
from splitjax.types import Method


def client_sizes(
  method: Method, network: Network, *, at_server: bool = False
) -> metrics.Sizes:
  """|phi|, |h|, |theta| behind the cut, and its channels, of each client.

  Args:
    method: whose clients they are.
    network: the network and the clients.
    at_server: all of it lies at the server, the cut before it: what is sent are
      the numbers of a sample (SplitGP eq. 29).
  """
  backbone, n = network.backbone, network.fleet.num_clients
  size = bb.sizes(backbone)
  shapes = bb.outputs(backbone)
  out = np.zeros((4, n), np.int64)
  if method.whole:
    whole = sum(size[name] for name in (*backbone.names(), "head"))
    out[2 if at_server else 0] = whole
    out[3] = math.prod(backbone.shape) if at_server else 0
    return metrics.Sizes(*out)
  for cohort in network.fleet.cohorts:
    k = cohort.depth
    out[:, list(cohort.ids)] = np.array(
      [
        sum(size[name] for name in backbone.names(0, k)),
        size[bb.exit_name(k)],
        sum(size[name] for name in (*backbone.names(k), "head")),
        shapes[backbone.names()[k - 1]][-1],
      ]
    )[:, None]
  return metrics.Sizes(*out)


def resources(config: Config, fleet: Fleet) -> metrics.Resources:
  """P_C of each client, P_S and BW."""
  return metrics.Resources(
    np.asarray(fleet.power),
    config.system.server_power,
    config.system.bandwidth,
  )
