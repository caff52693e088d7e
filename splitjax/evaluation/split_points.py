"""Which split depths are feasible for a client (SplitGP, Sec. V).

For given P_C, P_S, R (BW), offload ratio beta, latency limit tau' and smallest
|phi| every depth at which a network can be cut is judged by Propositions 1-3
(`metrics`). `feasible` says the same on the command line.

  latency.split_depths(
    "vgg11", (32, 32, 3), 10, latency.Setting(client_power=40, limit=20_000)
  )

References:
  SplitGP (Han et al., "SplitGP: Achieving Both Generalization and
    Personalization in Federated Learning", INFOCOM 2023), Sec. V, eq. 28-33.
"""

import dataclasses
import math
import typing
from collections.abc import Mapping
from typing import Any

import numpy as np

from splitjax import registry
from splitjax.evaluation import latency
from splitjax.evaluation.latency import inference_times
from splitjax.files import plain
from splitjax.models import BACKBONES
from splitjax.models import backbone as bb
from splitjax.models.build import cut
from splitjax.registry import read_spec
from splitjax.types import UserError


@dataclasses.dataclass(frozen=True)
class Setting:
  """One client, its link and what is asked of them; the paper's by default.

  Attributes:
    client_power: P_C, parameters per unit of time.
    server_power: P_S, likewise.
    bandwidth: R of SplitGP, BW of HARMONY, numbers per unit of time.
    offloaded: beta, the share of samples that the server answers.
    limit: tau', the latency allowed for one sample; None: any.
    smallest: |phi_min|, parameters that personalisation needs.
  """

  client_power: float = 20.0
  server_power: float = 100.0
  bandwidth: float = 1.0
  offloaded: float = 0.1
  limit: float | None = None
  smallest: int = 0

  def resources(self) -> latency.Resources:
    """P_C [1], P_S and R."""
    power = np.array([self.client_power])
    return latency.Resources(power, self.server_power, self.bandwidth)


def split_depths(
  name: str,
  shape: tuple[int, int, int],
  classes: int,
  setting: Setting = Setting(),
  **options: Any,
) -> list[dict[str, Any]]:
  """Judges every depth at which a backbone can be cut.

  Args:
    name: key of BACKBONES.
    shape: (H, W, c) of one image; q = H W c numbers are sent of a raw one.
    classes: C.
    setting: the client, its link, what is asked of them.
    **options: of the backbone, but for its depths.

  Returns:
    One dict per depth, JSON-ready: depth; behind, the client's last block;
    phi, h, theta, parameters; channels, q_c: the channel dimension at the cut,
    as HARMONY's eq. 12 has it. Latency of one sample, parameters over power:
    cut (SplitGP eq. 30), at_client (28), at_server (29). Bounds, null for
    infinite: largest_prefix (Prop. 1, null without a limit), largest_power
    (Prop. 2), largest_bandwidth (Prop. 3). Whether they hold: within_limit
    and large_enough (both sides of Prop. 1), beats_client (Prop. 2),
    beats_server (Prop. 3). feasible: Proposition 1.

  Raises:
    UserError: a backbone, an option or a setting that cannot be.
  """
  check(setting)
  spec = read_spec(BACKBONES, {"name": name, **options}, "backbone")
  length = BACKBONES[name](shape, classes, **spec.options).length
  every = tuple(range(1, length))
  net = cut(name, shape, classes, {**spec.options, "depths": every})
  names, size = net.names(), bb.sizes(net)
  channels = bb.outputs(net)
  return [
    _judged(
      {
        "depth": depth,
        "behind": names[depth - 1],
        "phi": sum(size[block] for block in names[:depth]),
        "h": size[bb.exit_name(depth)],
        "theta": sum(size[block] for block in (*names[depth:], "head")),
        "channels": channels[names[depth - 1]][-1],
      },
      setting,
      math.prod(shape),
    )
    for depth in every
  ]


def sizes_of(found: Mapping[str, Any]) -> latency.Sizes:
  """|phi|, |h|, |theta| and q_c of a depth, [1] each."""
  names = "phi", "h", "theta", "channels"
  return latency.Sizes(*(np.array([found[name]]) for name in names))


def _judged(
  found: dict[str, Any], setting: Setting, pixels: int
) -> dict[str, Any]:
  """Adds latencies, bounds and verdicts to the sizes of a depth."""
  size, rates = sizes_of(found), setting.resources()
  beta = np.array([setting.offloaded])
  limit = math.inf if setting.limit is None else setting.limit
  largest = np.array([math.inf])
  if setting.limit is not None:
    largest = latency.largest_prefix(size, rates, beta, limit)
  power = latency.largest_power(size, rates, beta)
  bandwidth = latency.largest_bandwidth(size, rates, beta, pixels)
  task, client, server = inference_times(size, rates, setting.offloaded, pixels)
  # By the latencies themselves: bounds can be missing (beta = 0).
  within, enough = task <= limit, found["phi"] >= setting.smallest
  return plain(
    {
      **found,
      "cut": task,
      "at_client": client,
      "at_server": server,
      "largest_prefix": largest[0],
      "largest_power": power[0],
      "largest_bandwidth": bandwidth[0],
      "within_limit": within,
      "large_enough": enough,
      "beats_client": task <= client,
      "beats_server": task <= server,
      "feasible": within and enough,
    }
  )


def check(setting: Setting) -> None:
  """Raises UserError where a setting cannot be."""
  for field, hint in typing.get_type_hints(Setting).items():
    registry.check(getattr(setting, field), hint, f"latency.{field}")
  if setting.limit is not None and not (
    setting.server_power > setting.offloaded * setting.client_power
  ):
    raise UserError(
      f"latency.limit={setting.limit}: Proposition 1 wants server_power"
      f" ({setting.server_power}) above offloaded x client_power"
      f" ({setting.offloaded} x {setting.client_power}): raise server_power, or"
      " leave limit out"
    )
  for name in ("client_power", "server_power", "bandwidth", "limit"):
    value = getattr(setting, name)
    if value is not None and not value > 0:
      raise UserError(f"latency.{name}={value} must be above 0")
  if not 0 <= setting.offloaded <= 1:
    raise UserError(f"latency.offloaded={setting.offloaded} must lie in [0, 1]")
  if setting.smallest < 0:
    raise UserError(f"latency.smallest={setting.smallest} must be >= 0")
