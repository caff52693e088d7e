"""The report over the cells of a grid: numbers, figures and a page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from splitjax import files
from splitjax.reports import (
  by_seed,
  costs,
  page,
  privacy,
  records,
  report,
  tables,
)
from splitjax.reports.figures import grid
from splitjax.reports.formats import markdown
from splitjax.reports.report import Results
from splitjax.reports.results import folded, told


def write_grid(
  whole: Results, place: Path, links: Sequence[str], left: list[str]
) -> Path:
  """Writes numbers, figures and the page that shows them; returns the page.

  Args:
    whole: a dict of "title", "fields", "cells" and "missing". Each cell is a
      dict of "name", "values" and "results".
    place: an existing folder.
    links: the path of each cell's report, relative to `place`.
    left: further sentences to print below the table.
  """
  files.write_json(place / report.JSON, files.plain(whole))
  numbers = collect(whole)
  report.write_records(place, numbers, whole["title"], left)
  drawn = [path.name for path in grid.draw_grid(whole, place)]
  text = _page(whole, numbers, left, links, drawn)
  files.write_text(place / report.PAGE, text)
  return place / report.PAGE


def collect(whole: Results) -> list[records.Record]:
  """Returns every number of a grid, and means over data sets, as records."""
  found = [
    record
    for cell in whole["cells"]
    for record in records.collect(cell["results"], cell["values"])
  ]
  return found + by_seed.over_data_sets(whole["cells"], found)


def _page(
  whole: Results,
  numbers: Sequence[records.Record],
  left: list[str],
  links: Sequence[str],
  drawn: list[str],
) -> str:
  """Returns the text of the grid's report.md."""
  cells = whole["cells"]
  trees = [cell["results"] for cell in cells]
  notes = told(
    {cell["name"]: cell["results"].get("notes", ()) for cell in cells}
  )
  remarks = [*records.remarks(numbers), *left, *notes]
  each = (
    f"- [{cell['name']}]({link}/{report.PAGE})"
    for cell, link in zip(cells, links, strict=True)
  )
  parts = [
    f"# {whole['title'] or 'splitjax'}",
    folded(trees),
    markdown(tables.compare(numbers)),
    "\n".join(f"- {remark}" for remark in remarks),
    *sections(cells, numbers),
    *map(page.figure, drawn),
    "## Each cell",
    "\n".join(each),
  ]
  return "\n\n".join(parts) + "\n"


def sections(
  cells: Sequence[dict[str, Any]], found: Sequence[records.Record]
) -> list[str]:
  """Writes the sections below the first table, from cells and their records."""
  trees = [cell["results"] for cell in cells]
  noise = tables.section("Privacy", found, [tables.column("epsilon")])
  noise += [privacy.words_of_grid(trees)] if noise else []
  pairs = [(cell["values"], cell["results"]) for cell in cells]
  apart = by_seed.differences(pairs) if "run" in cells[0]["values"] else None
  paired = ["## Differences, seed by seed", by_seed.PAIRED]
  return [
    *by_seed.gains(found),
    *([*paired, markdown(apart)] if apart else []),
    *by_seed.seed_section(pairs),
    *costs.of_grid(found),
    *noise,
  ]
