"""A small made-up table of numbers: two methods, one of them with two rows."""

from splitjax import reports
from splitjax.reports import numbers, results
from splitjax.types import Number

METHODS = {"HARMONY": "harmony", "SplitGP": "splitgp", "SplitGP+FT": "splitgp"}
ACCURACY = {
  "HARMONY": (0.92, 0.70),
  "SplitGP": (0.90, 0.50),
  "SplitGP+FT": (0.91, 0.40),
}
"""Row -> accuracy on the sets of the two ρ."""


def lines(accuracy=None, seed=0, sets=("0.0", "0.8")):
  """A hundredth more for every seed, and for every client."""
  for row, values in (accuracy or ACCURACY).items():
    for name, value in zip(sets, values, strict=True):
      shares = {"accuracy": value, "common": value - 0.01, "offload": 0.25}
      for metric, share in shares.items():
        yield Number(metric, share + 0.01 * seed, row, set=name)
      yield Number("latency", 12_345.0, row, set=name)
      yield Number("accuracy", value, row, set=name, round=1)
      for client in range(2):
        own = value + 0.01 * client
        yield Number("accuracy", own, row, set=name, client=str(client))
    yield Number("bytes", 5_700_000.0, row, part="up/features")
    yield Number("bytes_per_round", 5_700_000.0, row)
    yield Number("seconds", 34.2, row, part="train")


def settings(seed=0, **changes):
  """What pages read of a config."""
  tree = {
    "seed": seed,
    "title": "Made up",
    "paper": "",
    "scale": "",
    "changed": (),
    "headline": "first",
    "data": {"name": "digits"},
    "optimizer": {"lr": 0.1},
    "eval": {"threshold_rule": "oracle", "target": None},
    "privacy": {"delta": 1e-5},
    "methods": {
      "first": {"name": "harmony", "label": "HARMONY"},
      "second": {"name": "splitgp", "label": "SplitGP"},
    },
  }
  return tree | changes


def run(seed=0, more=(), accuracy=None, methods=None, notes=(), **changes):
  """The results of one seed; `more` are further numbers."""
  every = [*lines(accuracy, seed), *more]
  meta = reports.Run(
    keys={},
    settings=settings(seed, **changes),
    methods=methods or METHODS,
    notes=tuple(notes),
  )
  table = numbers.frame(every, seed)
  return reports.Results(title="Made up", numbers=table, runs=(meta,))


def seeds(count=3, **options):
  """The results of several seeds."""
  return results.gather("Made up", [run(s, **options) for s in range(count)])
