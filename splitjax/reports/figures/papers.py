"""The figures of a report: those of the papers, each a choice of numbers.

Each takes results and returns a matplotlib figure, or None if the numbers are
not there. `splitjax.figures` has them:

  >>> import splitjax
  >>> results = splitjax.report_again("runs/first")
  >>> splitjax.figures.accuracy_over_rho(results).savefig("rho.pdf")
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from splitjax.data.corruptions import CORRUPTIONS
from splitjax.reports.figures import style
from splitjax.reports.figures.curves import (
  bars,
  by_set,
  choose,
  dots,
  heat,
  label,
  lines,
  means,
  points,
)
from splitjax.reports.quantities import QUANTITIES, field_name
from splitjax.reports.results import Results

LATE = 5
"""A late accuracy is the median of the last five evaluated rounds."""

MOST_POSITIONS, MOST_THRESHOLDS = 10, 6
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
  table = _severities(choose(results, "accuracy"))
  panel = (table.cell + " " + table.corruption).str.strip()
  title = "Accuracy over the severity"
  return lines(results, table.assign(panel=panel), "severity", title=title)


def _severities(table: pd.DataFrame) -> pd.DataFrame:
  """Keeps test sets such as "rotation 3": a corruption and its severity."""
  names = table.set.str.extract(r"(?P<corruption>.*) (?P<severity>\d)")
  table = table.join(names.astype({"severity": float}))
  return table[table.corruption.isin(list(CORRUPTIONS))]


def learning_curves(results: Results) -> Figure | None:
  """Draws accuracy over the rounds, on the first and the last test set."""
  table = by_set(choose(results, "accuracy", "round"))
  return lines(results, table, "round", title="Accuracy over the rounds")


def metric_curves(results: Results) -> Figure | None:
  """Draws the metrics of eval.metrics over the rounds, on the last test set."""
  tables = []
  for metric in dict.fromkeys(results.numbers.metric):
    table = choose(results, metric, "round")
    table = table[table.set == table.groupby("cell").set.transform("last")]
    name = (table.cell + " " + label(metric)).str.strip()
    if metric not in QUANTITIES:
      tables.append(table.assign(panel=name))
  if not tables:
    return None
  title = "Metrics over the rounds, on the last test set"
  free: dict[str, Any] = {"ylabel": " ", "sharey": False}
  return lines(results, pd.concat(tables), "round", title=title, **free)


def accuracy_over_cost(results: Results) -> Figure | None:
  """Draws accuracy on the first test set over bytes, seconds and joules.

  Of several cells over bytes alone. The dotted line is eval.target (SuperSFL
  Figures 3 and 4).
  """
  table = choose(results, "accuracy", "round")
  table = table[table.set == table.groupby("cell").set.transform("first")]
  cells = table.cell.nunique() > 1
  costs = ["bytes"] if cells else ["bytes", "modelled_seconds", "joules"]
  parts = [_over(results, table, cost, cells) for cost in costs]
  title, axis = "Accuracy over the cost of training", label("bytes")
  options: dict[str, Any] = {"xlabel": axis if cells else " ", "sharex": cells}
  figure = lines(results, pd.concat(parts), "cost", title=title, **options)
  targets = {run.settings["eval"].get("target") for run in results.runs}
  for axes in figure.axes if figure else ():
    for target in targets - {None}:
      axes.axhline(100 * target, color="black", linewidth=0.9, linestyle=":")
  return figure


def _over(
  results: Results, table: pd.DataFrame, cost: str, cells: bool
) -> pd.DataFrame:
  """Adds "cost", the mean over seeds after the same round."""
  keys = ["row", "cell", "round"]
  spent = means(choose(results, cost, "round"), *keys).set_index(keys).value
  table = table.join(spent.rename("cost"), on=keys).dropna(subset="cost")
  return table if cells else table.assign(panel=label(cost))


def accuracy_over_latency(results: Results) -> Figure | None:
  """Draws accuracy against latency (SplitGP Figure 5).

  The line of a row with two exits are thresholds common to all clients.
  """
  metrics = "latency", "accuracy"
  table = pd.concat(by_set(choose(results, name)) for name in metrics)
  swept = [by_set(choose(results, name, "threshold")) for name in metrics]
  title = "Accuracy against latency (line: one threshold for all clients)"
  paths = pd.concat(swept)
  return points(results, table, *metrics, title=title, paths=paths)


def effect_of_threshold(results: Results) -> Figure | None:
  """Draws accuracy over ρ at thresholds common to all clients (SplitGP 6b)."""
  table = _mixtures(choose(results, "accuracy", "threshold"))
  known = sorted(table.threshold.unique())
  step = -(-len(known) // MOST_THRESHOLDS) or 1
  named = style.shades(f"{value:.3g} nats" for value in known[::step])
  hue = table.threshold.map("{:.3g} nats".format)
  table = table.assign(hue=hue, panel=_row_and_cell(table))[hue.isin(named)]
  title = "Accuracy over ρ at one threshold for all clients"
  options: dict[str, Any] = {"hue": "hue", "named": named, "xlabel": RHO}
  return lines(results, table, "rho", title=title, **options)


def _row_and_cell(table: pd.DataFrame) -> pd.Series:
  return table.row + table.cell.map(lambda cell: cell and f", {cell}")


def accuracy_over_field(results: Results) -> Figure | None:
  """Draws accuracy over a numeric field of a grid (SuperSFL Figure 6).

  Of several such fields over the one with the most values.
  """
  table = choose(results, "accuracy")
  numeric = table[results.axes].select_dtypes("number").nunique()
  if numeric.max() in (0, 1) or numeric.empty:
    return None
  axis = str(numeric.idxmax())
  others = [name for name in results.axes if name != axis]
  words = table[others].astype(str)
  words = words.apply(lambda value: f"{field_name(value.name)} " + value)
  cells = words.agg(", ".join, axis=1) if others else ""
  table = by_set(table.assign(cell=cells, panel=cells))
  title = f"Accuracy over the field {axis}"
  return lines(results, table, axis, title=title)


def change_by_cell(results: Results) -> Figure | None:
  """Draws accuracy and performance gap by cell and row (Hydra Figure 5)."""
  late = [choose(results, name) for name in ("late_accuracy", "gap")]
  tables = late if len(late[0]) else [by_set(choose(results, "accuracy"))]
  title = "Accuracy by cell, and its change against the first row"
  return bars(results, tables, title=title) if results.axes else None


def accuracy_over_gap(results: Results) -> Figure | None:
  """Draws late accuracy against the performance gap (Hydra Figures 3, 16)."""
  metrics = "gap", "late_accuracy"
  table = pd.concat(choose(results, name) for name in metrics)
  title = "Late accuracy against the performance gap"
  return points(results, table, *metrics, title=title)


def class_accuracy(results: Results) -> Figure | None:
  """Draws every class over the rounds, a panel per row (Hydra Figure 10)."""
  table = choose(results, "accuracy", "class", "round")
  shown = _tables(results, table, "class", "round")
  title = "Accuracy of every class over the rounds"
  return heat(results, shown, title=title, names=("round", "class"))


def _tables(
  results: Results, table: pd.DataFrame, index: str, columns: str
) -> dict[str, pd.DataFrame]:
  """Makes a table of means over seeds for each row; none of several cells."""
  if table.cell.nunique() != 1:
    return {}
  averaged = means(table, "row", index, columns)
  order, across = _ordered(averaged[index]), _ordered(averaged[columns])
  return {
    str(row): part.pivot(index=index, columns=columns, values="value").reindex(
      index=order, columns=across
    )
    for row, part in averaged.groupby("row", sort=False)
  }


def _ordered(names: pd.Series) -> list[Any]:
  """Lists names as they come, and numbers by their size."""
  known = list(dict.fromkeys(names))
  try:
    return sorted(known, key=float)
  except ValueError:
    return known


def accuracy_over_position(results: Results) -> Figure | None:
  """Draws late accuracy over the position in the order (Hydra Figures 2, 6)."""
  table = _positions(results).sort_values("round")
  keys = ["metric", "panel", "seed", "row", "position"]
  late = table.groupby(keys).value.apply(lambda x: x.tail(LATE).median())
  title = "Late accuracy by position in the order of service"
  return lines(results, late.reset_index(), "position", title=title)


def position_curves(results: Results) -> Figure | None:
  """Draws the last ten positions over the rounds (Hydra Figures 13 to 18)."""
  table = _positions(results)
  last = table.position > table.position.max() - MOST_POSITIONS
  hue = table.position.map("position {:g}".format)
  table = table.assign(panel=_row_and_cell(table), hue=hue)[last]
  named = style.shades(dict.fromkeys(table.sort_values("position").hue))
  title = "Accuracy by position in the order of service"
  options: dict[str, Any] = {"hue": "hue", "named": named}
  return lines(results, table, "round", title=title, **options)


def _positions(results: Results) -> pd.DataFrame:
  """Chooses accuracies of classes over rounds of the rows with an order."""
  keys = ["cell", "seed", "row", "class"]
  order = choose(results, "position", "class").set_index(keys).value
  table = choose(results, "accuracy", "class", "round")
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
  shown = {}
  for held in list(_tables(results, counts, *details).values())[:1]:
    share = 100 * held.div(held.sum(axis=1), axis=0)
    shown["share of the client's training samples"] = share
  shown |= _tables(results, table, *details)
  title, key = "Accuracy of every client by class", "accuracy or share [%]"
  return heat(results, shown, title=title, names=("class", "client"), key=key)


def cost_per_client(results: Results) -> Figure | None:
  """Draws what the training costs every client (SuperSFL Figure 5)."""
  costs = "modelled_seconds", "joules", "bytes"
  table = pd.concat(choose(results, cost, "client") for cost in costs)
  if table.cell.nunique() > 1:
    return None
  table = table.assign(panel=table.metric.map(label))
  return dots(results, table, title="Cost of every client", sharex=False)


FIGURES: dict[str, Callable[[Results], Figure | None]] = {
  figure.__name__: figure
  for figure in (
    accuracy_over_rho,
    accuracy_over_severity,
    accuracy_over_field,
    change_by_cell,
    learning_curves,
    metric_curves,
    accuracy_over_cost,
    accuracy_over_latency,
    effect_of_threshold,
    accuracy_over_gap,
    class_accuracy,
    accuracy_over_position,
    position_curves,
    accuracy_per_client,
    class_accuracy_per_client,
    cost_per_client,
  )
}
"""Name of a file -> the figure's function, in the order of the report."""


def draw(
  results: Results, folder: str | Path, names: Sequence[str] | None = None
) -> list[Path]:
  """Draws the figures that the results have the numbers for.

  Args:
    results: of a run, of seeds, of a grid or of folders.
    folder: gets the files NAME.png and NAME.pdf; it is made.
    names: keys of FIGURES; None: all.

  Returns:
    The PNG files. A figure that cannot be drawn costs a line of the terminal.
  """
  folder = Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  paths = []
  for name in FIGURES if names is None else names:
    make = functools.partial(FIGURES[name], results)
    paths += style.attempt(folder / f"{name}.png", make)
  return paths
