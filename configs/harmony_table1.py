"""HARMONY Table 1: parameters on either side of the cuts of five backbones.

  python -m configs.harmony_table1

A program, not a run: nothing is trained and no data are read. The paper prints
thousands of parameters, the smallest and the largest over the split depths of
its clients. `splitjax.split_depths` counts any other network in the same way:
`split_depths("vgg11", (32, 32, 3), 10, width=0.5)`.
"""

import splitjax

ROWS = {
  "cnn8": (
    "8-layer CNN", (2, 3, 4), (28, 28, 1), 10,
    (18.8, 387.8), (5.8, 23.1), (3480.3, 3849.4),
  ),
  "vgg11": (
    "VGG-11", (2, 3, 4), (32, 32, 3), 10,
    (76.0, 962.3), (5.1, 10.3), (8268.8, 9155.1),
  ),
  "mobilenet_v2": (
    "MobileNet-V2", (1, 6, 11), (32, 32, 3), 100,
    (0.9, 239.4), (3.3, 6.5), (2112.6, 2351.0),
  ),
  "resnet50": (
    "ResNet-50", (1, 3, 5), (64, 64, 3), 200,
    (84.5, 884.8), (51.4, 102.6), (23033.0, 23833.3),
  ),
  "vit_s16": (
    "ViT-S/16", (2, 4, 6), (32, 32, 3), 100,
    (3920.3, 11018.1), (39.3, 39.3), (10686.1, 17783.9),
  ),
}  # fmt: skip
"""Backbone -> name in the paper, depths, (H, W, c), C, and what the paper
prints of |phi|, |h| and |theta|: (smallest, largest)."""

_LINE = "{:<14}{:<9}{:<5}{:>12}{:>12}  {}"


def sizes(name: str) -> tuple[int, dict[str, tuple[int, int]]]:
  """Counts the parameters of a row: of the whole network, and of its sides.

  A side has the smallest and the largest number over the depths in use.
  """
  _, cuts, shape, classes, *_ = ROWS[name]
  depths = splitjax.split_depths(name, shape, classes).loc[list(cuts)]
  sides = {side: depths[side] for side in ("phi", "h", "theta")}
  total = int((depths.phi + depths.theta).iloc[0])
  return total, {
    side: (int(x.min()), int(x.max())) for side, x in sides.items()
  }


def lines(name: str) -> list[str]:
  """A row as text: each size beside the paper's, and where they differ."""
  title, _, _, _, *printed = ROWS[name]
  total, sides = sizes(name)
  out: list[str] = []
  for (side, pair), theirs in zip(sides.items(), printed, strict=True):
    for word, size, paper in zip(("min", "max"), pair, theirs, strict=True):
      verdict = "" if abs(1000 * paper - size) <= 50 else "  (differs)"
      cells = f"{size:,}", f"{size / 1000:.2f}", f"{paper:.1f}{verdict}"
      out.append(_LINE.format("" if out else title, f"|{side}|", word, *cells))
  return [*out, _LINE.format("", "whole", "", f"{total:,}", "", "").rstrip()]


def main() -> None:
  """Prints the table."""
  print("HARMONY Table 1: parameters over the split depths of the clients\n")
  print(_LINE.format("network", "part", "", "parameters", "thousands", "paper"))
  for name in ROWS:
    print("\n".join(lines(name)))


if __name__ == "__main__":
  main()
