"""Inference latency and split depths.

A model, not a measured time: parameters over computing power plus channels over
bandwidth, in the units of the papers' tables (SplitGP, Han et al., INFOCOM
2023, eq. 28-33; HARMONY, Youn et al., 2026, eq. 12).
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from splitjax.data.dataset import require
from splitjax.evaluation.gate import Sides
from splitjax.evaluation.means import ratio
from splitjax.evaluation.subject import Subject
from splitjax.models import BACKBONES
from splitjax.models.build import cut
from splitjax.models.network import Backbone
from splitjax.models.sizes import outputs, parts_at
from splitjax.options import Spec

PerClient = np.ndarray | float
"""Values of N clients, [..., N], or the value of one client."""


class Sizes(NamedTuple):
  """How many parameters each client's network has, [N]; of one client []."""

  #: |phi_n|; the whole network with its head if the client holds it all
  prefix: np.ndarray
  exit: np.ndarray  #: |h_n|; 0 if there is none or if `prefix` includes it
  server: np.ndarray  #: |theta|, only the blocks that these features pass
  channels: np.ndarray  #: dim_cut or q_c, the channels at the cut


class Resources(NamedTuple):
  """Computing powers and bandwidth, in the units of the papers."""

  client_power: PerClient = 20.0  #: [N] P_C
  server_power: float = 100.0  #: P_S
  bandwidth: float = 1.0  #: BW of HARMONY, R of SplitGP, numbers per time


class Needs(NamedTuple):
  """What inference of a test set takes, [..., N] (SplitGP's Table I)."""

  storage: np.ndarray  #: [N] |phi| + |h|, parameters that a client stores
  computation: np.ndarray  #: (|phi| + |h|) |D|, parameters passed there
  communication: np.ndarray  #: beta q_c |D|, numbers that it sends
  served: np.ndarray  #: beta |theta| |D|, parameters passed at the server

  def latency(self, resources: Resources) -> np.ndarray:
    """Inference time [..., N] of the test set (HARMONY eq. 12, SplitGP eq. 30).

    |D| { (|phi| + |h|) / P_C + Pr(Tx) (dim_cut / BW + |theta| / P_S) }

    In parameters over power; the papers report the SUM over clients.
    """
    return (
      self.computation / resources.client_power
      + self.communication / resources.bandwidth
      + self.served / resources.server_power
    )


def count_needs(
  sizes: Sizes, samples: PerClient, offloaded: PerClient, sides: Sides
) -> Needs:
  """Counts what inference of |D| = `samples` [..., N] of each client takes.

  The share beta = Pr(Tx) = `offloaded` [..., N] of them goes to the server; if
  only one of the `sides` (`Method.answers`) can answer, none or all. |h| counts
  only if the client can.
  """
  share = np.where(np.asarray(samples) > 0, offloaded, 0.0)
  if len(sides) == 1:
    share = np.full_like(share, 1.0 if sides == ("server",) else 0.0)
  stored = sizes.prefix + sizes.exit * ("client" in sides)
  sent = samples * share
  return Needs(
    storage=stored,
    computation=samples * stored,
    communication=sent * sizes.channels,
    served=sent * sizes.server,
  )


# Where a network is deployed: the clients of a run, and the alternatives.


def deployments(sizes: Sizes, pixels: float) -> dict[str, tuple[Sizes, Sides]]:
  """Maps each deployment to the sizes of its parts and the exits that answer.

  In "client" the client has the whole network (SplitGP eq. 28), in "server" the
  server, to which raw samples of `pixels` numbers are sent (eq. 29).
  """
  network = sizes.prefix + sizes.server
  zero = 0 * sizes.prefix
  nothing = Sizes(prefix=zero, exit=zero, server=zero, channels=zero)
  at_client = nothing._replace(prefix=network)
  at_server = nothing._replace(server=network, channels=zero + pixels)
  return {
    "cut": (sizes, ("client", "server")),
    "client": (at_client, ("client",)),
    "server": (at_server, ("server",)),
  }


def client_sizes(subject: Subject, *, at_server: bool = False) -> Sizes:
  """Returns the sizes of each client's parts.

  Networks that clients train as a whole lie at the client, or at the server if
  it evaluates them (`at_server`), as in `deployments`.
  """
  net = subject.backbone
  parts = _parts(net, net.cuts)
  if not subject.method.uncut:
    return sizes_of(parts.loc[subject.fleet.depths])
  # The parts of any cut have the sum of the network.
  cuts = [net.cuts[0]] * subject.fleet.num_clients
  uncut = sizes_of(parts.loc[cuts])
  side = "server" if at_server else "client"
  return deployments(uncut, math.prod(net.shape))[side][0]


def resources_of(subject: Subject) -> Resources:
  """Returns P_C of each client, P_S and BW of a run."""
  system = subject.config.system
  power = np.asarray(subject.fleet.power)
  return Resources(power, system.server_power, system.bandwidth)


# Where a network can be cut.


def _bounds(
  sizes: Sizes,
  resources: Resources,
  offloaded: float,
  pixels: float,
  limit: float,
) -> dict[str, np.ndarray]:
  """Computes up to where a cut is fast enough (SplitGP Prop. 1-3, eq. 31-33).

  Infinite where any value meets a bound; |phi| is below 0 if no cut does.

  1. One sample takes tau' = `limit` at most, at |phi| up to P_C P_S
     (tau' - beta q_c / R - |h| / P_C - beta |w| / P_S) / (P_S - beta P_C)
  2. The cut beats the network at the client, at P_C up to
     (|theta| - |h|) / (beta (q_c / R + |theta| / P_S))
  3. The cut beats the network at the server, at R up to (q - beta q_c)
     / ((|phi| + |h|) / P_C - (|phi| + (1 - beta) |theta|) / P_S),
     which follows from eq. 29 and 30; eq. 33 prints (1 - beta) before |phi| too

  Of |w| = |phi| + |theta|, P_S > beta P_C, beta = `offloaded`, and q = `pixels`
  of at least beta q_c.
  """
  phi, h, theta, q_c = sizes
  p_c, p_s, r = resources
  beta = offloaded
  w = phi + theta
  spare = limit - beta * q_c / r - h / p_c - beta * w / p_s
  slower = (phi + h) / p_c - (phi + (1 - beta) * theta) / p_s
  bound = functools.partial(ratio, otherwise=np.inf)
  return {
    "largest_prefix": bound(p_c * p_s * spare, p_s - beta * p_c),
    "largest_power": bound(theta - h, beta * (q_c / r + theta / p_s)),
    "largest_bandwidth": bound(pixels - beta * q_c, slower),
  }


def split_depths(
  name: str,
  shape: tuple[int, ...],
  classes: int,
  resources: Resources | None = None,
  *,
  offloaded: float = 0.1,
  limit: float = math.inf,
  smallest: int = 0,
  **options: Any,
) -> pd.DataFrame:
  """Tabulates the depths at which a backbone can be cut, for one client.

  Args:
    name: key of BACKBONES.
    shape: shape of one input, (H, W, c) of images, which has q numbers.
    classes: C.
    resources: powers and bandwidth; None: SplitGP's.
    offloaded: beta, the share of samples that the server answers.
    limit: tau', the latency allowed for one sample.
    smallest: |phi_min|, parameters that personalisation needs.
    **options: options of the backbone.

  Returns:
    A row for each depth. Its columns are last_block (the name of the client's
    last block); phi, h, theta and channels (the `Sizes`); features (how many
    numbers one sample has at the cut); bottleneck (whether no shallower cut
    sends fewer, Hydra, appendix D.2); cut, at_client and at_server (latency of
    one sample, eq. 30, 28 and 29); largest_prefix, largest_power and
    largest_bandwidth (up to where it meets SplitGP's Propositions 1 to 3, in
    |phi|, P_C and R); within_limit, beats_client and beats_server (whether it
    meets them); large_enough (whether |phi| is not below the smallest);
    feasible (within the limit and large enough).

  Example:
    >>> import splitjax
    >>> table = splitjax.split_depths("cnn8", (28, 28, 1), 10, limit=30_000)
    >>> table.index[table.feasible].tolist()
    [1, 2, 3, 4]
  """
  resources = resources or Resources()
  _check(resources, offloaded, limit)
  spec = Spec.at(BACKBONES, "backbone", {"name": name, **options})
  depths = tuple(range(1, cut(name, shape, classes, spec.options).length))
  net = cut(name, shape, classes, {**spec.options, "depths": depths})
  table = _parts(net, depths)

  sent = np.array([math.prod(x) for x in outputs(net).values()])[: len(depths)]
  table["features"] = sent
  table["bottleneck"] = sent <= np.minimum.accumulate(sent)

  # Compare latencies, not bounds: with beta = 0 a bound is infinite.
  pixels = math.prod(shape)
  sizes = sizes_of(table)
  columns = "cut", "at_client", "at_server"
  deployed = deployments(sizes, pixels).values()
  for column, (parts, sides) in zip(columns, deployed, strict=True):
    table[column] = count_needs(parts, 1, offloaded, sides).latency(resources)
  bounds = _bounds(sizes, resources, offloaded, pixels, limit)
  table = table.assign(**bounds)
  table["within_limit"] = table.cut <= limit
  table["large_enough"] = table.phi >= smallest
  table["beats_client"] = table.cut <= table.at_client
  table["beats_server"] = table.cut <= table.at_server
  table["feasible"] = table.within_limit & table.large_enough
  return table


def _parts(net: Backbone, depths: Sequence[int]) -> pd.DataFrame:
  """Tabulates the parts of a network that is cut at each of the depths."""
  table = pd.DataFrame([parts_at(net, depth) for depth in depths])
  table["channels"] = [shape[-1] for shape in table.pop("output")]
  return table.set_index("depth")


def sizes_of(table: pd.DataFrame | pd.Series) -> Sizes:
  """Reads the sizes from the table of `split_depths`, or from a row of it."""
  return Sizes(
    prefix=np.asarray(table["phi"]),
    exit=np.asarray(table["h"]),
    server=np.asarray(table["theta"]),
    channels=np.asarray(table["channels"]),
  )


def _check(resources: Resources, offloaded: float, limit: float) -> None:
  """Raises a UserError if a number of `split_depths` is invalid."""
  for field, value in {**resources._asdict(), "limit": limit}.items():
    require(value > 0, f"{field}={value} must be above 0")
  require(0 <= offloaded <= 1, f"offloaded={offloaded} must be in 0..1")
  least = offloaded * resources.client_power
  require(
    limit == math.inf or resources.server_power > least,
    f"limit={limit}: Proposition 1 wants server_power"
    f" ({resources.server_power}) above offloaded x client_power ({least}):"
    " raise server_power, or leave limit out",
  )
