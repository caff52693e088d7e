"""The metrics of a report: their place in a result row and their format."""

from collections.abc import Callable
from typing import NamedTuple


class Quantity(NamedTuple):
  """A metric of result rows: its place and how it is printed.

  Attributes:
    at: dotted path in a row; "" for a metric with a value per test set, whose
      path is summary.METRIC.
    name: name in the head of the column.
    unit: unit in brackets behind the name, or "".
    scale: factor from a record's value to the unit.
    digits: digits after the decimal point.
    best: max if large values are better, min if small ones are. Tables mark a
      row that leads by this metric. None: they mark no row.
  """

  at: str
  name: str
  unit: str = "%"
  scale: float = 100.0
  digits: int = 2
  best: Callable | None = None


LATE, TARGET = "summary.forgetting.", "to_target."
"""Path prefixes of metrics of the last rounds, and of costs to a target."""

QUANTITIES = {
  "accuracy": Quantity("", "accuracy", best=max),
  "offload": Quantity("", "offload"),
  "latency": Quantity("", "latency", "", 1),
  "storage": Quantity("summary.storage", "stored"),
  "computation": Quantity("", "computation", "", 1),
  "communication": Quantity("", "communication", "", 1),
  "gain": Quantity("", "gain", "points"),
  "id": Quantity("", "ID"),
  "ood": Quantity("", "OOD"),
  "offload_id": Quantity("", "offloaded of ID"),
  "offload_ood": Quantity("", "offloaded of OOD"),
  "common": Quantity("", "one threshold"),
  "device_only": Quantity("", "device only"),
  "server_only": Quantity("", "server only"),
  "weighted": Quantity("", "weighted by samples", best=max),
  "std": Quantity("", "sd over clients", "points", best=min),
  "worst_tenth": Quantity("", "worst tenth of clients", best=max),
  "best": Quantity("", "best round", best=max),
  "best_weighted": Quantity("", "best round, weighted", best=max),
  "late_accuracy": Quantity(f"{LATE}accuracy", "late accuracy", best=max),
  "gap": Quantity(f"{LATE}gap", "performance gap", "points", best=min),
  "backward": Quantity(
    f"{LATE}backward", "backward transfer", "points", best=min
  ),
  "late_accuracy_sd": Quantity(f"{LATE}accuracy_sd", "late accuracy, sd"),
  "gap_sd": Quantity(f"{LATE}gap_sd", "gap, sd", "points"),
  "backward_sd": Quantity(f"{LATE}backward_sd", "transfer, sd", "points"),
  "bytes_per_round": Quantity("bytes_per_round", "MB per round", "", 1e-6),
  "train": Quantity("seconds.train", "train", "s", 1, 1),
  "compile": Quantity("seconds.compile", "compile", "s", 1, 1),
  "evaluate": Quantity("seconds.evaluate", "evaluate", "s", 1, 1),
  "modelled_seconds": Quantity("cost.seconds", "time", "s", 1, 1),
  "client_joules": Quantity("cost.client_joules", "clients", "J", 1, 1),
  "server_joules": Quantity("cost.server_joules", "server", "J", 1, 1),
  "grams": Quantity("cost.grams", "CO₂", "g", 1, 3),
  "watts": Quantity("cost.watts", "power", "W", 1, 1),
  "watts_per_point": Quantity(
    "cost.watts_per_point", "power per point", "W/%", 1, 3
  ),
  "target_rounds": Quantity("to_target.rounds", "rounds", "", 1, 0, min),
  "target_bytes": Quantity("to_target.bytes", "MB", "", 1e-6, 1, min),
  "target_seconds": Quantity("to_target.seconds", "time", "s", 1, 1, min),
  "target_joules": Quantity("to_target.joules", "energy", "J", 1, 1, min),
  "epsilon": Quantity("privacy.up.max", "largest ε", "", 1, best=min),
  "silhouette": Quantity(
    "summary.skew.silhouette", "silhouette by class", "", 1, 3, max
  ),
  "distance_ratio": Quantity(
    "summary.skew.distance_ratio", "distance ratio", "", 1, 3, min
  ),
}
"""Key of a metric -> its quantity. In the CSV the metrics per test set come
first, then those of a whole row; each group is in this order."""

RULE_KEYS = {
  "accuracy": Quantity("", "accuracy"),
  "below": Quantity("", "below", "points"),
  "kept": Quantity("", "kept", digits=0),
  "offload": Quantity("", "offloaded", digits=1),
}
"""Numbers printed for a rule that chooses thresholds without test labels."""
