"""Writes the tables of the pages in docs/results/ from the committed numbers.

  python -m docs.tables

Between `<!-- table NAME -->` and `<!-- end -->` a page holds what `render`
makes of docs/results/NAME/report.csv. A test compares.
"""

import fnmatch
import re
from pathlib import Path

import pandas as pd

from splitjax.reports import numbers, quantities, tables
from splitjax.reports.tables import Column

DOCS = Path(__file__).parent
MARKED = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
LINE = ("row", "metric", "part", "set", *numbers.MEANS)

FORGETTING = [
  Column(metric, "global", head=head, digits=1)
  for head, metric in (
    ("accuracy", "late_accuracy"),
    ("performance gap", "gap"),
    ("backward transfer", "backward"),
  )
]
"""The columns of Hydra's tables."""

BY_RHO = [
  Column("accuracy", rho, head=quantities.heading(rho), digits=1)
  for rho in ("0.0", "0.8")
]
"""The columns of other tables that docs/results/columns.csv does not name."""

NAMES = {
  "data.partition.alpha": "α",
  "faults.server_down": "server down",
  "order.name": "order",
  "num_clients": "clients",
  "backbone.depths": "depth",
  "entry.shared": "one trunk",
  "wire.features.form": "features",
}
"""Field that names a cell -> its heading; others have their last word."""


def render(name: str) -> str:
  """Makes a table of a committed report, in Markdown.

  A cell is ours, mean ± half-width of the 95 % interval, and the paper's number
  in parentheses.
  """
  means = means_of(name)
  columns = _columns(name)
  by = [*numbers.axes(means), "row"]
  for each in columns:
    if each.lines(means).value.isna().all():
      raise KeyError(f"{name}: no row has the column {each.head}")
  table = tables.table(means, columns, by)
  table = table.replace(r"\*\*", "", regex=True)
  table.index.names = [
    NAMES.get(field, head)
    for field, head in zip(by, table.index.names, strict=True)
  ]
  return tables.markdown(table) + "\n"


def _columns(name: str) -> list[Column]:
  """The columns of a table."""
  path = DOCS / "results" / "columns.csv"
  table = pd.read_csv(path, keep_default_na=False, dtype={"set": "str"})
  lines = table[[fnmatch.fnmatch(name, x) for x in table.tables]]
  if lines.empty:
    return FORGETTING if name.startswith("hydra") else BY_RHO
  return [
    Column(line.metric, line.set, head=line.head, digits=int(line.digits))
    for line in lines.itertuples()
  ]


def means_of(name: str) -> pd.DataFrame:
  """The numbers of a report; rows that NAME_again has are of that."""
  folder = DOCS / "results"
  means = numbers.read(folder / name / "report.csv", LINE)
  order = list(dict.fromkeys(means.row))
  again = folder / f"{name}_again" / "report.csv"
  if again.exists():
    later = numbers.read(again, LINE)
    means = pd.concat([means[~means.row.isin(later.row)], later])
    means = means.sort_values(
      "row", key=lambda rows: rows.map(order.index), kind="stable"
    )
  return means.reset_index(drop=True)


def filled(page: str) -> str:
  """A page with every marked table written anew."""
  return MARKED.sub(lambda m: m[1] + "\n" + render(m[2]) + "\n" + m[3], page)


if __name__ == "__main__":
  for page in (DOCS / "results").glob("*.md"):
    page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
