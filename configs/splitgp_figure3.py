"""SplitGP Figure 3 and Table I: time, storage and traffic of inference.

  python -m configs.splitgp_figure3 --workdir=runs/figure3

A program, not a run: nothing is trained and no data are read. It prints at
which depths the network can be cut for a client (Propositions 1-3), Table I for
one sample and, given a workdir, draws the figure for the paper's cut behind
four convolutions: |phi| = 387,840, |theta| = 3,480,330, |h| = 23,050. The flags
ask the same of another network, cut or client.

P_S, P_C, R and beta are the paper's. q = 784, the pixels of an image; q_c is
the channel dimension at the cut, 256, as in HARMONY's eq. 12. SplitGP prints no
number; all 3x3x256 features would add 205 to the cut's time. It names no
latency limit either: --limit=30000 sets one, and --smallest=50000 the smallest
|phi|.

The storage is the share of |phi| + |h|. For CIFAR-10 the paper says 10.64 % and
--backbone=vgg11 --shape 32 32 3 gives 10.54: its |phi| = 972,554 has the 10,250
of |h| in it; with these once more it is 10.647.
"""

import argparse
import dataclasses
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import splitjax
from splitjax import BACKBONES, Setting, UserError, evaluation
from splitjax.reports import figures, tables

COLUMNS = {
  "depth": "depth",
  "behind": "behind",
  "phi": "|phi|",
  "h": "|h|",
  "theta": "|theta|",
  "channels": "q_c",
  "cut": "cut",
  "at_client": "at client",
  "at_server": "at server",
  "largest_prefix": "|phi| <=",
  "largest_power": "P_C <=",
  "largest_bandwidth": "R <=",
  "within_limit": "1",
  "beats_client": "2",
  "beats_server": "3",
  "feasible": "feasible",
}
"""Key of `split_depths` -> head of its column."""

NOTES = """\
Latency of one sample in parameters per unit of computing power; q_c is the
channel dimension at the cut. Bounds of the Propositions: 1, |phi| within the
latency limit; 2 and 3, no slower than the whole network at the client and at
the server. Feasible: 1, and |phi| is not below the smallest."""

LINES = "cut", "client", "server"
"""Where the network is: eq. 30, 28 and 29."""


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    "python -m configs.splitgp_figure3",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument("--backbone", default="cnn8", choices=sorted(BACKBONES))
  parser.add_argument(
    "--shape", nargs=3, type=int, default=(28, 28, 1), metavar=("H", "W", "C")
  )
  parser.add_argument("--classes", type=int, default=10)
  parser.add_argument(
    "--depth", type=int, default=4, help="the cut that is drawn"
  )
  parser.add_argument("--workdir", type=Path, help="where the figure goes")
  for field in dataclasses.fields(Setting):
    kind = int if field.name == "smallest" else float
    parser.add_argument(f"--{field.name}", type=kind, default=field.default)
  return parser


def main(argv: Sequence[str] | None = None) -> int:
  """Prints the table, draws the figure; 0, or 2 after a one-line error."""
  args = _parser().parse_args(argv)
  names = [field.name for field in dataclasses.fields(Setting)]
  setting = Setting(**{name: getattr(args, name) for name in names})
  shape, pixels = tuple(args.shape), math.prod(args.shape)
  try:
    depths = splitjax.split_depths(args.backbone, shape, args.classes, setting)
    if not 1 <= args.depth <= len(depths):
      raise UserError(
        f"--depth={args.depth}: {args.backbone} can be cut at 1 to"
        f" {len(depths)}"
      )
  except UserError as error:
    print(f"error: {error}", file=sys.stderr)
    return 2
  limit = "no limit" if setting.limit is None else f"limit {setting.limit:g}"
  print(
    f"{args.backbone}, q = {pixels}, P_C = {setting.client_power:g}, P_S ="
    f" {setting.server_power:g}, R = {setting.bandwidth:g}, beta ="
    f" {setting.offloaded:g}, {limit}, smallest |phi| {setting.smallest:,}\n"
  )
  print(tables.terminal(_depths(depths).set_index("depth")))
  print(f"\n{NOTES}\n\nTable I, one sample:\n")
  depth = depths[args.depth - 1]
  print(tables.terminal(_table_1(depth, setting, pixels)))
  if args.workdir is not None:
    args.workdir.mkdir(parents=True, exist_ok=True)
    title = f"Inference time of {args.backbone}, cut at depth {args.depth}"
    drawn = inference_time(depth, setting, pixels, title)
    name = f"inference_time_{args.backbone}_{args.depth}.png"
    print(f"\nFigure {figures.save(drawn, args.workdir / name)}")
  return 0


def _depths(depths: Sequence[evaluation.SplitDepth]) -> pd.DataFrame:
  """Tabulates the depths with their sizes, latencies and bounds, as text."""
  words = {None: "any", True: "ok", False: "no"}
  return pd.DataFrame(
    {
      head: [
        f"{value:,.5g}" if isinstance(value, float) and value < 1e3
        else f"{value:,.0f}" if isinstance(value, float)
        else words[value] if value is None or isinstance(value, bool)
        else f"{value:,}" if isinstance(value, int)
        else value
        for value in (depth[key] for depth in depths)
      ]
      for key, head in COLUMNS.items()
    }
  )  # fmt: skip


def _table_1(
  depth: evaluation.SplitDepth, setting: Setting, pixels: int
) -> pd.DataFrame:
  """Tabulates SplitGP's Table I for one sample and one cut, as text."""
  sizes = evaluation.sizes_of(depth)
  rates = setting.resources()
  beta = setting.offloaded
  whole, lines = sizes.prefix + sizes.server, []
  for name, (each, answers) in evaluation.deployments(sizes, pixels).items():
    stored, *sent = evaluation.needs(each, 1, beta, answers)
    time = evaluation.round_trip_latency(each, rates, 1, beta, answers)
    where = f"cut at {depth['depth']}" if name == "cut" else f"all at {name}"
    numbers = [f"{number:,.10g}" for number in sent]
    share = f"{100 * stored / whole:.2f} %"
    lines.append([where, f"{stored:,.10g}", share, *numbers, f"{time:,.0f}"])
  heads = "network storage share computation communication time".split()
  return pd.DataFrame(lines, columns=heads).set_index("network")


def inference_time(
  depth: evaluation.SplitDepth, setting: Setting, pixels: int, title: str
) -> figures.Figure:
  """Draws the latencies over client power P_C and over bandwidth R.

  A dotted line is the bound of Proposition 2 or 3: beyond it the cut network is
  slower than the whole one at the client or at the server.
  """
  sizes, rates = evaluation.sizes_of(depth), setting.resources()
  bounds = evaluation.propositions(sizes, rates, setting.offloaded, pixels)
  names = {"client": "client power P_C", "bandwidth": "bandwidth R"}
  lines = []
  for field, factors in {
    "client": np.geomspace(0.05, 100, 200),
    "bandwidth": np.geomspace(1e-3, 10, 200),
  }.items():
    for x in getattr(rates, field) * factors:
      varied = rates._replace(**{field: float(x)})
      times = evaluation.inference_times(
        sizes, varied, setting.offloaded, pixels
      )
      for name, value in zip(LINES, times, strict=True):
        lines.append((0, names[field], "inference_time", name, x, float(value)))
  heads = "seed", "panel", "metric", "where", "x", "value"
  table = pd.DataFrame(lines, columns=list(heads))
  options: Any = {"xlabel": "numbers per unit of time", "sharex": False}
  figure: Any = figures.lines(None, table, "x", "where", title=title, **options)
  for axes, bound in zip(figure.axes, bounds[1:], strict=True):
    axes.set_yscale("log")
    if np.isfinite(bound):
      axes.axvline(float(bound), color="0.35", linestyle=":")
  return figure


if __name__ == "__main__":
  sys.exit(main())
