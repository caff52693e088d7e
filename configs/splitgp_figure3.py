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
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import splitjax
from splitjax import BACKBONES, UserError, evaluation
from splitjax.evaluation import Resources
from splitjax.reports import figures, tables

COLUMNS = {
  "last_block": "last block",
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
"""Column of `split_depths` -> its head."""

NOTES = """\
Latency of one sample in parameters per unit of computing power; q_c is the
channel dimension at the cut. Bounds of the Propositions: 1, |phi| within the
latency limit; 2 and 3, no slower than the whole network at the client and at
the server. Feasible: 1, and |phi| is not below the smallest."""


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
  parser.add_argument("--depth", type=int, default=4, help="the cut drawn")
  parser.add_argument("--workdir", type=Path, help="where the figure goes")
  defaults = {**Resources()._asdict(), "offloaded": 0.1, "limit": math.inf}
  for name, default in defaults.items():
    parser.add_argument(f"--{name}", type=float, default=default)
  parser.add_argument("--smallest", type=int, default=0)
  return parser


def main(argv: Sequence[str] | None = None) -> int:
  """Prints the table, draws the figure; 0, or 2 after a one-line error."""
  args = _parser().parse_args(argv)
  rates = Resources(args.client_power, args.server_power, args.bandwidth)
  beta = args.offloaded
  shape, pixels = tuple(args.shape), math.prod(args.shape)
  try:
    depths = splitjax.split_depths(
      args.backbone,
      shape,
      args.classes,
      rates,
      offloaded=beta,
      limit=args.limit,
      smallest=args.smallest,
    )
    if args.depth not in depths.index:
      text = f"{args.backbone} can be cut at 1 to {len(depths)}"
      raise UserError(f"--depth={args.depth}: {text}")
  except UserError as error:
    print(f"error: {error}", file=sys.stderr)
    return 2
  limit = f"limit {args.limit:g}" if args.limit < math.inf else "no limit"
  print(
    f"{args.backbone}, q = {pixels}, P_C = {rates.client_power:g}, P_S ="
    f" {rates.server_power:g}, R = {rates.bandwidth:g}, beta = {beta:g},"
    f" {limit}, smallest |phi| {args.smallest:,}\n"
  )
  print(tables.terminal(_depths(depths)))
  print(f"\n{NOTES}\n\nTable I, one sample:\n")
  sizes = evaluation.sizes_of(depths.loc[args.depth])
  cut = f"cut at {args.depth}"
  print(tables.terminal(_table_1(sizes, cut, rates, beta, pixels)))
  if args.workdir is not None:
    args.workdir.mkdir(parents=True, exist_ok=True)
    title = f"Inference time of {args.backbone}, cut at depth {args.depth}"
    row = depths.loc[args.depth]
    drawn = inference_time(row, rates, beta, pixels, title)
    name = f"inference_time_{args.backbone}_{args.depth}.png"
    drawn.savefig(args.workdir / name, dpi=150)
    print(f"\nFigure {args.workdir / name}")
  return 0


def _depths(depths: pd.DataFrame) -> pd.DataFrame:
  """Tabulates the depths with their sizes, latencies and bounds, as text."""
  texts = {
    head: [_text(value) for value in depths[column].tolist()]
    for column, head in COLUMNS.items()
  }
  return pd.DataFrame(texts, index=depths.index)


def _text(value: str | bool | float) -> str:
  """Writes a value of `split_depths`; a bound that any value meets as "any"."""
  if isinstance(value, str):
    return value
  if isinstance(value, bool):
    return "ok" if value else "no"
  if math.isinf(value):
    return "any"
  if isinstance(value, float) and value < 1e3:
    return f"{value:,.5g}"
  return f"{value:,.0f}"


def _table_1(
  sizes: evaluation.Sizes, cut: str, rates: Resources, beta: float, pixels: int
) -> pd.DataFrame:
  """Tabulates SplitGP's Table I for one sample and one cut, as text."""
  whole, lines = sizes.prefix + sizes.server, []
  for name, (each, answers) in evaluation.deployments(sizes, pixels).items():
    needs = evaluation.count_needs(each, 1, beta, answers)
    stored, *sent, _ = needs
    time = needs.latency(rates)
    where = cut if name == "cut" else f"all at {name}"
    numbers = [f"{number:,.10g}" for number in sent]
    share = f"{100 * stored / whole:.2f} %"
    lines.append([where, f"{stored:,.10g}", share, *numbers, f"{time:,.0f}"])
  heads = "network storage share computation communication time".split()
  return pd.DataFrame(lines, columns=heads).set_index("network")


def inference_time(
  row: pd.Series,
  rates: Resources,
  beta: float,
  pixels: int,
  title: str,
) -> figures.Figure:
  """Draws the latencies over client power P_C and over bandwidth R.

  A dotted line is the bound of Proposition 2 or 3: beyond it the cut network is
  slower than the whole one at the client or at the server.
  """
  names = {"client_power": "client power P_C", "bandwidth": "bandwidth R"}
  lines = []
  for field, factors in {
    "client_power": np.geomspace(0.05, 100, 200),
    "bandwidth": np.geomspace(1e-3, 10, 200),
  }.items():
    for x in getattr(rates, field) * factors:
      varied = rates._replace(**{field: float(x)})
      deployed = evaluation.deployments(evaluation.sizes_of(row), pixels)
      for name, (parts, answers) in deployed.items():
        value = evaluation.count_needs(parts, 1, beta, answers).latency(varied)
        lines.append((0, names[field], "inference_time", name, x, float(value)))
  heads = "seed", "panel", "metric", "where", "x", "value"
  table = pd.DataFrame(lines, columns=list(heads))
  options: Any = {"xlabel": "numbers per unit of time", "sharex": False}
  figure: Any = figures.lines(None, table, "x", "where", title=title, **options)
  bounds = row.largest_power, row.largest_bandwidth
  for axes, bound in zip(figure.axes, bounds, strict=True):
    axes.set_yscale("log")
    if np.isfinite(bound):
      axes.axvline(float(bound), color="0.35", linestyle=":")
  return figure


if __name__ == "__main__":
  sys.exit(main())
