"""A table of the depths at which a network can be cut."""

from collections.abc import Mapping, Sequence
from typing import Any

from tabulate import tabulate

from splitjax.evaluation.split_points import Setting

_HEADS = (
  *("depth", "behind", "|phi|", "|h|", "|theta|", "q_c"),
  *("cut", "at client", "at server"),
  *("1: |phi| <=", "2: P_C <=", "3: R <=", "feasible"),
)
_NOTES = (
  "Latency of one sample in parameters per unit of computing power; q_c is"
  " the channel dimension at the cut.",
  "1, 2, 3: bounds of SplitGP's Propositions, ok where they hold. 1: within"
  " the limit; 2: no slower than the whole",
  "network at the client; 3: than at the server. Feasible: 1, and |phi| is"
  " not below the smallest.",
)


def text(depths: Sequence[Mapping[str, Any]], setting: Setting) -> str:
  """Tabulates the depths of `split_depths` with sizes, latencies, bounds."""
  limit = "no limit"
  if setting.limit is not None:
    limit = f"latency limit {setting.limit:,g}"
  lines = [
    f"P_C = {setting.client_power:g}, P_S = {setting.server_power:g},"
    f" R = {setting.bandwidth:g}, beta = {setting.offloaded:g}, {limit},"
    f" smallest |phi| {setting.smallest:,}",
    "",
    tabulate(
      [_HEADS, *map(_cells, depths)],
      tablefmt="plain",
      colalign=["right", "left", *["right"] * 7, *["left"] * 4],
      disable_numparse=True,
    ),
    "",
    *_NOTES,
  ]
  return "\n".join(lines)


def _cells(depth: Mapping[str, Any]) -> list[str]:
  """Writes one line of the table."""

  def bound(name: str, holds: str) -> str:
    value = depth[name]
    number = "any" if value is None else f"{value:,.4g}"
    if value is not None and abs(value) >= 1000:
      number = f"{value:,.0f}"
    return f"{number} {'ok' if depth[holds] else 'no'}"

  return [
    str(depth["depth"]),
    depth["behind"],
    *(f"{depth[name]:,}" for name in ("phi", "h", "theta", "channels")),
    *(f"{depth[name]:,.0f}" for name in ("cut", "at_client", "at_server")),
    bound("largest_prefix", "within_limit"),
    bound("largest_power", "beats_client"),
    bound("largest_bandwidth", "beats_server"),
    "yes" if depth["feasible"] else "no",
  ]
