"""The depths at which a network can be cut, and SplitGP's Table I, as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from tabulate import tabulate

from splitjax.evaluation import latency
from splitjax.evaluation.split_points import Setting, sizes_of

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


def table_1(depth: Mapping[str, Any], setting: Setting, pixels: int) -> str:
  """Tabulates SplitGP's Table I for one sample and one cut.

  `depth` is one of the dicts that `split_depths` returns; `pixels` is q, how
  many numbers a raw sample has.
  """
  sizes, beta = sizes_of(depth), setting.offloaded
  whole = sizes.prefix + sizes.server
  lines: list[list[str]] = []
  for where, (each, answers) in latency.deployments(sizes, pixels).items():
    stored, *others = latency.needs(each, 1, beta, answers)
    time = latency.round_trip_latency(
      each, setting.resources(), 1, beta, answers
    )
    name = f"cut at {depth['depth']}" if where == "cut" else f"all at {where}"
    share = f"{100 * stored / whole:.2f} %"
    numbers = [f"{x:,.10g}" for x in (stored, *others)]
    lines.append([name, numbers[0], share, *numbers[1:], f"{time:,.0f}"])
  heads = "network", "storage", "", "computation", "communication", "time"
  return tabulate(
    [heads, *lines],
    tablefmt="plain",
    colalign=["left", *["right"] * 5],
    disable_numparse=True,
  )


def _cells(depth: Mapping[str, Any]) -> list[str]:
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
