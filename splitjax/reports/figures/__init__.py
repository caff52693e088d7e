"""The figures of a report: those of the papers, each a choice of numbers.

Each takes results and returns a matplotlib figure, or None if the numbers are
not there. `splitjax.figures` is this package; `curves` has the forms of figures
for those of one's own.

  >>> import splitjax
  >>> results = splitjax.report_again("runs/first")
  >>> splitjax.figures.accuracy_over_rho(results).savefig("rho.pdf")
"""

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from splitjax.data.corruptions import CORRUPTIONS
from splitjax.reports.figures.curves import (
  against,
  bars,
  by_set,
  cells,
  choose,
  dots,
  heat,
  lines,
  means,
)
from splitjax.reports.figures.style import Figure, attempt, look, looks, save
from splitjax.reports.quantities import QUANTITIES, label
from splitjax.reports.results import Results

LATE = 5
"""A late accuracy is the median of the last five evaluated rounds."""

MOST_POSITIONS = 10
MOST_THRESHOLDS = 6
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
  table["panel"] = (table.cell + " " + table.corruption).str.strip()
  title = "Accuracy over the severity"
  return lines(results, table, "severity", title=title)


def accuracy_over_field(results: Results) -> Figure | None:
  """Draws accuracy over a numeric field of a grid (SuperSFL Figure 6).

  Of several such fields over the one with the most values.
  """
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
  late = [choose(results, name) for name in ("late_accuracy", "gap")]
  table = pd.concat(late)
  if late[0].empty:
    table = by_set(choose(results, "accuracy"))
  title = "Accuracy by cell, and its change against the first row"
  return bars(results, table, title=title) if results.axes else None


def learning_curves(results: Results) -> Figure | None:
  """Draws accuracy over the rounds, on the first and the last test set."""
  table = by_set(choose(results, "accuracy", "round"))
  return lines(results, table, "round", title="Accuracy over the rounds")


def metric_curves(results: Results) -> Figure | None:
  """Draws the metrics of eval.metrics over the rounds."""
  metrics = dict.fromkeys(results.numbers.metric)
  tables = [
    by_set(choose(results, metric, "round")).assign(label=label(metric))
    for metric in metrics
    if metric not in QUANTITIES
  ]
  if not tables:
    return None
  table = pd.concat(tables)
  table["panel"] = (table.label + " " + table.panel).str.strip()
  options: Any = {"title": "Metrics over the rounds", "sharey": False}
  return lines(results, table, "round", ylabel="", **options)


def accuracy_over_cost(results: Results) -> Figure | None:
  """Draws accuracy on the first test set over bytes, seconds and joules.

  Of several cells over bytes alone. The dotted line is eval.target (SuperSFL
  Figures 3 and 4).
  """
  table = choose(results, "accuracy", "round")
  table = table[table.set == table.groupby("cell").set.transform("first")]
  several = table.cell.nunique() > 1
  parts = []
  for cost in ["bytes"] if several else ["bytes", "modelled_seconds", "joules"]:
    part = against(results, table, cost, "row", "cell", "round")
    part = part.rename(columns={cost: "cost"})
    parts.append(part if several else part.assign(panel=label(cost)))
  options: Any = {"title": "Accuracy over the cost of training"}
  options["xlabel"] = label("bytes") if several else ""
  figure = lines(results, pd.concat(parts), "cost", sharex=several, **options)
  targets = {run.settings["eval"].get("target") for run in results.runs}
  for axes in figure.axes if figure else ():
    for target in targets - {None}:
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
  shown = values[:: -(-len(values) // MOST_THRESHOLDS) or 1]
  table = table[table.threshold.isin(shown)].sort_values(
    "threshold", kind="stable"
  )
  table["hue"] = table.threshold.map("{:.3g} nats".format)
  table["panel"] = _row_and_cell(table)
  title = "Accuracy over ρ at one threshold for all clients"
  return lines(results, table, "rho", "hue", title=title, xlabel=RHO)


def _row_and_cell(table: pd.DataFrame) -> pd.Series:
  return table.row + table.cell.map(lambda cell: cell and f", {cell}")


def accuracy_over_gap(results: Results) -> Figure | None:
  """Draws late accuracy against the performance gap (Hydra Figures 3, 16)."""
  table = choose(results, "late_accuracy")
  table = against(results, table, "gap", "row", "cell", "set")
  title = "Late accuracy against the performance gap"
  return lines(results, table, "gap", title=title)


def class_accuracy(results: Results) -> Figure | None:
  """Draws every class over the rounds, a panel per row (Hydra Figure 10)."""
  table = choose(results, "accuracy", "class", "round")
  if table.cell.nunique() > 1:
    return None
  title = "Accuracy of every class over the rounds"
  table = table.assign(panel=table.row)
  return heat(results, table, "class", "round", title=title)


def accuracy_over_position(results: Results) -> Figure | None:
  """Draws late accuracy over the position in the order (Hydra Figures 2, 6)."""
  table = _positions(results).sort_values("round")
  keys = ["metric", "panel", "seed", "row", "position"]
  late = table.groupby(keys).value.apply(lambda x: x.tail(LATE).median())
  title = "Late accuracy by position in the order of service"
  return lines(results, late.reset_index(), "position", title=title)


def position_curves(results: Results) -> Figure | None:
  """Draws the last ten positions over the rounds (Hydra Figures 13 to 18)."""
  table = _positions(results).sort_values("position", kind="stable")
  table = table[table.position > table.position.max() - MOST_POSITIONS]
  table["hue"] = table.position.map("position {:g}".format)
  table["panel"] = _row_and_cell(table)
  title = "Accuracy by position in the order of service"
  return lines(results, table, "round", "hue", title=title)


def _positions(results: Results) -> pd.DataFrame:
  """Chooses accuracies of classes over rounds of the rows with an order."""
  keys = ["cell", "seed", "row", "class"]
  order = choose(results, "position", "class").set_index(keys).value
  table = choose(results, "accuracy", "class", "round")
  if table.empty or order.empty:
    return table.iloc[:0].assign(position=0.0)
  return table.join(order.rename("position"), on=keys).dropna(subset="position")


def accuracy_per_client(results: Results) -> Figure | None:
  """Draws the accuracy of every client, on the first and the last test set."""
  table = by_set(choose(results, "accuracy", "client"))
  return dots(results, table, title="Accuracy of every client")


def class_accuracy_per_client(results: Results) -> Figure | None:
  """Draws the accuracy of every client by class (PGFedSplit Figure 4).

  The first panel has the shares of the classes in a client's samples. Clients
  of several seeds are not the same, so the results have one seed.
  """
  details = "client", "class"
  table = choose(results, "accuracy", *details)
  if len(results.runs) > 1 or table.empty:
    return None
  counts = choose(results, "training_samples", *details)
  counts = counts[counts.row == results.rows[0]]
  totals = counts.groupby("client").value.transform("sum")
  share = counts.assign(
    value=100 * counts.value / totals,
    panel="share of the client's training samples",
  )
  table = pd.concat([share, table.assign(panel=table.row)])
  title = "Accuracy of every client by class"
  key = "accuracy or share [%]"
  return heat(results, table, *details, title=title, key=key)


def cost_per_client(results: Results) -> Figure | None:
  """Draws what the training costs every client (SuperSFL Figure 5)."""
  costs = "modelled_seconds", "joules", "bytes"
  table = pd.concat(choose(results, cost, "client") for cost in costs)
  if table.cell.nunique() > 1:
    return None
  table["panel"] = table.metric.map(label)
  return dots(results, table, title="Cost of every client", sharex=False)


FIGURES: dict[str, Callable[[Results], Figure | None]] = {
  figure.__name__: figure
  for figure in (
    accuracy_over_rho, accuracy_over_severity, accuracy_over_field,
    change_by_cell, learning_curves, metric_curves, accuracy_over_cost,
    accuracy_over_latency, effect_of_threshold, accuracy_over_gap,
    class_accuracy, accuracy_over_position, position_curves,
    accuracy_per_client, class_accuracy_per_client, cost_per_client,
  )
}  # fmt: skip
"""Name of a file -> the figure's function, in the order of the report."""

FORMS = against, bars, by_set, choose, dots, heat, lines, means
STYLE = Figure, attempt, look, looks, save
__all__ = [*FIGURES, *(x.__name__ for x in (*FORMS, *STYLE)), "draw", "FIGURES"]


def draw(
  results: Results, folder: str | Path, names: Iterable[str] = FIGURES
) -> list[Path]:
  """Draws the figures that the results have the numbers for.

  Args:
    results: of a run, of seeds, of a grid or of folders.
    folder: gets the files NAME.png; it is made.
    names: keys of FIGURES.

  Returns:
    The PNG files. A figure that cannot be drawn costs a line of the terminal.
  """
  Path(folder).mkdir(parents=True, exist_ok=True)
  paths = []
  for name in names:
    make = functools.partial(FIGURES[name], results)
    paths += attempt(Path(folder, f"{name}.png"), make)
  return paths
