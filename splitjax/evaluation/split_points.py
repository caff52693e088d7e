"""Split depths that are feasible for a client (SplitGP, Sec. V).

Given P_C, P_S, R (BW), the offload ratio beta, a latency limit tau' and the
smallest |phi|, `split_depths` evaluates SplitGP's Propositions 1-3 at every
depth at which a network can be cut.

  split_depths(
    "vgg11", (32, 32, 3), 10, Setting(client_power=40, limit=20_000)
  )

References:
  SplitGP (Han et al., INFOCOM 2023), Sec. V, eq. 28-33.
  Hydra (Tirana et al., AAAI 2026), Section 4 and appendix D.2.
"""

import dataclasses
import math
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from splitjax import fields
from splitjax.evaluation import latency
from splitjax.evaluation.latency import inference_times
from splitjax.fields import NOT_NEGATIVE, POSITIVE, PROBABILITY
from splitjax.files import plain
from splitjax.models import BACKBONES, sizes
from splitjax.models.build import cut
from splitjax.options import Spec
from splitjax.types import UserError


@dataclasses.dataclass(frozen=True)
class Setting:
  """A client, its link and its requirements; defaults are the paper's.

  Attributes:
    client_power: P_C, parameters per unit of time.
    server_power: P_S, parameters per unit of time.
    bandwidth: R of SplitGP, BW of HARMONY, numbers per unit of time.
    offloaded: beta, the share of samples that the server answers.
    limit: tau', the latency allowed for one sample; None: no limit.
    smallest: |phi_min|, parameters that personalisation needs.

  Example:
    >>> import splitjax
    >>> phone = splitjax.Setting(client_power=5.0, bandwidth=2.0)
    >>> phone.server_power
    100.0
  """

  client_power: Annotated[float, POSITIVE] = 20.0
  server_power: Annotated[float, POSITIVE] = 100.0
  bandwidth: Annotated[float, POSITIVE] = 1.0
  offloaded: Annotated[float, PROBABILITY] = 0.1
  limit: Annotated[float | None, POSITIVE] = None
  smallest: Annotated[int, NOT_NEGATIVE] = 0

  def resources(self) -> latency.Resources:
    """Returns P_C, P_S and R."""
    return latency.Resources(
      self.client_power, self.server_power, self.bandwidth
    )


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
) -> list[dict[str, Any]]:
  """Evaluates the depths at which a backbone can be cut.

  Args:
    name: key of BACKBONES.
    shape: shape of one input, (H, W, c) of images. A raw sample sent to the
      server has q numbers, the product of `shape`.
    classes: C.
    setting: the client, its link and its requirements.
    depths: the depths to evaluate, ascending; None: all.
    batch: samples of a step, for `memory` below.
    vocabulary: V, for a backbone of token ids.
    **options: options of the backbone.

  Returns:
    One JSON-ready dict per depth, with the following keys.

    - depth: the depth; behind: the name of the client's last block.
    - phi, h, theta: numbers of parameters.
    - channels: q_c, the channel dimension at the cut (HARMONY eq. 12).
    - features: how many numbers one sample has at the cut.
    - bottleneck: whether no shallower cut sends fewer numbers (Hydra, appendix
      D.2, after Kang et al.).
    - memory: bytes that the server's blocks take in float32: their parameters,
      and their outputs for a batch. One of Hydra's heads takes as many bytes if
      the heads begin at this depth.
    - cut, at_client, at_server: latency of one sample, in parameters over power
      (SplitGP eq. 30, 28, 29).
    - largest_prefix, largest_power, largest_bandwidth: the bounds of Prop. 1, 2
      and 3. None if infinite; largest_prefix is None also without a limit.
    - within_limit, large_enough: whether the upper and the lower bound of Prop.
      1 are met; feasible: whether both are.
    - beats_client, beats_server: whether Prop. 2 and Prop. 3 are met.

  Raises:
    UserError: an unknown backbone, or an invalid option or setting.

  Example:
    >>> import splitjax
    >>> found = splitjax.split_depths("cnn8", (28, 28, 1), 10)
    >>> [each["depth"] for each in found if each["feasible"]]
    [1, 2, 3, 4, 5, 6]
  """
  check_setting(setting)
  spec = Spec.of(BACKBONES, {"name": name, **options}, "backbone")
  if depths is None:
    whole = cut(name, shape, classes, spec.options, vocabulary)
    depths = range(1, whole.length)
  chosen = {**spec.options, "depths": tuple(depths)}
  net = cut(name, shape, classes, chosen, vocabulary)
  sent = {k: math.prod(x) for k, x in sizes.outputs(net).items()}
  out = []
  for depth in depths:
    part = sizes.parts_at(net, depth)
    part["channels"] = part.pop("cut")[-1]
    before = [sent[name] for name in net.names(0, depth)]
    part |= {"features": before[-1], "bottleneck": before[-1] <= min(before)}
    behind = sum(sent[name] for name in net.names(depth)) + classes
    part["memory"] = 4 * (part["theta"] + batch * behind)
    out.append(_evaluated(part, setting, math.prod(shape)))
  return out


def sizes_of(depth: Mapping[str, Any]) -> latency.Sizes:
  """Reads |phi|, |h|, |theta| and q_c from one dict of `split_depths`."""
  names = "phi", "h", "theta", "channels"
  return latency.Sizes(*(depth[name] for name in names))


def _evaluated(
  counts: dict[str, Any], setting: Setting, pixels: int
) -> dict[str, Any]:
  """Adds latencies, bounds and checks of these bounds to a depth's sizes."""
  size, rates, beta = sizes_of(counts), setting.resources(), setting.offloaded
  limit = math.inf if setting.limit is None else setting.limit
  largest = None
  if setting.limit is not None:
    largest = latency.largest_prefix(size, rates, beta, limit)
  split, client, server = inference_times(size, rates, beta, pixels)
  # Compare latencies, not bounds: with beta = 0 a bound is infinite.
  within, enough = split <= limit, counts["phi"] >= setting.smallest
  return plain(
    {
      **counts,
      "cut": split,
      "at_client": client,
      "at_server": server,
      "largest_prefix": largest,
      "largest_power": latency.largest_power(size, rates, beta),
      "largest_bandwidth": latency.largest_bandwidth(size, rates, beta, pixels),
      "within_limit": within,
      "large_enough": enough,
      "beats_client": split <= client,
      "beats_server": split <= server,
      "feasible": within and enough,
    }
  )


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
