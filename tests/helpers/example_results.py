"""Results of a small run as a report has them, made without training."""

import copy
import json

import numpy as np

from splitjax import evaluation, files
from splitjax.evaluation.exits import Exits

ONE_SET = (
  "accuracy", "offload", "latency", "id", "ood", "offload_id", "offload_ood",
  "common", "device_only", "server_only", "computation", "communication",
  "std", "worst_tenth",
)  # fmt: skip
BOTH = ("client", "server")
RHOS = [0.0, 0.4, 0.8]
GRID = [0.2, 0.8, 2.3]


def world(seed, clients=6, count=400, classes=10):
  """Clients that know two classes: exits sure and right there, not beyond."""
  rng = np.random.default_rng(seed)
  labels = rng.integers(0, classes, count)
  main = (labels[None] + 2 * np.arange(clients)[:, None]) % classes < 2
  samples = np.stack(
    [main | (rng.random(main.shape) < rho / 4) for rho in RHOS]
  )
  right = rng.random(main.shape) < np.where(main, 0.95, 0.2)
  served = rng.random(main.shape) < 0.8
  exits = Exits(
    entropy=rng.gamma(1.2, np.where(main, 0.2, 1.2)).astype(np.float32),
    confidence=np.ones(main.shape, np.float32),
    client=np.where(right, labels, labels + 1).astype(np.int32),
    server=np.where(served, labels, labels + 1).astype(np.int32),
  )
  return exits, labels, samples, main


def summary(seed, answers=BOTH, clients=6):
  ones = np.ones(clients)
  sizes = evaluation.Sizes(1000 * ones, 100 * ones, 90_000 * ones, 64 * ones)
  resources = evaluation.Resources(20 * ones)
  parts = world(seed, clients)
  return evaluation.summarise(*parts, GRID, answers, sizes, resources)


def cost(seed):
  """The cost of a training, that of its clients, and that of its rounds."""
  clients = {
    "seconds": 10.0 + np.arange(6) + seed,
    "joules": np.arange(6) / 2,
    "bytes": 1e6 * np.arange(1, 7),
  }
  names = "seconds", "client_joules", "server_joules", "grams", "watts"
  total = dict(zip(names, (90.0, 40.0 + seed, 5.0, 0.01, 0.5), strict=True))
  spent = {k: np.arange(1.0, 5) * (1 + seed) for k in ("bytes", "seconds")}
  return (
    {**total, "watts_per_point": 0.01},
    clients,
    {**spent, "joules": 1000 * spent["bytes"]},
  )


def row(label, seed, answers=BOTH, wire=None):
  wire = wire or {"up/features": 2_000_000.0, "up/labels": 4000.0}
  return {
    "label": label,
    "method": label.lower(),
    "rounds": 20,
    "summary": summary(seed + len(label), answers),
    "wire": wire,
    "bytes_per_round": sum(wire.values()),
    "seconds": {"train": 12.0 + seed, "compile": 3.0, "evaluate": 1.5},
  }


def example(seed=0):
  """Results of one seed: three methods and a fine-tuned copy."""
  rounds = np.arange(5, 21, 5)
  curve = {str(rho): 0.9 - 0.5 / rounds - 0.01 * seed for rho in RHOS}
  return {
    "title": "A toy",
    "config": {
      "seed": seed,
      "data": {"name": "digits", "partition": {"name": "shard", "k": 2}},
      "backbone": {"depths": (1, 2, 3)},
    },
    "seed": seed,
    "sets": list(map(str, RHOS)),
    "thresholds": GRID,
    "notes": ["Hardware: two cores."],
    "rows": [
      row("SplitFed", seed, ("server",)),
      row("SplitGP", seed),
      row("SplitGP+FT", seed),
      row("HARMONY", seed, wire={"up/features": 1e6, "up/match": 500.0}),
      row("FedAvg", seed, ("client",), {"up/model": 7.5e6}),
    ],
    "learning": {
      "SplitGP": {"round": rounds, "accuracy": curve, "loss": 1 / rounds}
    },
  }


def forgetting_example(seed=0, rounds=6, classes=10):
  """`example` with the global test set, and accuracies of every class."""
  results = files.plain(example(seed))
  results["config"]["eval"] = {"shift": {"name": "global"}}
  results["sets"], results["learning"] = ["global"], {}
  rng = np.random.default_rng(seed)
  for row in results["rows"][:3]:
    for name in (*ONE_SET, "weighted", "clients"):
      value = row["summary"][name]
      row["summary"][name] = value and value[:1]
    per_client = row["summary"]["per_client"]
    row["summary"]["fixed"] = None
    per_client["accuracy"] = per_client["accuracy"][:1]
    shares = rng.uniform(0, 1, (rounds, classes))
    mean = shares.mean(axis=1)
    row["summary"]["forgetting"] = files.plain(
      evaluation.summarise_forgetting(mean, shares)
    )
    results["learning"][row["label"]] = {
      "round": list(range(1, rounds + 1)),
      "accuracy": {"global": mean.tolist()},
      "per_class": shares.tolist(),
      "loss": mean.tolist(),
    }
  del results["rows"][3:]
  return results


def placed(results, *places):
  """A copy whose rows have places in the order of service."""
  found = copy.deepcopy(results)
  for row, positions in zip(found["rows"], places, strict=True):
    row["positions"] = positions
  return found


def strict(text):
  """Parses JSON as the standard has it, which has no NaN."""

  def refuse(name):
    raise AssertionError(f"{name} is no JSON")

  return json.loads(text, parse_constant=refuse)


def set_accuracy(results, table):
  for each, values in zip(results["rows"], table, strict=True):
    each["summary"]["accuracy"] = list(values)


def table_cells(text):
  """The cells of a Markdown table, line by line, without its rule."""
  lines = [x for x in text.splitlines() if x.startswith("| ")]
  return [[c.strip() for c in x.strip("|").split("|")] for x in lines]
