"""The page report.md of a run, of its seeds, a grid or several folders.

All are the same page: `SECTIONS` lists its tables. docs/reports.md explains
their columns.
"""

import os
import urllib.parse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from splitjax import files
from splitjax.config.tree import flat
from splitjax.reports import main_table, numbers, tables
from splitjax.reports.quantities import heading
from splitjax.reports.results import Results, notes
from splitjax.reports.tables import Column, escaped

PAGE, MEANS, TEX = "report.md", "report.csv", "report.tex"
EXPLAINED = "https://github.com/splitjax/splitjax/blob/main/docs/reports.md"
MOST = 60
"""Limit of the lines of a table, other than the first table of a page."""


class Section(NamedTuple):
  """A table of the page.

  Attributes:
    title: its title.
    metrics: METRIC or METRIC:PART; all parts of a METRIC:* that there are.
    sets: the test sets that it shows: "last", or "ends", those of the smallest
      and the largest ρ. Metrics without a set are always shown.
    words: makes the sentences below it.
  """

  title: str
  metrics: tuple[str, ...]
  sets: str = "last"
  words: Callable[[Results], str] = lambda results: ""


def write(results: Results, folder: Path) -> None:
  """Writes numbers.csv, report.csv and report.tex to an existing folder."""
  table = main_table.main_table(results.means, brief=False)
  numbers.write(results.numbers, folder)
  numbers.write(results.means, folder / MEANS)
  files.write_text(folder / TEX, tables.latex(table, results.title))


def write_page(
  results: Results, folder: Path, figures: Sequence[Path] = ()
) -> Path:
  """Writes report.md, which shows `figures`, PNG files; returns its path."""
  files.write_text(folder / PAGE, text(results, folder, figures))
  return folder / PAGE


def text(results: Results, folder: Path, figures: Sequence[Path] = ()) -> str:
  """Writes the text of report.md; `folder` is where it will be."""
  parts = [
    f"# {escaped(results.title)}",
    f"[What the columns mean]({EXPLAINED}); all numbers: `{numbers.NUMBERS}`.",
    settings(results),
    "## Accuracy, offloading, latency, traffic, time",
    tables.markdown(main_table.main_table(results.means, brief=False)),
    _bullets(remarks(results)),
    *_best_cells(results),
    *_ahead(results),
    *_between_runs(results),
    *(part for section in SECTIONS for part in _section(results, section)),
    *_clients(results),
    *_cells(results, folder),
  ]
  if figures:
    parts.append("## Figures")
    for path in figures:
      name = escaped(path.stem.replace("_", " "))
      parts.append(f"![{name}]({_link(path, folder)})")
  if lines := [*_uncounted(results), *notes(results)]:
    parts += ["## Notes", _bullets([escaped(line) for line in lines])]
  return "\n\n".join(parts) + "\n"


def remarks(results: Results) -> list[str]:
  """Writes sentences on intervals, thresholds and a paper's numbers."""
  means, metas = results.means, [run.settings for run in results.runs]
  counts = sorted(set(means.seeds))
  said = ["One seed: no interval, so small differences tell nothing."]
  if counts != [1]:
    others = "run of its method" if "run" in results.axes else "row"
    said = [
      "Mean ± half-width of the 95 % interval over"
      f" {' or '.join(map(str, counts))} seeds; bold is ahead of every other"
      f" {others} by more than the interval of the difference."
    ]
  if 2 in counts:
    said.append(
      "Intervals over two seeds tell little: ± is 12.7 standard errors."
    )
  if not means[means.metric == "common"].value.isna().all():
    rules = dict.fromkeys(s["eval"]["threshold_rule"] for s in metas)
    said.append(
      f"Thresholds: {' and '.join(rules)} (the oracle's are chosen with the"
      " test labels)."
    )
  if means.paper.notna().any():
    sources = dict.fromkeys(s["paper"] for s in metas if s.get("paper"))
    said.append(f"In parentheses: {' and '.join(sources)}.")
    changed = dict.fromkeys(x for s in metas for x in s.get("changed", ()))
    if changed:
      said.append(f"Settings unlike the paper's: {', '.join(changed)}.")
    if any(s.get("scale") == "small" for s in metas):
      said.append(
        "Ours is the small scale (smaller network, less data, fewer rounds):"
        " compare orders and gaps, not numbers."
      )
  return said


def settings(results: Results) -> str:
  """Writes the settings that all runs share, folded, one a line."""
  first, *others = [
    flat({**run.settings, "seed": results.seeds}) for run in results.runs
  ]
  lines = [
    f"{name} = {files.printable(value)}"
    for name, value in first.items()
    if all(name in other and other[name] == value for other in others)
  ]
  title = "Settings of all runs" if others else "Settings"
  block = "\n".join(["```text", *lines, "```"])
  return f"<details><summary>{title}</summary>\n\n{block}\n\n</details>"


def _section(results: Results, section: Section) -> list[str]:
  means, sets = results.means, main_table.ends(results.sets)
  shown = ["", *(sets if section.sets == "ends" else sets[-1:])]
  columns = []
  for name in section.metrics:
    metric, _, part = name.partition(":")
    known = means[means.metric.eq(metric) & means.set.isin(shown)]
    known = known[known.part == part] if part != "*" else known
    pairs = known[["set", "part"]].drop_duplicates()
    columns += [Column(metric, *pair) for pair in pairs.to_numpy()]
  first = {"accuracy", "offload", "bytes_per_round"}  # in the first table
  if all(column.metric in first and not column.part for column in columns):
    return []
  means = means.drop(columns=["paper", "paper_half"])  # the first table has it
  table = main_table.by_row(means, columns)
  text = tables.markdown(table)
  if len(table) > MOST:
    text = f"{len(table)} lines are too many for a page: see `{MEANS}`."
  return [f"## {section.title}", text, *filter(None, [section.words(results)])]


def _best_cells(results: Results) -> list[str]:
  """Names the cell of a grid in which each method is most accurate."""
  if not [axis for axis in results.axes if axis != "run"]:
    return []
  means, last = results.means, main_table.ends(results.sets)[-1]
  known = Column("accuracy", last).lines(means).dropna(subset="value")
  best = known.loc[known.groupby("row", sort=False).value.idxmax()]
  best = best.reset_index(drop=True)
  table = tables.table(best, [Column("accuracy", last)], ["row", *results.axes])
  words = "Chosen by the test labels: the best of many is high by chance, too."
  return ["## Best cell of each method", tables.markdown(table), words]


def _headline(results: Results) -> str:
  """Returns the label of the row that the config names as `headline`."""
  tree = results.runs[0].settings
  key = tree.get("headline", "")
  label = tree.get("methods", {}).get(key, {}).get("label") or key
  return label if label in results.rows else results.rows[0]


def _ahead(results: Results) -> list[str]:
  """Tabulates the headline's accuracy minus that of other methods' rows.

  Rows of the headline's own method are left out: they differ in an option.
  """
  base, methods = _headline(results), results.methods
  others = [
    row for row in results.rows if methods.get(row) != methods.get(base)
  ]
  lines = _accuracies(results)
  lines = lines[lines.row.isin([base, *others])]
  if not others or base not in set(lines.row):
    return []
  apart = numbers.differences(lines, base)
  table = _differences(
    results, apart.assign(value=-apart.value), [*results.axes, "row"]
  )
  if len(table) > MOST:
    return []
  return [f"## {escaped(base)} minus the others", tables.markdown(table)]


def _between_runs(results: Results) -> list[str]:
  """Tabulates differences between compared folders over their common seeds."""
  if results.axes != ["run"]:
    return []
  parts = []
  for _, lines in _accuracies(results).groupby("row", sort=False):
    base = lines.run.iloc[0]
    if lines.run.nunique() > 1:
      apart = numbers.differences(lines, base, by="run")
      parts.append(apart.assign(run=apart.run + f" − {base}"))
  if not parts or pd.concat(parts).empty:
    return []
  apart = pd.concat(parts, ignore_index=True)
  table = _differences(results, apart, ["row", "run"])
  counts = apart.groupby(["row", "run"]).seeds.max()
  table.insert(0, "seeds", [str(counts[key]) for key in table.index])
  return ["## Differences between the runs", tables.markdown(table)]


def _differences(
  results: Results, apart: pd.DataFrame, by: Sequence[str]
) -> pd.DataFrame:
  ends = main_table.ends(results.sets)
  columns = [Column("difference", name) for name in ends]
  return tables.table(apart.assign(metric="difference"), columns, by)


def _accuracies(results: Results) -> pd.DataFrame:
  """The accuracies of whole rows on the first and the last test set."""
  lines = results.final
  lines = lines[(lines.metric == "accuracy") & (lines.part == "")]
  return lines[lines.set.isin(main_table.ends(results.sets))]


def _privacy(results: Results) -> str:
  """Says δ, and what has no ε."""
  options = [run.settings["privacy"] for run in results.runs]
  deltas = dict.fromkeys(f"{x['delta']:g}" for x in options if x.get("delta"))
  return (
    f"δ = {' or '.join(deltas)}; *up* is all noisy uploads together. A message"
    " of the traffic that has no column here has no noise and is not covered."
  )


def _target(results: Results) -> str:
  """Says which accuracy was to be reached, and on which set."""
  targets = [run.settings["eval"].get("target") for run in results.runs]
  shown = dict.fromkeys(f"{100 * x:g} %" for x in targets if x is not None)
  first = escaped(heading(results.sets[0]))
  return f"{' or '.join(shown)} on {first}; {tables.ABSENT}: not reached."


def _clients(results: Results) -> list[str]:
  """Tabulates the accuracy of few clients of a single cell.

  Client 7 of one seed is not client 7 of another, unless clients have names.
  """
  lines = results.numbers
  lines = lines[(lines.metric == "accuracy") & (lines.part == "")]
  lines = lines[lines.client.ne("") & lines["class"].eq("")]
  ends = main_table.ends(results.sets)
  lines = lines[lines["round"].isna() & lines.set.isin(ends)]
  numbered = lines.client.str.isdecimal().any()
  if lines.empty or results.axes or (len(results.seeds) > 1 and numbered):
    return []
  means = numbers.over_seeds(lines.drop(columns=["round", "threshold"]))
  columns = [Column("accuracy", name) for name in ends]
  table = tables.table(means, columns, ["client", "row"])
  if len(table) > MOST:
    return []
  return ["## Accuracy of each client", tables.markdown(table)]


def _cells(results: Results, folder: Path) -> list[str]:
  """Links the reports of a grid's cells, or of the compared folders."""
  runs: dict[str, list[Path]] = {}
  for run in results.runs if results.axes else ():
    runs.setdefault(run.cell, []).append(Path(run.folder))
  links = []
  for cell, seeds in runs.items():
    place = seeds[0].parent if len(seeds) > 1 else seeds[0]
    links.append(f"[{escaped(cell)}]({_link(place / PAGE, folder)})")
  return ["## Each cell", _bullets(links)] if links else []


def _uncounted(results: Results) -> list[str]:
  """Says where clients without test samples in a set are not counted."""
  counts = results.final[results.final.metric == "clients"]
  by_set = counts.groupby("set", sort=False).value.min()
  if by_set.nunique() < 2:
    return []
  each = ", ".join(f"{heading(str(s))} {n:g}" for s, n in by_set.items())
  return [
    "Accuracies are means over the clients that have samples in a set, of which"
    f" there are: {each}."
  ]


def _link(path: Path, folder: Path) -> str:
  relative = Path(os.path.relpath(path, folder)).as_posix()
  return urllib.parse.quote(relative)


def _bullets(lines: Sequence[str]) -> str:
  return "\n".join(f"- {line}" for line in lines)


SECTIONS = (
  Section("Accuracy in detail", (
    "accuracy", "common", "device_only", "server_only", "id", "ood",
    "offload_id", "offload_ood",
  )),
  Section("Accuracy by client and by sample", (
    "accuracy", "weighted", "best", "best_weighted", "std", "worst_tenth",
  )),
  Section("Thresholds without labels", (
    "accuracy:oracle", "accuracy:calibrated", "below:calibrated",
    "kept:calibrated", "offload:calibrated", "accuracy:fixed", "below:fixed",
    "kept:fixed", "offload:fixed",
  ), "ends"),
  Section("Resources at inference", (
    "storage", "offload", "computation", "communication", "total_latency",
  )),
  Section("Modelled time and energy", (
    "modelled_seconds", "client_joules", "server_joules", "grams", "watts",
    "watts_per_point",
  )),
  Section("To the target accuracy", (
    "target_rounds", "target_bytes", "target_seconds", "target_joules",
  ), words=_target),
  Section("Traffic per round by message", (
    "bytes:*", "bytes_per_round", "server_bytes",
  )),
  Section("Privacy", ("epsilon:*", "epsilon_median:*"), words=_privacy),
  Section("Representation skew", ("silhouette", "distance_ratio")),
)  # fmt: skip
"""The tables of a page behind the first, in its order."""
