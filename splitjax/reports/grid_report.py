"""The report over the cells of a grid: numbers, figures and a page."""

from collections.abc import Sequence
from pathlib import Path

from splitjax import files
from splitjax.reports import (
  by_seed,
  formats,
  page,
  records,
  report,
  settings,
  tables,
)
from splitjax.reports.figures import grid
from splitjax.reports.report import Results
from splitjax.reports.results import told


def write(
  whole: Results, place: Path, links: Sequence[str], left: list[str]
) -> Path:
  """Writes numbers, figures and the page that shows them; returns the page.

  Args:
    whole: title, fields, cells (name, values and results of each) and missing.
    place: an existing folder.
    links: the path of each cell's report, relative to `place`.
    left: further sentences to print below the table.
  """
  files.write_json(place / report.JSON, files.plain(whole))
  report.write_records(place, collect(whole), whole["title"], left)
  drawn = [path.name for path in grid.draw(whole, place)]
  files.write_text(place / report.PAGE, _page(whole, left, links, drawn))
  return place / report.PAGE


def collect(whole: Results) -> list[records.Record]:
  """Returns every number of a grid as records."""
  found = [
    record
    for cell in whole["cells"]
    for record in records.collect(cell["results"], cell["values"])
  ]
  return found + by_seed.over_data_sets(whole["cells"], found)


def _page(
  whole: Results, left: list[str], links: Sequence[str], drawn: list[str]
) -> str:
  """Returns the text of the grid's report.md."""
  names = [cell["name"] for cell in whole["cells"]]
  numbers = collect(whole)
  trees = [cell["results"] for cell in whole["cells"]]
  notes = told(
    {cell["name"]: cell["results"].get("notes", ()) for cell in whole["cells"]}
  )
  remarks = [*records.remarks(numbers), *left, *notes]
  parts = [
    f"# {whole['title'] or 'splitjax'}",
    settings.folded(trees),
    formats.markdown(tables.compare(numbers)),
    "\n".join(f"- {remark}" for remark in remarks),
    *page.of_grid(whole["cells"], numbers),
    *map(page.figure, drawn),
    "## Each cell",
    "\n".join(
      f"- [{name}]({link}/{report.PAGE})"
      for name, link in zip(names, links, strict=True)
    ),
  ]
  return "\n\n".join(parts) + "\n"
