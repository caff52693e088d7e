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

Expected: the cut takes 24050 of time, the whole network 193408 at the client
and 39466 at the server; the cut is the faster one up to P_C = 986
(Proposition 2) and, with P_C = 20, at any R (Proposition 3). The client stores
10.62 % of the network, as the paper says; it is the share of |phi| + |h|. For
CIFAR-10 it says 10.64 % and --backbone=vgg11 --shape 32 32 3 gives 10.54: its
|phi| = 972,554 has the 10,250 of |h| in it; with these once more it is 10.647.
"""

import argparse
import dataclasses
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import splitjax
from splitjax import BACKBONES, Setting, UserError
from splitjax.reports import split_points
from splitjax.reports.figures import latency, style


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
  """Prints the table and, given a workdir, draws the figure.

  Args:
    argv: the flags; None for those of the process.

  Returns:
    The exit status: 0, or 2 after a one-line error.
  """
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
  print(f"{args.backbone}, q = {pixels}")
  print(split_points.text(depths, setting))
  print("\nTable I, one sample:")
  print(split_points.table_1(depths[args.depth - 1], setting, pixels))
  if args.workdir is not None:
    drawn = latency.inference_time(
      depths[args.depth - 1],
      setting,
      pixels,
      f"Inference time of {args.backbone}, cut at depth {args.depth}",
    )
    args.workdir.mkdir(parents=True, exist_ok=True)
    name = f"inference_time_{args.backbone}_{args.depth}.png"
    print(f"\nFigure {style.save(drawn, args.workdir / name)}")
  return 0


if __name__ == "__main__":
  sys.exit(main())
