"""A network at every split depth for a client, as table and figure.

A config with `networks` and `latency` in place of a run
(configs/splitgp_figure3.py). Nothing is trained, and no data are read.

  python launch.py --mode=describe --config=configs/splitgp_figure3.py
"""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from splitjax.evaluation.split_points import Setting, sizes_of, split_depths
from splitjax.models import sizes
from splitjax.models.build import cut
from splitjax.registry import build
from splitjax.reports.figures import latency as latency_figure
from splitjax.types import UserError


def describe(given: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
  """What `--mode=describe` tells of a config with `networks` and `latency`.

  Args:
    given: title; networks as in `sizes.networks`; latency: fields of Setting.
    folder: where the figures go, one for each cut in use; None for none.

  Returns:
    JSON-ready: title; latency; networks: key -> title, pixels (q), cuts (the
    depths in use), depths as of `split_depths`; figures: paths.

  Raises:
    UserError: a field that is missing or wrong.
  """
  group = given["latency"]
  if not isinstance(group, Mapping):
    raise UserError(f"latency={group!r} must be a group of fields")
  setting = build(Setting, group, "latency", {})
  found, drawn = {}, list[str]()
  for key, each in sizes.networks(given).items():
    options = dict(each.spec.options)
    cuts = options.pop("depths")
    where = each.spec.name, each.shape, each.classes
    cut(*where, each.spec.options)  # refuses depths that cannot be
    depths = split_depths(*where, setting, **options)
    pixels = math.prod(each.shape)
    found[key] = {
      "title": each.title,
      "pixels": pixels,
      "cuts": list(cuts),
      "depths": depths,
    }
    if folder is None:
      continue
    folder.mkdir(parents=True, exist_ok=True)
    for depth in cuts:
      path = latency_figure.inference_time(
        sizes_of(depths[depth - 1]),
        setting.resources(),
        setting.offloaded,
        pixels,
        folder / f"inference_time_{key}_{depth}.png",
        title=f"Inference time of {each.title}, cut at depth {depth}",
      )
      drawn.append(str(path))
  return {
    "title": given.get("title", ""),
    "latency": dataclasses.asdict(setting),
    "networks": found,
    "figures": drawn,
  }


def text(facts: dict[str, Any]) -> str:
  """The description for a terminal: a table per network."""
  lines = [facts["title"], "", _settings(facts["latency"])]
  row = "{:>5} {:<8}{:>11}{:>9}{:>12}{:>6}{:>10}{:>11}{:>11}  " + (
    "{:<13}{:<12}{:<12}{}"
  )
  heads = (
    *("depth", "behind", "|phi|", "|h|", "|theta|", "q_c"),
    *("cut", "at client", "at server"),
    *("1: |phi| <=", "2: P_C <=", "3: R <=", "feasible"),
  )
  for each in facts["networks"].values():
    lines += ["", f"{each['title']}, q = {each['pixels']}", row.format(*heads)]
    lines += [row.format(*_cells(depth)) for depth in each["depths"]]
  lines += [
    "",
    "Latency of one sample in parameters per unit of computing power; q_c is"
    " the channel dimension at the cut.",
    "1, 2, 3: bounds of SplitGP's Propositions, ok where they hold. 1: within"
    " the limit; 2: no slower than the whole",
    "network at the client; 3: than at the server. Feasible: 1, and |phi| is"
    " not below the smallest.",
    *(f"Figure {path}" for path in facts["figures"]),
  ]
  return "\n".join(line.rstrip() for line in lines)


def _settings(setting: dict[str, Any]) -> str:
  """The setting in one line."""
  limit = setting["limit"]
  asked = "no limit" if limit is None else f"latency limit {limit:,g}"
  return (
    f"P_C = {setting['client_power']:g}, P_S = {setting['server_power']:g},"
    f" R = {setting['bandwidth']:g}, beta = {setting['offloaded']:g}, {asked},"
    f" smallest |phi| {setting['smallest']:,}"
  )


def _cells(depth: dict[str, Any]) -> list[str]:
  """One line of the table."""

  def bound(name, holds):
    value = depth[name]
    number = "any" if value is None else f"{value:,.4g}"
    if value is not None and 1000 <= abs(value):
      number = f"{value:,.0f}"
    return f"{number} {'ok' if depth[holds] else 'no'}"

  sizes_ = [f"{depth[name]:,}" for name in ("phi", "h", "theta", "channels")]
  latency = [
    f"{depth[name]:,.0f}" for name in ("cut", "at_client", "at_server")
  ]
  return [
    str(depth["depth"]),
    depth["behind"],
    *sizes_,
    *latency,
    bound("largest_prefix", "within_limit"),
    bound("largest_power", "beats_client"),
    bound("largest_bandwidth", "beats_server"),
    "yes" if depth["feasible"] else "no",
  ]
