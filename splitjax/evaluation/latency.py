"""Inference latency and split depths: HARMONY eq. 12, SplitGP eq. 28-33.

This is the papers' model, not a measured time: parameters over computing power
plus channels over bandwidth, in the units of the papers' tables.

References:
  SplitGP (Han et al., INFOCOM 2023), Sec. V, eq. 28-33.
  HARMONY (Youn et al., 2026), Sec. 5, eq. 12.
  Hydra (Tirana et al., AAAI 2026), Section 4 and appendix D.2.
"""

import dataclasses
import math
import typing
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, TypedDict

import numpy as np

from splitjax import fields
from splitjax.evaluation.means import ratio
from splitjax.evaluation.subject import Subject
from splitjax.fields import NOT_NEGATIVE, POSITIVE, PROBABILITY
from splitjax.files import plain
from splitjax.models import BACKBONES
from splitjax.models.build import cut
from splitjax.models.sizes import outputs, parts_at
from splitjax.options import Spec
from splitjax.types import UserError


class Sizes(NamedTuple):
  """Numbers of parameters of each client's network.

  They are [N], or numbers without an axis for a single client.
  """

  #: |phi_n|; the whole network with its head if the client holds it all
  prefix: np.ndarray
  exit: np.ndarray  #: |h_n|; 0 if there is none or if `prefix` includes it
  server: np.ndarray  #: |theta|, only the blocks that these features pass
  channels: np.ndarray  #: dim_cut, the channels at the cut, not parameters


class Resources(NamedTuple):
  """Computing powers and bandwidth, in the units of the papers."""

  client: np.ndarray | float  #: [N] P_C; a number for one client
  server: float = 100.0  #: P_S
  bandwidth: float = 1.0  #: BW of HARMONY, R of SplitGP


def round_trip_latency(
  sizes: Sizes,
  resources: Resources,
  samples: np.ndarray | int,
  offloaded: np.ndarray | float,
  sides: tuple[str, ...],
) -> np.ndarray:
  """Inference time of a client's test set (HARMONY eq. 12, SplitGP eq. 30).

  |D| { (|phi| + |h|) / P_C + Pr(Tx) (dim_cut / BW + |theta| / P_S) }

  |h| counts only if the client can answer, the term with Pr(Tx) only if the
  server can answer. If only the server can answer, all samples are offloaded.
  The latency that the papers report is the SUM over clients, the last axis.

  Args:
    sizes: [N] each.
    resources: P_C, P_S and BW.
    samples: [..., N] int, test samples |D|.
    offloaded: [..., N] float in [0, 1], Pr(Tx); NaN if there is no sample.
    sides: which exits can answer, as in `Method.answers`.

  Returns:
    [..., N] float64, in parameters over power; 0 for a client without samples.
  """
  sent = np.where(np.asarray(samples) > 0, offloaded, 0.0)
  if "server" not in sides:
    sent = np.zeros_like(sent)
  if "client" not in sides:
    sent = np.ones_like(sent)
  device = (sizes.prefix + sizes.exit * ("client" in sides)) / resources.client
  return samples * (device + sent * _remote(sizes, resources))


def _remote(sizes: Sizes, resources: Resources) -> np.ndarray:
  """The time of one offloaded sample, dim_cut / BW + |theta| / P_S."""
  sending = sizes.channels / resources.bandwidth
  return sending + sizes.server / resources.server


class Needs(NamedTuple):
  """The columns of SplitGP's Table I, for each client."""

  storage: np.ndarray  #: [N] parameters that a client stores
  #: [..., N] samples times the parameters that each passes at the client
  computation: np.ndarray
  communication: np.ndarray  #: [..., N] numbers that a client sends


def needs(
  sizes: Sizes,
  samples: np.ndarray | int,
  offloaded: np.ndarray | float,
  sides: tuple[str, ...],
) -> Needs:
  """|phi| + |h|, (|phi| + |h|) |D| and beta q_c |D| (SplitGP Table I).

  Each by `round_trip_latency`: infinite powers and bandwidth remove the rest.
  """
  computing = Resources(1.0, np.inf, np.inf)
  sending = Resources(np.inf, np.inf, 1.0)
  return Needs(
    round_trip_latency(sizes, computing, 1, offloaded, sides),
    round_trip_latency(sizes, computing, samples, offloaded, sides),
    round_trip_latency(sizes, sending, samples, offloaded, sides),
  )


def client_sizes(subject: Subject, *, at_server: bool = False) -> Sizes:
  """Returns each client's |phi|, |h| and |theta|, and the channels at its cut.

  If clients train the whole network, |phi| is its size and the rest is 0. But
  if the server evaluates that network (`at_server`), |theta| is its size, and
  the numbers of an input, which clients send, replace the channels (eq. 29).
  """
  net = subject.backbone
  table = np.zeros((subject.fleet.num_clients, 4), np.int64)
  for cohort in subject.fleet.cohorts:
    part = parts_at(net, net.cuts[0] if subject.method.uncut else cohort.depth)
    numbers = [part["phi"], part["h"], part["theta"], part["cut"][-1]]
    if subject.method.uncut:
      everything = part["phi"] + part["theta"]
      numbers = [everything, 0, 0, 0]
      if at_server:
        numbers = [0, 0, everything, math.prod(net.shape)]
    table[list(cohort.ids)] = numbers
  prefix, exit, server, channels = table.T
  return Sizes(prefix=prefix, exit=exit, server=server, channels=channels)


def resources(subject: Subject) -> Resources:
  """Returns P_C of each client, P_S and BW of a run."""
  system = subject.config.system
  power = np.asarray(subject.fleet.power)
  return Resources(power, system.server_power, system.bandwidth)


# Where to deploy a network, and where to cut it.


def deployments(
  sizes: Sizes, pixels: float
) -> dict[str, tuple[Sizes, tuple[str, ...]]]:
  """Maps each deployment to the sizes of its parts and the exits that answer.

  "cut" has the given sizes. In "client" the client has the whole network
  (SplitGP eq. 28), in "server" the server, to which raw samples of `pixels`
  numbers are sent (eq. 29).
  """
  network = sizes.prefix + sizes.server
  none = 0 * sizes.prefix
  return {
    "cut": (sizes, ("client", "server")),
    "client": (Sizes(network, none, none, none), ("client",)),
    "server": (Sizes(none, none, network, none + pixels), ("server",)),
  }


def inference_times(
  sizes: Sizes, resources: Resources, offloaded: float, pixels: float
) -> np.ndarray:
  """Latency [3] of one client's sample in each of `deployments`, in order."""
  return np.stack(
    [
      round_trip_latency(deployed, resources, 1, offloaded, sides)
      for deployed, sides in deployments(sizes, pixels).values()
    ]
  )


class Propositions(NamedTuple):
  """SplitGP's bounds on a cut; infinite where any value meets them."""

  prefix: np.ndarray  #: [N] largest |phi|; below zero if no cut meets the limit
  power: np.ndarray  #: [N] largest P_C
  bandwidth: np.ndarray  #: [N] largest R


def propositions(
  sizes: Sizes,
  resources: Resources,
  offloaded: np.ndarray | float,
  pixels: float,
  limit: float = np.inf,
) -> Propositions:
  """Computes up to where a cut is fast enough (SplitGP Prop. 1-3, eq. 31-33).

  1. One sample takes tau' = `limit` at most, at |phi| up to
     P_C P_S (tau' - beta q_c / R - |h| / P_C - beta |w| / P_S)
     / (P_S - beta P_C)
  2. The cut beats the network at the client, at P_C up to
     (|theta| - |h|) / (beta (q_c / R + |theta| / P_S))
  3. The cut beats the network at the server, at R up to
     (q - beta q_c)
     / ((|phi| + |h|) / P_C - (|phi| + (1 - beta) |theta|) / P_S),
     which follows from eq. 29 and 30; eq. 33 prints (1 - beta) before |phi| too

  Of |w| = |phi| + |theta|, P_S > beta P_C, beta = `offloaded`, and q = `pixels`
  of at least beta q_c.
  """
  power, server, bandwidth = resources
  network = sizes.prefix + sizes.server
  spare = limit - offloaded * sizes.channels / bandwidth
  spare = spare - sizes.exit / power - offloaded * network / server
  remote = offloaded * _remote(sizes, resources)
  spared = sizes.prefix + (1 - offloaded) * sizes.server
  slower = (sizes.prefix + sizes.exit) / power - spared / server
  saved = pixels - offloaded * sizes.channels
  return Propositions(
    prefix=power * server * spare / (server - offloaded * power),
    power=ratio(sizes.server - sizes.exit, remote, otherwise=np.inf),
    bandwidth=ratio(saved, slower, otherwise=np.inf),
  )


@dataclasses.dataclass(frozen=True)
class Setting:
  """A client, its link and its requirements; defaults are the paper's.

  Example:
    >>> import splitjax
    >>> phone = splitjax.Setting(client_power=5.0, bandwidth=2.0)
    >>> phone.server_power
    100.0
  """

  client_power: Annotated[float, POSITIVE] = 20.0  #: P_C, parameters per time
  server_power: Annotated[float, POSITIVE] = 100.0  #: P_S
  #: R of SplitGP, BW of HARMONY, numbers per time
  bandwidth: Annotated[float, POSITIVE] = 1.0
  #: beta, the share of samples that the server answers
  offloaded: Annotated[float, PROBABILITY] = 0.1
  #: tau', the latency allowed for one sample; None: no limit
  limit: Annotated[float | None, POSITIVE] = None
  #: |phi_min|, parameters that personalisation needs
  smallest: Annotated[int, NOT_NEGATIVE] = 0

  def resources(self) -> Resources:
    """Returns P_C, P_S and R."""
    return Resources(self.client_power, self.server_power, self.bandwidth)


class SplitDepth(TypedDict):
  """A depth at which a network can be cut, JSON-ready."""

  depth: int
  behind: str  #: the name of the client's last block
  phi: int  #: parameters of the client's blocks
  h: int  #: of its exit
  theta: int  #: of the server's part
  channels: int  #: q_c, the channel dimension at the cut (HARMONY eq. 12)
  features: int  #: how many numbers one sample has at the cut
  #: whether no shallower cut sends fewer numbers (Hydra, appendix D.2)
  bottleneck: bool
  #: bytes that the server's blocks take in float32, with their outputs for a
  #: batch; one of Hydra's heads takes as many if the heads begin here
  memory: int
  cut: float  #: latency of one sample (SplitGP eq. 30)
  at_client: float  #: eq. 28
  at_server: float  #: eq. 29
  #: the bounds of Prop. 1-3; None if infinite
  largest_prefix: float | None
  largest_power: float | None
  largest_bandwidth: float | None
  within_limit: bool  #: whether Prop. 1 is met
  large_enough: bool  #: whether |phi| is not below the smallest
  feasible: bool  #: both
  beats_client: bool  #: whether Prop. 2 is met
  beats_server: bool  #: whether Prop. 3 is met


def split_depths(
  name: str,
  shape: tuple[int, ...],
  classes: int,
  setting: Setting = Setting(),
  *,
  depths: Sequence[int] | None = None,
  batch: int = 64,
  vocabulary: int = 0,
  **options: Any,
) -> list[SplitDepth]:
  """Evaluates the depths at which a backbone can be cut.

  Args:
    name: key of BACKBONES.
    shape: shape of one input, (H, W, c) of images. A raw sample sent to the
      server has q numbers, the product of `shape`.
    classes: C.
    setting: the client, its link and its requirements.
    depths: the depths to evaluate, ascending; None: all.
    batch: samples of a step, for the memory of the server's blocks.
    vocabulary: V, for a backbone of token ids.
    **options: options of the backbone.

  Returns:
    A dict with the entries of `SplitDepth` for each depth.

  Raises:
    UserError: an unknown backbone, or an invalid option or setting.

  Example:
    >>> import splitjax
    >>> depths = splitjax.split_depths("cnn8", (28, 28, 1), 10)
    >>> [row["depth"] for row in depths if row["feasible"]]
    [1, 2, 3, 4, 5, 6]
  """
  check_setting(setting)
  spec = Spec.of(BACKBONES, {"name": name, **options}, "backbone")
  if depths is None:
    uncut = cut(name, shape, classes, spec.options, vocabulary)
    depths = range(1, uncut.length)
  chosen = {**spec.options, "depths": tuple(depths)}
  net = cut(name, shape, classes, chosen, vocabulary)
  sent = {k: math.prod(x) for k, x in outputs(net).items()}
  rows = []
  for depth in depths:
    part = parts_at(net, depth)
    part["channels"] = part.pop("cut")[-1]
    passed = [sent[block] for block in net.names(0, depth)]
    behind = sum(sent[block] for block in net.names(depth)) + classes
    part["features"] = passed[-1]
    part["bottleneck"] = passed[-1] <= min(passed)
    part["memory"] = 4 * (part["theta"] + batch * behind)
    rows.append(plain(part | _judged(part, setting, math.prod(shape))))
  return rows


def sizes_of(depth: SplitDepth) -> Sizes:
  """Reads |phi|, |h|, |theta| and q_c from a row of `split_depths`."""
  return Sizes(
    prefix=np.asarray(depth["phi"]),
    exit=np.asarray(depth["h"]),
    server=np.asarray(depth["theta"]),
    channels=np.asarray(depth["channels"]),
  )


def _judged(depth: Any, setting: Setting, pixels: int) -> dict[str, object]:
  """Computes latencies, bounds and checks of these bounds for a cut."""
  sizes = sizes_of(depth)
  rates = setting.resources()
  beta = setting.offloaded
  limit = math.inf if setting.limit is None else setting.limit
  split, client, server = inference_times(sizes, rates, beta, pixels)
  bounds = propositions(sizes, rates, beta, pixels, limit)
  # Compare latencies, not bounds: with beta = 0 a bound is infinite.
  within = split <= limit
  enough = depth["phi"] >= setting.smallest
  return {
    "cut": split,
    "at_client": client,
    "at_server": server,
    "largest_prefix": None if setting.limit is None else bounds.prefix,
    "largest_power": bounds.power,
    "largest_bandwidth": bounds.bandwidth,
    "within_limit": within,
    "large_enough": enough,
    "beats_client": split <= client,
    "beats_server": split <= server,
    "feasible": within and enough,
  }


def check_setting(setting: Setting) -> None:
  """Raises a UserError if a setting is invalid."""
  hints = typing.get_type_hints(Setting, include_extras=True)
  for field, hint in hints.items():
    fields.convert(getattr(setting, field), hint, field)
  if setting.limit is not None and not (
    setting.server_power > setting.offloaded * setting.client_power
  ):
    raise UserError(
      f"limit={setting.limit}: Proposition 1 wants server_power"
      f" ({setting.server_power}) above offloaded x client_power"
      f" ({setting.offloaded} x {setting.client_power}): raise server_power, or"
      " leave limit out"
    )
