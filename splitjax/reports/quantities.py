"""Names, units and digits of the metrics of a report."""

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

LARGEST = "max"  # the test set that stands for the maximum over all


class Quantity(NamedTuple):
  """How a metric is printed."""

  name: str  #: in the head of its column, with the unit in brackets
  unit: str = "%"
  scale: float = 100.0  #: factor from a number to the unit
  digits: int = 2  #: after the point
  best: Literal["max", "min", ""] = ""  #: values, by which tables mark a leader
  sign: Literal["+", ""] = ""  #: "+" if positive numbers have a sign, too

  def fitted(self, values: Iterable[float]) -> "Quantity":
    """Returns it in a unit that gives the smallest value one digit or more.

    Units such as "×10⁶" become another power of ten, "MB" another of 1000.
    """
    positive = [value for value in values if value > 0]
    if not positive or not self.unit.startswith(("MB", "×10")):
      return self
    power = math.floor(math.log10(min(positive)))
    if self.unit == "MB":
      step = min(max(power // 3, 0), len(_SIZES) - 1)
      return self._replace(unit=_SIZES[step], scale=1000.0**-step)
    raised = str(power).translate(_RAISED)
    return self._replace(unit=f"×10{raised}", scale=10.0**-power, digits=2)


_SIZES = ("B", "kB", "MB", "GB", "TB")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

QUANTITIES = {
  "accuracy": Quantity("accuracy", best="max"),
  "offload": Quantity("offload"),
  "difference": Quantity("difference", "points", sign="+"),
  "latency": Quantity("latency per sample", "×10³", 1e-3, 2),
  "total_latency": Quantity("latency of all samples", "×10⁶", 1e-6, 1),
  "storage": Quantity("stored"),
  "computation": Quantity("computation", "×10⁶", 1e-6, 1),
  "communication": Quantity("communication", "×10⁶", 1e-6, 1),
  "id": Quantity("ID"),
  "ood": Quantity("OOD"),
  "offload_id": Quantity("offloaded of ID"),
  "offload_ood": Quantity("offloaded of OOD"),
  "common": Quantity("one threshold"),
  "device_only": Quantity("device only"),
  "server_only": Quantity("server only"),
  "weighted": Quantity("weighted by samples", best="max"),
  "std": Quantity("sd over clients", "points", best="min"),
  "worst_tenth": Quantity("worst tenth of clients", best="max"),
  "best": Quantity("best round", best="max"),
  "best_weighted": Quantity("best round, weighted", best="max"),
  "below": Quantity("below the oracle", "points"),
  "clients": Quantity("clients", "", 1.0, 0),
  "threshold": Quantity("threshold", "nats", 1.0, 3),
  "training_samples": Quantity("training samples", "", 1.0, 0),
  "test_samples": Quantity("test samples", "", 1.0, 0),
  "late_accuracy": Quantity("late accuracy", best="max"),
  "gap": Quantity("performance gap", "points", best="min"),
  "backward": Quantity("backward transfer", "points", best="min"),
  "position": Quantity("position", "", 1.0, 0),
  "loss": Quantity("loss", "", 1.0, 3),
  "bytes": Quantity("traffic", "MB", 1e-6, 3),
  "bytes_per_round": Quantity("MB per round", "", 1e-6),
  "server_bytes": Quantity("server's parameters", "MB", 1e-6),
  "seconds": Quantity("time", "s", 1.0, 1),
  "modelled_seconds": Quantity("modelled time", "s", 1.0, 1),
  "client_joules": Quantity("clients", "J", 1.0, 1),
  "server_joules": Quantity("server", "J", 1.0, 1),
  "joules": Quantity("energy", "J", 1.0, 1),
  "grams": Quantity("CO₂", "g", 1.0, 3),
  "watts": Quantity("power", "W", 1.0, 1),
  "watts_per_point": Quantity("power per point", "W/%", 1.0, 3),
  "target_rounds": Quantity("rounds", "", 1.0, 0, best="min"),
  "target_bytes": Quantity("MB", "", 1e-6, 1, best="min"),
  "target_seconds": Quantity("time", "s", 1.0, 1, best="min"),
  "target_joules": Quantity("energy", "J", 1.0, 1, best="min"),
  "epsilon": Quantity("largest ε", "", 1.0, best="min"),
  "epsilon_median": Quantity("median ε", "", 1.0),
  "silhouette": Quantity("silhouette by class", "", 1.0, 3, best="max"),
  "distance_ratio": Quantity("distance ratio", "", 1.0, 3, best="min"),
}
"""Key of a metric -> its quantity."""


def quantity(metric: str) -> Quantity:
  """Returns how a metric is printed; a user's own as a plain number."""
  plain = Quantity(metric.replace("_", " "), "", scale=1.0, digits=3)
  return QUANTITIES.get(metric, plain)


def label(metric: str) -> str:
  """Names a metric, as in "accuracy [%]", or a field by its last word."""
  shown = quantity(metric.rpartition(".")[2])
  return f"{shown.name} [{shown.unit}]" if shown.unit else shown.name


def heading(name: str) -> str:
  """Returns the name of a test set for a reader: "0.20" is "ρ=0.2"."""
  try:
    return f"ρ={float(name):g}"
  except ValueError:
    return "largest" if name == LARGEST else name
