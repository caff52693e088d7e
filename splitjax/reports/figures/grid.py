"""Figures of a grid: accuracy over its swept field, accuracy against gap."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from splitjax.reports import forgetting
from splitjax.reports.figures import cost, intervals, panels, style
from splitjax.reports.figures.forgetting import GAP, LATE, against_gap
from splitjax.reports.results import ends, heading
from splitjax.reports.tables import text

AXIS_NAMES = {
  "backbone.width": "network width, relative",
  "batch_size": "batch size [samples]",
  "csa_weight": "weight of l_CSA",
  "data.partition.alpha": "Dirichlet α",
  "data.partition.k": "classes per client",
  "data.partition.p": "share of the dominant label [%]",
  "data.partition.phi": "clients per dominant label",
  "data.train_samples": "training samples",
  "faults.dropout": "probability that a client drops out",
  "faults.server_down": "probability that the server is unavailable",
  "faults.straggler": "probability that a client is a straggler",
  "gamma": "γ",
  "inner_lr": "inner learning rate",
  "lam": "λ",
  "local_epochs": "local epochs per round",
  "local_steps": "local steps per round",
  "num_clients": "number of clients",
  "optimizer.lr": "learning rate",
  "second_cut": "depth of the second cut",
  "system.bandwidth": "bandwidth [parameters per unit of time]",
  "system.server_power": "server power [parameters per unit of time]",
}
"""Config field, or option of a method -> name of an axis, with its unit."""


def draw_grid(whole: dict[str, Any], folder: str | Path) -> list[Path]:
  """Draws the figures that a grid has the numbers for; returns their paths.

  Compared workdirs have accuracy_by_run.png. A grid over one numeric field has
  accuracy_over_FIELD.png, where FIELD is the last word of the field. Both may
  have accuracy_gap.png and change_by_cell.png. If all cells have the same
  eval.target, they may have accuracy_over_bytes.png.
  """
  drawn = {}
  if whole["fields"] == ["run"]:
    drawn["accuracy_by_run"] = by_run(whole)
  elif axis := varied(whole):
    drawn[f"accuracy_over_{axis.split('.')[-1]}"] = over_axis(whole)
  every = [
    (", ".join(map(text, cell["values"].values())), cell["results"])
    for cell in whole["cells"]
  ]
  # The gap between classes exists on the global test set only.
  if cells := [cell for cell in every if forgetting.shown(cell[1])]:
    drawn["accuracy_gap"] = against_gap(cells)
    if all(len(each["rows"]) > 1 for _, each in cells):
      drawn["change_by_cell"] = changes(cells)
  # Cells can be drawn together only if their first test set is the same.
  same = len({each["sets"][0] for _, each in every}) == 1
  if same and all(cost.priced(each) for _, each in every):
    configs = [each["config"] for _, each in every]
    targets = {c.get("eval", {}).get("target") for c in configs}
    if len(targets) == 1 and targets != {None}:
      drawn["accuracy_over_bytes"] = cost.over_bytes(every)
  return [
    style.save(figure, Path(folder) / f"{name}.png")
    for name, figure in drawn.items()
  ]


def by_run(whole: dict[str, Any]) -> Figure:
  """Draws the accuracy of each run's rows, on up to two common test sets.

  These sets are the first and the last of the first run; a set that another run
  lacks is left out, unless no set would remain. A row of a run is one line of
  the figure, in the run's colour. Intervals and dots show several seeds.
  """
  cells = {cell["name"]: cell["results"] for cell in whole["cells"]}
  first = next(iter(cells.values()))
  common = [
    name
    for name in (first["sets"][r] for r in ends(first))
    if all(name in each["sets"] for each in cells.values())
  ] or [first["sets"][0]]
  lines = [
    (n, row["label"]) for n, each in cells.items() for row in each["rows"]
  ]
  labels = [label for _, label in lines]
  figure, every = panels.sideways(labels, len(common), 3.2)
  styles = {
    name: {**look, "linestyle": "none"}
    for name, look in style.row_styles({"label": x} for x in cells).items()
  }
  more = ""
  for axes, name in zip(every, common, strict=True):
    found = [_find(cells[run], label, name) for run, label in lines]
    values, halves = 100 * np.array([each[:2] for each in found]).T
    seen: list[float] = []
    for at, (run, _) in enumerate(lines):
      wide = intervals.bars(values[[at]], halves[[at]])
      axes.errorbar(values[at], at, xerr=wide, capsize=3, **styles[run])
      look = {"color": styles[run]["color"], "alpha": 0.45, "s": 11}
      dots = 100 * np.array(found[at][2], float)
      if len(dots) > 1:
        axes.scatter(dots, np.full(len(dots), at), zorder=1.5, **look)
      seen += dots.tolist()
    axes.set_title(heading(name), fontsize=10)
    axes.set_xlabel("accuracy [%]")
    more = intervals.frame([axes], values, halves, seen, axis="x") or more
  text = intervals.title("Accuracy by run", "dots", *cells.values(), more=more)
  return style.finish(figure, every, styles, text)


def varied(whole: dict[str, Any]) -> str:
  """Returns the only field of a grid if its values are numbers, else "".

  The result is also "" if only one value of the field has results.
  """
  cells = whole["cells"]
  values = [value for cell in cells for value in cell["values"].values()]
  numbers = all(type(value) in (int, float) for value in values)
  one = len(whole["fields"]) == 1 and len(cells) > 1 and numbers
  return whole["fields"][0] if one else ""


def over_axis(whole: dict[str, Any]) -> Figure:
  """Draws accuracy over the grid's field (see `varied`), one line per row.

  The panels are the first and the last test set. Several seeds add intervals
  and dots.
  """
  cells, field = whole["cells"], varied(whole)
  values = [cell["values"][field] for cell in cells]
  first = cells[0]["results"]
  names = [first["sets"][r] for r in ends(first)]
  option = field.split(".")[-1]
  axis = AXIS_NAMES.get(field) or AXIS_NAMES.get(option)
  axis = axis or option.replace("_", " ")
  labels = axis, "accuracy [%]"
  figure, every = style.make_panels(len(names), 2, (3.5, 3.0), labels)
  rows = [row for cell in cells for row in cell["results"]["rows"]]
  styles = style.row_styles(rows)
  order, at = np.argsort(values), np.sort(np.array(values, float))
  wide = logarithmic(option, values)
  frames, points = [], list[float]()
  for axes, name in zip(every, names, strict=True):
    for i, (label, look) in enumerate(styles.items()):
      ours = [_find(cells[c]["results"], label, name) for c in order]
      both = 100 * np.array([each[:2] for each in ours]).T
      dots = [100 * np.array(seeds, float) for *_, seeds in ours]
      line = intervals.Series(both[0], both[1], dots, look)
      intervals.draw(axes, at, line, i, len(styles), wide=wide)
      frames.append(both)
      points += [x for seeds in dots for x in seeds]
    if wide:
      style.log_axis(axes)
    axes.set_xticks(np.unique(at))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_title(heading(name), fontsize=10)
  both = np.concatenate(frames, axis=1)
  more = intervals.frame(every, both[0], both[1], points)
  runs = [cell["results"] for cell in cells]
  text = intervals.title(f"Accuracy over {axis}", "dots", *runs, more=more)
  return style.finish(figure, every, styles, text)


METRICS = {LATE: "accuracy [%]", GAP: "performance gap [points]"}
"""Path of a forgetting metric -> name of its axis in `changes`."""


def changes(cells: Sequence[tuple[str, dict[str, Any]]]) -> Figure:
  """Draws late accuracy and performance gap by row and cell, as bars.

  The number over a row's bars is its change against the first row of the same
  cell, in percent of the first row's value (Hydra Figures 5, 12 and 17).

  Args:
    cells: pairs of a name and results.
  """
  rows = [row for _, results in cells for row in results["rows"]]
  styles, count = style.row_styles(rows), len(cells)
  width = max(4.0, 0.6 + 0.5 * count * len(styles))
  figure, every = style.make_panels(2, 1, (width, 2.4), ("", ""), sharey=False)
  for axes, (path, name) in zip(every, METRICS.items(), strict=True):
    for i, (label, own) in enumerate(styles.items()):
      at = np.arange(count) + 0.8 * ((i + 0.5) / len(styles) - 0.5)
      found = [_late(results, label, path) for _, results in cells]
      values, halves, first = 100 * np.array(found).T
      wide = intervals.bars(values, halves)
      look = {"color": own["color"], "capsize": 2, "width": 0.8 / len(styles)}
      axes.bar(at, values, yerr=wide, **look)
      change = 100 * (values / np.where(first > 0, first, np.nan) - 1)
      tops = values + np.nan_to_num(wide[1])
      for x, top, of_first in zip(at, tops, change, strict=True):
        if np.isfinite(of_first):
          look = {"ha": "center", "va": "bottom", "fontsize": 8}
          axes.text(x, top, f"{of_first:+.0f} %", **look)
    axes.set_ylabel(name)
  every[-1].set_xticks(range(count), [name for name, _ in cells])
  swatches = {
    label: {"color": own["color"], "linewidth": 6}
    for label, own in styles.items()
  }
  what = "Medians of the last rounds, and change against the first row"
  runs = [results for _, results in cells]
  text = intervals.title(what, "bars", *runs)
  return style.finish(figure, every, swatches, text)


def _late(
  results: dict[str, Any], label: str, path: tuple[str, ...]
) -> tuple[float, float, float]:
  """Returns a row's late metric, its half-width, and the first row's metric.

  The first two numbers are NaN if the row is missing. The third is NaN if the
  row is itself the first one.
  """
  found = {row["label"]: style.leaf(row, *path) for row in results["rows"]}
  value, half = map(float, found.get(label, (np.nan, np.nan)))
  first = next(iter(found))
  return value, half, np.nan if first == label else float(found[first][0])


def logarithmic(option: str, values: Sequence[float]) -> bool:
  """Checks if values of an option need a logarithmic axis.

  They do if all are positive and either span a decade or are learning rates,
  which act by factors.
  """
  rate = option == "lr" or option.endswith("_lr")
  return min(values) > 0 and (rate or max(values) >= 10 * min(values))


def _find(
  results: dict[str, Any], label: str, name: str
) -> tuple[float, float, list[float]]:
  """Returns a row's accuracy on a set, its half-width, and the seeds' values.

  Without this row or set, returns NaN, NaN and [].
  """
  for row in results["rows"]:
    if row["label"] == label and name in results["sets"]:
      r = results["sets"].index(name)
      value, half = style.leaf(row, "summary", "accuracy")
      seeds = row.get("by_seed", {}).get("accuracy", [])
      return value[r], half[r], [each[r] for each in seeds]
  return np.nan, np.nan, []
