"""Seconds to partition 60,000 samples among 1,000 clients, by partition.

  python -m benchmarks.partitions [--clients=1000] [--samples=60000]

The best of three, with 10 and with 100 classes; also a Dirichlet in groups of
ten, one that no draw satisfies, and the split of each client's own samples. The
last line is one JSON object.
"""

import argparse
import functools
import json
import time
from collections.abc import Callable

import numpy as np

from splitjax import UserError
from splitjax.data import PARTITIONS, client_split

CLASSES = (10, 100)

CASES: dict[str, tuple[str, dict]] = {
  **{name: (name, {}) for name in PARTITIONS},
  "shard": ("shard", {"num_shards": "auto"}),
  "dirichlet, groups": ("dirichlet", {"groups_of": 10}),
  "pathological, uniform": ("pathological", {"shares": "uniform"}),
}
"""Row of the table -> partition and options."""


def seconds(deal: Callable, repeats: int) -> float:
  """The shortest of several runs."""
  took = []
  for _ in range(repeats):
    start = time.perf_counter()
    deal()
    took.append(time.perf_counter() - start)
  return min(took)


def hopeless(labels: np.ndarray, clients: int) -> None:
  """A Dirichlet whose smallest client is to have the mean, almost."""
  most = len(labels) // clients
  try:
    PARTITIONS["dirichlet"](labels, clients, 0, alpha=0.1, min_samples=most - 1)
  except UserError:
    return
  raise AssertionError("a draw was found: this measures nothing")


def measure(samples: int, clients: int, classes: int, repeats: int) -> dict:
  """Row of the table -> seconds."""
  rng = np.random.default_rng(0)
  labels = rng.permutation(np.arange(samples) % classes)
  runs: dict[str, Callable[[], object]] = {
    row: functools.partial(PARTITIONS[name], labels, clients, 0, **options)
    for row, (name, options) in CASES.items()
  }
  parts = PARTITIONS["iid"](labels, clients, 0)
  runs["dirichlet, hopeless"] = functools.partial(hopeless, labels, clients)
  runs["client_split"] = functools.partial(
    client_split, parts, 0, (0.6, 0.2, 0.2)
  )
  return {row: seconds(run, repeats) for row, run in runs.items()}


def main() -> None:
  """Measures and prints a table."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--clients", type=int, default=1000)
  parser.add_argument("--samples", type=int, default=60000)
  parser.add_argument("--repeats", type=int, default=3)
  options = parser.parse_args()
  result = {
    classes: measure(options.samples, options.clients, classes, options.repeats)
    for classes in CLASSES
  }
  heads = [f"{classes} classes [s]" for classes in CLASSES]
  print(f"{'':24}" + "".join(f"{head:>18}" for head in heads))
  for row in result[CLASSES[0]]:
    times = "".join(f"{result[classes][row]:18.3f}" for classes in CLASSES)
    print(f"{row:24}{times}")
  print(json.dumps({"seconds": result, **vars(options)}))


if __name__ == "__main__":
  main()
