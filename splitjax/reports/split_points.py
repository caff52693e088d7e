"""The depths at which a network can be cut, as a table and as a figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from splitjax.evaluation.split_points import Setting, sizes_of
from splitjax.reports.figures import latency as latency_figure

_HEADS = (
  *("depth", "behind", "|phi|", "|h|", "|theta|", "q_c"),
  *("cut", "at client", "at server"),
  *("1: |phi| <=", "2: P_C <=", "3: R <=", "feasible"),
)
_ROW = (
  "{:>5} {:<8}{:>11}{:>9}{:>12}{:>6}{:>10}{:>11}{:>11}  {:<13}{:<12}{:<12}{}"
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
  """Every depth with its sizes, latencies and bounds, for a terminal.

  Args:
    depths: of `split_depths`.
    setting: the one they were judged for.
  """
  limit = "no limit"
  if setting.limit is not None:
    limit = f"latency limit {setting.limit:,g}"
  lines = [
    f"P_C = {setting.client_power:g}, P_S = {setting.server_power:g},"
    f" R = {setting.bandwidth:g}, beta = {setting.offloaded:g}, {limit},"
    f" smallest |phi| {setting.smallest:,}",
    "",
    _ROW.format(*_HEADS),
    *(_ROW.format(*_cells(depth)) for depth in depths),
    "",
    *_NOTES,
  ]
  return "\n".join(lines)


def draw(
  depth: Mapping[str, Any],
  setting: Setting,
  pixels: int,
  path: Path,
  title: str,
) -> Path:
  """Draws inference time over P_C and over R, as SplitGP's Figure 3 does.

  Args:
    depth: one depth of `split_depths`.
    setting: the one it was judged for.
    pixels: q, numbers in one image.
    path: of the PNG file; its folder is made.
    title: above the figure.

  Returns:
    The path.
  """
  path.parent.mkdir(parents=True, exist_ok=True)
  return latency_figure.inference_time(
    sizes_of(depth),
    setting.resources(),
    setting.offloaded,
    pixels,
    path,
    title=title,
  )


def _cells(depth: Mapping[str, Any]) -> list[str]:
  """One line of the table."""

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
