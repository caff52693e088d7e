"""The page report.md of a run, of its seeds, a grid or several folders.

All are the same page: `SECTIONS` lists its tables. docs/reports.md explains
their columns.
"""

import itertools
import os
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from splitjax import files
from splitjax.config.tree import flat
from splitjax.reports import numbers, tables
from splitjax.reports.quantities import heading
from splitjax.reports.results import Results
from splitjax.reports.tables import Column, escaped

PAGE = "report.md"
MEANS = "report.csv"
TEX = "report.tex"
EXPLAINED = "https://github.com/splitjax/splitjax/blob/main/docs/reports.md"
MOST = 60
"""Limit of the lines of a table, other than the first table of a page."""

FIRST = ("accuracy", "offload", "bytes_per_round")
"""Metrics of the first table that other tables have beside their own."""


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
  table = tables.main_table(results.means, brief=False)
  numbers.write(results.numbers, folder)
  numbers.write(results.means, folder / MEANS)
  files.write(folder / TEX, tables.latex(table, results.title))


def write_page(
  results: Results, folder: Path, figures: Sequence[Path] = ()
) -> Path:
  """Writes report.md, which shows `figures`, PNG files; returns its path."""
  files.write(folder / PAGE, text(results, folder, figures))
  return folder / PAGE


def text(results: Results, folder: Path, figures: Sequence[Path] = ()) -> str:
  """Writes the text of report.md; `folder` is where it will be."""
  paragraphs = [
    f"# {escaped(results.title)}",
    f"[What the columns mean]({EXPLAINED}); all numbers: `{numbers.NUMBERS}`.",
    settings(results),
    "## Accuracy, offloading, latency, traffic, time",
    tables.markdown(tables.main_table(results.means, brief=False)),
    _bullets(remarks(results)),
  ]
  for title, table, words in _parts(results):
    if not table.empty:
      body = f"{len(table)} lines are too many for a page: see `numbers.csv`."
      if len(table) <= MOST:
        body = tables.markdown(table)
      paragraphs += [f"## {escaped(title)}", body, *filter(None, [words])]
  if results.axes:
    paragraphs += ["## Each cell", _bullets(_links(results, folder))]
  if figures:
    paragraphs.append("## Figures")
  for path in figures:
    name = escaped(path.stem.replace("_", " "))
    paragraphs.append(f"![{name}]({_link(path, folder)})")
  if lines := [*_uncounted(results), *notes(results)]:
    paragraphs += ["## Notes", _bullets(map(escaped, lines))]
  return "\n\n".join(paragraphs) + "\n"


def _parts(results: Results) -> Iterator[tuple[str, pd.DataFrame, str]]:
  """Title, table and words behind the first table; empty without numbers."""
  if set(results.axes) - {"run"}:
    accuracy = Column("accuracy", results.ends[-1])
    lines = accuracy.lines(results.means).dropna(subset="value")
    best = lines.loc[lines.groupby("row", sort=False).value.idxmax()]
    by = ["row", *results.axes]
    table = tables.table(best.reset_index(drop=True), [accuracy], by)
    words = (
      "Chosen by the test labels: the best of many is high by chance, too."
    )
    yield "Best cell of each method", table, words
  yield f"{_headline(results)} minus the others", _ahead(results), ""
  if results.axes == ["run"]:
    yield "Differences between the runs", _between_runs(results), ""
  means = results.means.drop(columns=["paper", "paper_half"])
  for section in SECTIONS:
    sets = results.ends if section.sets == "ends" else results.ends[-1:]
    columns = _columns(means[means.set.isin(["", *sets])], section.metrics)
    # What the first table shows as well is no reason for another one.
    if any(x.part or x.metric not in FIRST for x in columns):
      table = tables.table(means, columns, tables.line_names(means))
      yield section.title, table, section.words(results)
  yield "Accuracy of each client", _clients(results), ""


def _columns(means: pd.DataFrame, metrics: Sequence[str]) -> list[Column]:
  """Lists a column for each set and part that the metrics have."""
  columns = []
  for name in metrics:
    metric, _, part = name.partition(":")
    lines = means[means.metric == metric]
    lines = lines if part == "*" else lines[lines.part == part]
    pairs = lines[["set", "part"]].drop_duplicates()
    columns += [
      Column(metric, set=name, part=part) for name, part in pairs.to_numpy()
    ]
  return columns


def notes(results: Results) -> list[str]:
  """Lists remarks, then the notes of the runs, each once.

  A note that not all runs have begins with the names of its cells, or of its
  seeds where some seeds of a cell have it.
  """
  runs = [(run.cell, run.settings["seed"], run.notes) for run in results.runs]
  table = pd.DataFrame(runs, columns=["cell", "seed", "note"])
  table = table.astype({"seed": str})
  seeds: dict[Any, str] = table.groupby("cell").seed.agg(", ".join).to_dict()
  lines = list(results.remarks)
  table = table.explode("note").dropna(subset="note")
  for note, part in table.groupby("note", sort=False):
    holders = part.groupby("cell", sort=False).seed.agg(", ".join).to_dict()
    names = []
    for cell, numbered in holders.items():
      seed = "" if numbered == seeds[cell] else f"seed {numbered}"
      names.append(", ".join(filter(None, [str(cell), seed])))
    who = "" if holders == seeds else f"{'; '.join(names)}: "
    lines.append(f"{who}{note}")
  return lines


def remarks(results: Results) -> list[str]:
  """Writes sentences on intervals, thresholds and a paper's numbers."""
  trees = [run.settings for run in results.runs]
  counts = sorted(set(results.means.seeds))
  lines = ["One seed: no interval, so small differences tell nothing."]
  if counts != [1]:
    rivals = "run of its method" if "run" in results.axes else "row"
    lines = [
      "Mean ± half-width of the 95 % interval over"
      f" {' or '.join(map(str, counts))} seeds; bold is ahead of every other"
      f" {rivals} by more than the interval of the difference."
    ]
  if 2 in counts:
    lines.append(
      "Intervals over two seeds tell little: ± is 12.7 standard errors."
    )
  if (results.means.metric[results.means.value.notna()] == "common").any():
    rules = dict.fromkeys(tree["eval"]["threshold_rule"] for tree in trees)
    lines.append(
      f"Thresholds: {' and '.join(rules)} (the oracle's are chosen with the"
      " test labels)."
    )
  if results.means.paper.isna().all():
    return lines
  sources = dict.fromkeys(tree["paper"] for tree in trees)
  lines.append(f"In parentheses: {' and '.join(filter(None, sources))}.")
  changes = itertools.chain(*(tree.get("changed", ()) for tree in trees))
  if changed := ", ".join(dict.fromkeys(changes)):
    lines.append(f"Settings unlike the paper's: {changed}.")
  if "small" in {tree.get("scale") for tree in trees}:
    lines.append(
      "Ours is the small scale (smaller network, less data, fewer rounds):"
      " compare orders and gaps, not numbers."
    )
  return lines


def settings(results: Results) -> str:
  """Writes the settings that all runs share, folded, one a line."""
  trees = [
    flat({**run.settings, "seed": results.seeds}) for run in results.runs
  ]
  lines = [
    f"{name} = {files.printable(value)}"
    for name, value in trees[0].items()
    if all(name in tree and tree[name] == value for tree in trees)
  ]
  title = "Settings of all runs" if len(trees) > 1 else "Settings"
  block = "\n".join(["```text", *lines, "```"])
  return f"<details><summary>{title}</summary>\n\n{block}\n\n</details>"


def _headline(results: Results) -> str:
  """The label of the row that the config names, or of the first row."""
  settings = results.runs[0].settings
  key = settings.get("headline", "")
  label = settings.get("methods", {}).get(key, {}).get("label") or key
  return label if label in results.rows else results.rows[0]


def _ahead(results: Results) -> pd.DataFrame:
  """Tabulates the headline's accuracy minus that of other methods' rows.

  Rows of the headline's own method are left out: they differ in an option.
  """
  base = _headline(results)
  methods = results.methods
  lines = _accuracies(results)
  alike = lines.row.map(methods).eq(methods.get(base, ""))
  lines = lines[lines.row.eq(base) | ~alike]
  apart = numbers.differences(lines, base)
  apart["value"] *= -1
  return _differences(results, apart, [*results.axes, "row"])


def _between_runs(results: Results) -> pd.DataFrame:
  """Tabulates differences between compared folders over their common seeds."""
  parts = []
  for _, lines in _accuracies(results).groupby("row", sort=False):
    base = lines.run.iloc[0]
    apart = numbers.differences(lines, base, by="run")
    parts.append(apart.assign(run=apart.run + f" − {base}"))
  apart = pd.concat(parts, ignore_index=True)
  table = _differences(results, apart, ["row", "run"])
  counts = apart.groupby(["row", "run"]).seeds.max()
  if len(table):
    table.insert(0, "seeds", counts.loc[table.index].astype(str).to_numpy())
  return table


def _differences(
  results: Results, apart: pd.DataFrame, by: Sequence[str]
) -> pd.DataFrame:
  columns = [Column("difference", name) for name in results.ends]
  return tables.table(apart.assign(metric="difference"), columns, by)


def _accuracies(results: Results) -> pd.DataFrame:
  """The accuracies of whole rows on the first and the last test set."""
  lines = results.final
  lines = lines[(lines.metric == "accuracy") & (lines.part == "")]
  return lines[lines.set.isin(results.ends)]


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
  reached = escaped(heading(results.sets[0]))
  return f"{' or '.join(shown)} on {reached}; {tables.ABSENT}: not reached."


def _clients(results: Results) -> pd.DataFrame:
  """Tabulates the accuracy of the clients of a single cell.

  Client 7 of one seed is not client 7 of another, unless clients have names.
  """
  lines = results.numbers
  lines = lines[(lines.metric == "accuracy") & (lines.part == "")]
  lines = lines[lines.client.ne("") & lines["class"].eq("")]
  lines = lines[lines["round"].isna() & lines.set.isin(results.ends)]
  numbered = len(results.seeds) > 1 and lines.client.str.isdecimal().any()
  if results.axes or numbered:
    lines = lines.iloc[:0]
  means = numbers.over_seeds(lines.drop(columns=["round", "threshold"]))
  columns = [Column("accuracy", name) for name in results.ends]
  return tables.table(means, columns, ["client", "row"])


def _links(results: Results, folder: Path) -> Iterator[str]:
  """Links the reports of a grid's cells, or of the compared folders."""
  runs: dict[str, list[Path]] = {}
  for run in results.runs:
    runs.setdefault(run.cell, []).append(Path(run.folder))
  for cell, folders in runs.items():
    path = folders[0].parent if len(folders) > 1 else folders[0]
    yield f"[{escaped(cell)}]({_link(path / PAGE, folder)})"


def _uncounted(results: Results) -> list[str]:
  """Says where clients without test samples in a set are not counted."""
  counts = results.final[results.final.metric == "clients"]
  by_set = counts.groupby("set", sort=False).value.min()
  if by_set.nunique() < 2:
    return []
  words = ", ".join(f"{heading(str(s))} {n:g}" for s, n in by_set.items())
  return [
    "Accuracies are means over the clients that have samples in a set, of which"
    f" there are: {words}."
  ]


def _link(path: Path, folder: Path) -> str:
  relative = Path(os.path.relpath(path, folder)).as_posix()
  return urllib.parse.quote(relative)


def _bullets(lines: Iterable[str]) -> str:
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
    "offload:calibrated", "accuracy:fixed", "below:fixed", "offload:fixed",
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
