"""The page report.md of a run, of its seeds, a grid or several folders.

All are the same page: `SECTIONS` lists its tables. docs/reports.md explains
their columns.
"""

import itertools
import os
import urllib.parse
from collections import ChainMap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pandas as pd

from splitjax import files
from splitjax.config.config import flat
from splitjax.reports import numbers, tables
from splitjax.reports.results import Results
from splitjax.reports.tables import Column, escaped

_PAGE = "report.md"
MEANS = "report.csv"
_EXPLAINED = "https://github.com/splitjax/splitjax/blob/main/docs/reports.md"
MOST = 60  # lines of a table, except for the first table of a page

SECTIONS = {
  "Accuracy in detail": "common device_only server_only id ood offload_id"
  " offload_ood",
  "Accuracy by client and by sample": "weighted best best_weighted std"
  " worst_tenth clients",
  "Thresholds without labels": "accuracy:oracle accuracy:calibrated"
  " below:calibrated offload:calibrated accuracy:fixed below:fixed"
  " offload:fixed",
  "Resources at inference": "storage offload latency computation communication"
  " total_latency",
  "Measured time": "seconds:*",
  "Modelled time and energy": "modelled_seconds client_joules server_joules"
  " grams watts watts_per_point",
  "To the target accuracy": "target_rounds target_bytes target_seconds"
  " target_joules",
  "Traffic per round by message": "bytes:* bytes_per_round server_bytes",
  "Privacy": "epsilon:* epsilon_median:*",
  "Representation skew": "silhouette distance_ratio",
}
"""Title of a table -> METRIC or METRIC:PART; of METRIC:* all parts there are.

They show the last test set, those of `ENDS` the first as well."""

ENDS = ("Thresholds without labels", "Resources at inference")


def write(results: Results, folder: Path) -> None:
  """Writes numbers.csv and report.csv to an existing folder."""
  files.write(folder / numbers.NUMBERS, numbers.as_csv(results.numbers))
  files.write(folder / MEANS, numbers.as_csv(results.means))


def write_page(
  results: Results, folder: Path, figures: Sequence[Path] = ()
) -> Path:
  """Writes report.md, which shows `figures`, PNG files; returns its path."""
  paragraphs = [
    f"# {escaped(results.title)}",
    f"[What the columns mean]({_EXPLAINED}); all numbers: `{numbers.NUMBERS}`.",
    settings(results),
    "## Accuracy, offloading, latency, traffic, time",
    tables.markdown(results.table()),
    _bullets([*results.remarks, *remarks(results)]),
  ]
  for title, table in _parts(results):
    if not table.empty:
      body = f"{len(table)} lines are too many for a page: see `numbers.csv`."
      if len(table) <= MOST:
        body = tables.markdown(table)
      paragraphs += [f"## {escaped(title)}", body]
  if figures:
    paragraphs.append("## Figures")
  for path in figures:
    name = escaped(path.stem.replace("_", " "))
    relative = Path(os.path.relpath(path, folder)).as_posix()
    paragraphs.append(f"![{name}]({urllib.parse.quote(relative)})")
  if lines := notes(results):
    paragraphs += ["## Notes", _bullets(lines)]
  files.write(folder / _PAGE, "\n\n".join(paragraphs) + "\n")
  return folder / _PAGE


def _bullets(lines: Iterable[str]) -> str:
  return "\n".join(f"- {escaped(line)}" for line in lines)


def settings(results: Results) -> str:
  """Writes the settings, folded, one a line; those of runs that differ by |."""
  trees = [flat(run.settings) for run in results.runs]
  lines = []
  for name in dict.fromkeys(itertools.chain(*trees)):
    values = [files.printable(tree.get(name, "")) for tree in trees]
    lines.append(f"{name} = {' | '.join(dict.fromkeys(values))}")
  block = "\n".join(["```text", *lines, "```"])
  return f"<details><summary>Settings</summary>\n\n{block}\n\n</details>"


def remarks(results: Results) -> list[str]:
  """Writes sentences on intervals, thresholds and a paper's numbers."""
  trees = [run.settings for run in results.runs]
  counts = sorted(set(results.means.seeds))
  lines = ["One seed: no interval, so small differences tell nothing."]
  if counts != [1]:
    seeds = " or ".join(map(str, counts))
    lines = [f"Mean ± half-width of the 95 % interval over {seeds} seeds."]
  if 2 in counts:
    lines.append("Intervals over two seeds tell little.")
  if (results.means.metric[results.means.value.notna()] == "common").any():
    rules = dict.fromkeys(tree["eval"]["threshold_rule"] for tree in trees)
    lines.append(f"Thresholds: {' and '.join(rules)} (oracle: by test labels).")
  if results.means.paper.isna().all():
    return lines
  sources = dict.fromkeys(tree["paper"] for tree in trees)
  lines.append(f"In parentheses: {' and '.join(filter(None, sources))}.")
  changes = itertools.chain(*(tree.get("changed", ()) for tree in trees))
  if changed := ", ".join(dict.fromkeys(changes)):
    lines.append(f"Settings unlike the paper's: {changed}.")
  if "small" in {tree.get("scale") for tree in trees}:
    lines.append("Small scale: compare orders and gaps, not numbers.")
  return lines


def notes(results: Results) -> list[str]:
  """Lists the notes of the runs, each once; of some runs, with their names."""
  holders = dict[str, list[str]]()
  for run in results.runs:
    for note in run.notes:
      holders.setdefault(note, []).append(run.name)
  return [
    note if len(names) == len(results.runs) else f"{'; '.join(names)}: {note}"
    for note, names in holders.items()
  ]


def _parts(results: Results) -> Iterator[tuple[str, pd.DataFrame]]:
  """Title and table of what follows the first table; empty without numbers."""
  means = results.means.drop(columns=["paper", "paper_half"])
  if set(results.axes) - {"run"}:
    accuracy = Column("accuracy", results.ends[-1])
    lines = accuracy.lines(means).dropna(subset="value")
    best = lines.loc[lines.groupby("row", sort=False).value.idxmax()]
    by = ["row", *results.axes]
    table = tables.table(best.reset_index(drop=True), [accuracy], by)
    yield "Best cell of each method", table
  # The row that the config names, or the first.
  config = results.runs[0].settings
  key = config.get("headline", "")
  base = config.get("methods", {}).get(key, {}).get("label") or key
  base = base if base in results.rows else results.rows[0]
  yield f"{base} minus the others", _differences(results, base)
  by = tables.line_names(means)
  for title, metrics in SECTIONS.items():
    sets = results.ends if title in ENDS else results.ends[-1:]
    lines = means[means.set.isin(["", *sets])]
    yield title, tables.table(lines, _columns(lines, metrics.split()), by)


def _columns(means: pd.DataFrame, metrics: Sequence[str]) -> list[Column]:
  """Lists a column for each set and part that the metrics have."""
  columns = list[Column]()
  for name in metrics:
    metric, _, part = name.partition(":")
    lines = means[means.metric == metric]
    lines = lines if part == "*" else lines[lines.part == part]
    lines = lines[["metric", "set", "part"]].drop_duplicates()
    columns += itertools.starmap(Column, lines.to_numpy())
  return columns


def _differences(results: Results, base: str) -> pd.DataFrame:
  """Tabulates the accuracy of a row minus that of the others.

  Rows of the base's own method are left out: they differ in an option.
  """
  methods = dict(ChainMap(*(dict(run.methods) for run in results.runs)))
  lines = results.final
  lines = lines[lines.metric.eq("accuracy") & lines.part.eq("")]
  alike = lines.row.map(methods).eq(methods.get(base, ""))
  lines = lines[lines.set.isin(results.ends) & (lines.row.eq(base) | ~alike)]
  apart = numbers.differences(lines, base)
  apart = apart.assign(metric="difference", value=-apart.value)
  columns = [Column("difference", name) for name in results.ends]
  return tables.table(apart, columns, tables.line_names(apart))
