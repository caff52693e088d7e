"""The section on forgetting: medians of the last five evaluated rounds.

`report` says how results are laid out; here they are plain JSON already.

Over several seeds a value is the median of the pool of all seeds' last five
rounds, as the paper has it ("median of the last five rounds across all runs");
its half-width is that of Student's t 95 % interval of the seeds' own medians,
as elsewhere, where the paper has a standard deviation over all runs. A median
of the pool need not be in the middle of that interval.

References:
  Hydra (Tirana et al., "Data Heterogeneity and Forgotten Labels in Split
    Federated Learning"), Tables 1-9.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from splitjax.evaluation import forgetting, metrics

METRICS = {
  "late_accuracy": "accuracy",
  "gap": "gap",
  "backward": "backward",
}
"""Metric of a sheet -> where it lies in a row's summary.forgetting."""


class Profile(NamedTuple):
  """Late accuracy along the order of service, or by class.

  Attributes:
    by: "position" or "class".
    values: [P] float, shares.
    halves: [P] half-widths over seeds; NaN where there are none.
  """

  by: str
  values: np.ndarray
  halves: np.ndarray


def shown(results: dict[str, Any]) -> bool:
  """Whether a report is on forgetting: all clients have Hydra's test, one set.

  On test sets of a client's own the accuracy of a class says what few clients
  make of it, not what the model forgot.
  """
  shift = results.get("config", {}).get("eval", {}).get("shift", {})
  return shift.get("name") == "global" and bool(rows(results))


def rows(results: dict[str, Any]) -> list[dict[str, Any]]:
  """The rows that have something to say of it."""
  return [r for r in results["rows"] if r["summary"].get("forgetting")]


def explanation(results: dict[str, Any]) -> str:
  """What the columns are."""
  count = max(row["summary"]["forgetting"]["rounds"] for row in rows(results))
  which = "the evaluated round" if count == 1 else f"the last {count}"
  which += " evaluated rounds" * (count > 1)
  many = len(results.get("seeds", ())) > 1
  said = [
    f"Medians of {which}{' of all seeds together' * many}.",
    "*Performance gap*: how far the classes lie below the best one, on average"
    " (Hydra eq. 2). *Backward transfer*: how far they lie below their own best"
    " accuracy in earlier evaluated rounds (eq. 1); below 0 where they are"
    " better than ever, – where there is no earlier one. A class's accuracy is"
    " over all clients' test samples of it.",
  ]
  if many:
    said.append(
      "± is the half-width of the 95 % interval (Student's t) of the seeds' own"
      " medians."
    )
  return " ".join(said)


def profile(row: dict[str, Any]) -> Profile:
  """A row's late accuracy by position, or by class if it has no positions.

  Args:
    row: of one run or of several seeds, with summary.forgetting.
  """
  told = row["summary"]["forgetting"]
  if "profile" not in told:  # of one run
    by, values = _placed([row])
    middle = forgetting.late(values[0])
    return Profile(by, middle, np.full(middle.shape, np.nan))
  halves = row["interval"]["summary"]["forgetting"]["profile"]
  found = (np.array(x, float) for x in (told["profile"]["accuracy"], halves))
  return Profile(told["profile"]["by"], *found)


def over_seeds(
  same: Sequence[dict[str, Any]],
) -> tuple[dict[str, Any], dict[str, Any]]:
  """One row of several runs -> its summary.forgetting, and the half-widths.

  Args:
    same: the row in each run, with summary.forgetting.

  Returns:
    accuracy, gap, backward, rounds, and profile: by and accuracy [P]; the
    half-widths of the first three, and [P] of the profile.
  """
  each = [row["summary"]["forgetting"] for row in same]
  value: dict[str, Any] = {}
  half: dict[str, Any] = {}
  for name in METRICS.values():
    late = [np.array(one["late"][name], float) for one in each]
    middle, spread = _pooled([x[:, None] for x in late])
    value[name], half[name] = middle[0], spread[0]
  value["rounds"] = max(one["rounds"] for one in each)
  by, late = _placed(same)
  middle, half["profile"] = _pooled(late)
  value["profile"] = {"by": by, "accuracy": middle}
  return value, half


def _placed(
  same: Sequence[dict[str, Any]],
) -> tuple[str, list[np.ndarray]]:
  """By what, and per run the late accuracies [rounds, P] by that."""
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
  """Per seed [rounds, P] -> medians of the pool [P], half-widths [P].

  None where a seed has no number, and where there is but one seed.
  """
  own = np.stack([forgetting.late(values) for values in late])
  lost = np.isnan(own).any(axis=0)
  every = np.concatenate(late)
  middle = [
    None if gone else float(np.nanmedian(every[:, p]))
    for p, gone in enumerate(lost)
  ]
  half = [
    None if gone else metrics.confidence_interval(own[:, p].tolist())[1]
    for p, gone in enumerate(lost)
  ]
  return middle, half
