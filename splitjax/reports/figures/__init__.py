"""The figures of a report: those of the papers, each a choice of numbers.

Each takes results and returns a matplotlib figure, or None without the numbers.
`splitjax.figures` is this package, with what `forms` draws:

  >>> import splitjax
  >>> results = splitjax.report_again("runs/first")
  >>> splitjax.figures.accuracy_over_rho(results).savefig("rho.pdf")
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from splitjax.data.corruptions import CORRUPTIONS
from splitjax.reports.figures.forms import (
  Figure,
  against,
  attempt,
  bars,
  by,
  by_set,
  cells,
  choose,
  dots,
  heat,
  lines,
)
from splitjax.reports.quantities import label
from splitjax.reports.results import Results

LATE = 5  # evaluated rounds at the end, whose median is the late accuracy
RHO = "ρ, OOD per ID test sample"


def accuracy_over_rho(results: Results) -> Figure | None:
  """Draws accuracy over ρ (HARMONY Figures 2 and 4, SplitGP Figure 4)."""
  table = _mixtures(choose(results, "accuracy"))
  return lines(results, table, "rho", title="Accuracy over ρ", xlabel=RHO)


def _mixtures(table: pd.DataFrame) -> pd.DataFrame:
  """Keeps the test sets that are named by their ρ, if there are several."""
  table = table[table.set.str.fullmatch(r"[\d.]+")]
  table = table.assign(rho=table.set.astype(float))
  return table if table.rho.nunique() > 1 else table.iloc[:0]


def accuracy_over_severity(results: Results) -> Figure | None:
  """Draws accuracy over the severity, with a panel for each corruption."""
  table = choose(results, "accuracy")
  names = table.set.str.extract(r"(?P<corruption>.*) (?P<severity>\d)")
  table = table.join(names.astype({"severity": float}))
  table = table[table.corruption.isin(list(CORRUPTIONS))]
  table = by(table, table.corruption)
  return lines(results, table, "severity", title="Accuracy over the severity")


def accuracy_over_field(results: Results) -> Figure | None:
  """Draws accuracy over the numeric field of most values (SuperSFL Fig. 6)."""
  table = choose(results, "accuracy")
  counts = table[results.axes].select_dtypes("number").nunique()
  if counts.empty or counts.max() < 2:
    return None
  axis = str(counts.idxmax())
  cell = cells(table, [name for name in results.axes if name != axis])
  table = by_set(table.assign(cell=cell, panel=cell))
  return lines(results, table, axis, title=f"Accuracy over the field {axis}")


def change_by_cell(results: Results) -> Figure | None:
  """Draws accuracy and performance gap by cell and row (Hydra Figure 5)."""
  table = pd.concat(choose(results, x) for x in ("late_accuracy", "gap"))
  if table.empty:
    table = by_set(choose(results, "accuracy"))
  table = table.assign(panel=table.metric.map(label))
  title = "Accuracy by cell, and its change against the first row"
  return bars(results, table, title=title) if results.axes else None


def learning_curves(results: Results) -> Figure | None:
  """Draws accuracy over the rounds, on the first and the last test set."""
  table = by_set(choose(results, "accuracy", "round"))
  return lines(results, table, "round", title="Accuracy over the rounds")


def accuracy_over_cost(results: Results) -> Figure | None:
  """Draws accuracy on the first test set over costs (SuperSFL Figures 3, 4)."""
  table = choose(results, "accuracy", "round")
  table = table[table.set == table.groupby("cell").set.transform("first")]
  parts = []
  for cost in ("bytes", "modelled_seconds", "joules"):
    part = against(results, table, cost, "row", "cell", "round")
    parts.append(by(part.rename(columns={cost: "cost"}), label(cost)))
  table = pd.concat(parts)
  options: Any = {"title": "Accuracy over the cost of training", "xlabel": ""}
  figure = lines(results, table, "cost", sharex=False, **options)
  targets = {run.settings["eval"].get("target") for run in results.runs}
  for axes in figure.axes if figure else ():
    for target in targets - {None}:  # the dotted line
      axes.axhline(100 * target, color="black", linewidth=0.9, linestyle=":")
  return figure


def accuracy_over_latency(results: Results) -> Figure | None:
  """Draws accuracy against latency (SplitGP Figure 5)."""
  table = by_set(choose(results, "accuracy"))
  table = against(results, table, "latency", "row", "cell", "set")
  return lines(results, table, "latency", title="Accuracy against latency")


def effect_of_threshold(results: Results) -> Figure | None:
  """Draws accuracy over ρ at thresholds common to all clients (SplitGP 6b)."""
  table = _mixtures(choose(results, "accuracy", "threshold"))
  values = sorted(table.threshold.unique())
  shown = values[:: -(-len(values) // 6) or 1]  # six at most
  table = table[table.threshold.isin(shown)].sort_values("threshold")
  table["hue"] = table.threshold.map("{:.3g} nats".format)
  table = by(table, table.row)
  title = "Accuracy over ρ at one threshold for all clients"
  return lines(results, table, "rho", "hue", title=title, xlabel=RHO)


def accuracy_over_gap(results: Results) -> Figure | None:
  """Draws late accuracy against the performance gap (Hydra Figures 3, 16)."""
  table = choose(results, "late_accuracy")
  table = against(results, table, "gap", "row", "cell", "set")
  title = "Late accuracy against the performance gap"
  return lines(results, table, "gap", title=title)


def class_accuracy(results: Results) -> Figure | None:
  """Draws every class over the rounds, a panel per row (Hydra Figure 10)."""
  table = choose(results, "accuracy", "class", "round")
  title = "Accuracy of every class over the rounds"
  return heat(results, by(table, table.row), "class", "round", title=title)


def accuracy_over_position(results: Results) -> Figure | None:
  """Draws late accuracy over the position in the order (Hydra Figures 2, 6)."""
  table = _positions(results).sort_values("round")
  keys = ["metric", "panel", "position", "seed", "cell", "row", "class"]
  late = table.groupby(keys).value.agg(lambda x: x.tail(LATE).median())
  title = "Late accuracy by position in the order of service"
  return lines(results, late.reset_index(), "position", title=title)


def position_curves(results: Results) -> Figure | None:
  """Draws the last ten positions over the rounds (Hydra Figures 13 to 18)."""
  table = _positions(results).sort_values("position")
  table = table[table.position > table.position.max() - 10]
  hue = table.position.map("position {:g}".format)
  table = by(table, table.row).assign(hue=hue)
  title = "Accuracy by position in the order of service"
  return lines(results, table, "round", "hue", title=title)


def _positions(results: Results) -> pd.DataFrame:
  """Chooses accuracies of classes over the rounds, with their positions."""
  table = choose(results, "accuracy", "class", "round")
  return against(results, table, "position", "seed", "cell", "row", "class")


def accuracy_per_client(results: Results) -> Figure | None:
  """Draws the accuracy of every client, on the first and the last test set."""
  table = by_set(choose(results, "accuracy", "client"))
  return dots(results, table, title="Accuracy of every client")


def class_accuracy_per_client(results: Results) -> Figure | None:
  """Draws every client by class, samples, then accuracy (PGFedSplit 4)."""
  details = "client", "class"
  table = choose(results, "accuracy", *details)
  # Clients of several seeds are not the same.
  if len(results.runs) > 1 or table.empty:
    return None
  counts = choose(results, "training_samples", *details)
  counts = counts[counts.row == results.rows[0]]
  total = counts.groupby("client").value.transform("sum")
  panel = "share of the client's training samples"
  share = counts.assign(value=100 * counts.value / total, panel=panel)
  table = pd.concat([share, by(table, table.row)])
  named = {"title": "Accuracy of every client by class"}
  return heat(results, table, *details, key="accuracy or share [%]", **named)


def cost_per_client(results: Results) -> Figure | None:
  """Draws what the training costs every client (SuperSFL Figure 5)."""
  costs = "modelled_seconds", "joules", "bytes"
  table = pd.concat(choose(results, cost, "client") for cost in costs)
  table = by(table, table.metric.map(label))
  return dots(results, table, title="Cost of every client", sharex=False)


FIGURES: dict[str, Callable[[Results], Figure | None]] = {
  figure.__name__: figure
  for figure in (
    accuracy_over_rho, accuracy_over_severity, accuracy_over_field,
    change_by_cell, learning_curves, accuracy_over_cost,
    accuracy_over_latency, effect_of_threshold, accuracy_over_gap,
    class_accuracy, accuracy_over_position, position_curves,
    accuracy_per_client, class_accuracy_per_client, cost_per_client,
  )
}  # fmt: skip
"""Name of a file -> the figure's function, in the order of the report."""


def draw(results: Results, folder: Path) -> list[Path]:
  """Draws the figures whose numbers there are; returns the PNG files."""
  paths = []
  for name, figure in FIGURES.items():
    paths += attempt(folder / f"{name}.png", figure, results)
  return paths
