"""The figure of data.md: the clients' data under every partition.

  python docs/partitions.py --out=docs/results/partitions.png \
      [--data=fashion_mnist] [--clients=20] [--seed=0]

The labels are those of a prepared data set. Needs no training.
"""

import argparse
from pathlib import Path

import numpy as np

from splitjax.data import PARTITIONS, load
from splitjax.reports.figures import client_data
from splitjax.reports.figures.style import save

PANELS = {
  "shard, k=2": ("shard", {"k": 2, "num_shards": "auto"}),
  "dirichlet, alpha=0.1": ("dirichlet", {"alpha": 0.1}),
  "dominant_label, p=80": ("dominant_label", {"p": 80.0}),
  "custom_shard, p=80, n_dominant=2": ("custom_shard", {"p": 80.0}),
  "pathological, k=3": ("pathological", {"k": 3}),
  "iid": ("iid", {}),
}
"""Title -> partition and options."""


def main() -> None:
  """Draws one panel for each partition."""
  parser = argparse.ArgumentParser(
    "python docs/partitions.py", description=__doc__
  )
  parser.add_argument("--out", type=Path, required=True, help="the PNG file")
  parser.add_argument("--data", default="fashion_mnist", help="of its labels")
  parser.add_argument("--data_dir", help="where prepared data are")
  parser.add_argument("--clients", type=int, default=20)
  parser.add_argument("--seed", type=int, default=0)
  args = parser.parse_args()
  data = load(args.data, data_dir=args.data_dir)
  panels = {}
  for title, (name, options) in PANELS.items():
    parts = PARTITIONS[name](
      data.train_label, args.clients, args.seed, **options
    )
    panels[title] = np.stack(
      [np.bincount(data.train_label[p], minlength=data.classes) for p in parts]
    )
  title = f"{args.data}: {args.clients} clients under every partition"
  print(save(client_data.of_classes(panels), title, args.out))


if __name__ == "__main__":
  main()
