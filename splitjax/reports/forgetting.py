"""Forgetting in a report: medians of the last five evaluated rounds.

Over several seeds a value is the median over the last five rounds of all seeds,
as in the paper ("median of the last five rounds across all runs"). Its
half-width is that of the 95 % interval (Student's t) for the mean of the seeds'
own medians; this mean may differ from the pooled median. The paper instead
prints the standard deviation over all runs, which is also given.

References:
  Hydra (Tirana et al., AAAI 2026), Tables 1-9.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from splitjax.evaluation import forgetting, metrics
from splitjax.files import plain

METRICS = {"late_accuracy": "accuracy", "gap": "gap", "backward": "backward"}
"""Metric of a record -> its key in a row's summary.forgetting."""


class Profile(NamedTuple):
  """Median accuracy of the last rounds, by order of service or by class."""

  by: str  # "position" or "class"
  values: np.ndarray  # [P] float, shares
  halves: np.ndarray  # [P] half-widths over seeds; NaN without an interval


def shown(results: dict[str, Any]) -> bool:
  """Checks if all clients share a test set, so that forgetting is reported.

  On test sets that differ between clients, the accuracy of a class depends on
  the few clients that hold it, not on what the model forgot.
  """
  shift = results.get("config", {}).get("eval", {}).get("shift", {})
  return shift.get("name") == "global"


def explanation(results: dict[str, Any]) -> str:
  """Explains the columns of the table."""
  count = max(row["summary"]["forgetting"]["rounds"] for row in results["rows"])
  which = "the evaluated round" if count == 1 else f"the last {count}"
  which += " evaluated rounds" * (count > 1)
  many = len(results.get("seeds", ())) > 1
  sentences = [
    f"Medians of {which}{' of all seeds together' * many}.",
    "*Performance gap*: mean distance of the classes below the best class"
    " (Hydra eq. 2). *Backward transfer*: mean distance of the classes below"
    " their own best accuracy in earlier evaluated rounds (eq. 1); negative"
    " where they are at their best now, – without an earlier round. A class's"
    " accuracy is over all clients' test samples of it.",
  ]
  if many:
    sentences.append(
      "± is the half-width of the 95 % interval (Student's t) of the seeds' own"
      " medians. *sd*: standard deviation over these rounds and all seeds"
      " together, as the paper's ±."
    )
  return " ".join(sentences)


def profile(row: dict[str, Any]) -> Profile:
  """Returns late accuracy by position in the order of service, or by class."""
  value = row["summary"]["forgetting"]
  if "profile" in value:
    half = row["interval"]["summary"]["forgetting"]
  else:  # of one run
    value, half = over_seeds([row])
  found = value["profile"]
  numbers = (found["accuracy"], half["profile"])
  return Profile(found["by"], *(np.array(x, float) for x in numbers))


def by_position(
  results: dict[str, Any],
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
  """Returns accuracy by position, for the rows with an order of service.

  Maps a row's label to two arrays [rounds, P]: the accuracies by evaluated
  round and position, and their half-widths over seeds. The half-widths of a
  single run are NaN.
  """
  found = {}
  for row in results["rows"]:
    curve = results.get("learning", {}).get(row["label"], {})
    if places := curve.get("per_position"):  # of several seeds
      halves = curve["interval"]["per_position"]
      found[row["label"]] = np.array(places, float), np.array(halves, float)
    elif curve and row.get("positions"):
      shares = np.array(curve["per_class"], float)
      values = forgetting.per_position(shares, row["positions"])
      found[row["label"]] = values, np.full(values.shape, np.nan)
  return found


def add_positions(runs: Sequence[dict[str, Any]]) -> None:
  """Adds per_position to a row's curves if its shape is the same in all seeds.

  The label at a position may differ between seeds.
  """
  each = [by_position(run) for run in runs]
  for label in set.intersection(*map(set, each)):
    values = [one[label][0] for one in each]
    if len({x.shape for x in values}) == 1:
      for run, x in zip(runs, values, strict=True):
        run["learning"][label]["per_position"] = plain(x)


def over_seeds(
  same: Sequence[dict[str, Any]],
) -> tuple[dict[str, Any], dict[str, Any]]:
  """Returns summary.forgetting of a row over several runs, and half-widths.

  The half-widths are those of accuracy, gap, backward and the profile [P].
  Standard deviations are over the late rounds of all runs.
  """
  each = [row["summary"]["forgetting"] for row in same]
  value: dict[str, Any] = {}
  half: dict[str, Any] = {}
  for name in METRICS.values():
    late = [np.array(one["late"][name], float) for one in each]
    middle, spread = _pooled([x[:, None] for x in late])
    value[name], half[name] = middle[0], spread[0]
    value[f"{name}_sd"] = _deviation(np.concatenate(late))
  value["rounds"] = max(one["rounds"] for one in each)
  by, late = _placed(same)
  middle, half["profile"] = _pooled(late)
  value["profile"] = {"by": by, "accuracy": middle}
  return value, half


def _deviation(values: np.ndarray) -> float | None:
  """Computes a standard deviation; None for fewer than two numbers."""
  known = values[~np.isnan(values)]
  return float(known.std(ddof=1)) if known.size > 1 else None


def _placed(same: Sequence[dict[str, Any]]) -> tuple[str, list[np.ndarray]]:
  """Returns "position" or "class", and late accuracies [rounds, P] per run."""
  late = [
    np.array(row["summary"]["forgetting"]["late"]["per_class"], float)
    for row in same
  ]
  places: list[Any] = [row.get("positions") for row in same]
  lengths = {max(at) if at else -1 for at in places}
  if len(lengths) == 1 and min(lengths) >= 0:
    pairs = zip(late, places, strict=True)
    return "position", [forgetting.per_position(x, at) for x, at in pairs]
  return "class", late


def _pooled(late: Sequence[np.ndarray]) -> tuple[list[Any], list[Any]]:
  """Returns medians [P] over all seeds' late values, and half-widths [P].

  `late` has an array [rounds, P] per seed. A result's entry is None if a seed
  has no number for it; half-widths of a single seed are None.
  """
  own = np.stack([forgetting.late(values) for values in late])
  missing = np.isnan(own).any(axis=0)
  every = np.concatenate(late)
  middle = [
    None if gone else float(np.nanmedian(every[:, p]))
    for p, gone in enumerate(missing)
  ]
  half = [
    None if gone else metrics.confidence_interval(own[:, p].tolist())[1]
    for p, gone in enumerate(missing)
  ]
  return middle, half
