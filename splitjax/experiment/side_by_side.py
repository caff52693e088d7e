"""Finished workdirs of different configs in one table and one figure."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from splitjax.experiment import grid
from splitjax.experiment.storage import workdir as workdirs
from splitjax.registry import flat
from splitjax.reports import report
from splitjax.reports.report import Results
from splitjax.types import UserError

OWN = ("methods", "title", "paper", "seed", "system", "changed")
"""Fields that are not listed as differences: each row says its method."""


def gather(workdirs_: Sequence[str | Path]) -> Results:
  """The results of finished workdirs, laid out as those of a grid.

  A run, or one over seeds, is a cell of the name that was given; of a grid
  every cell is one. Nothing is written.

  Args:
    workdirs_: at least two, each with a report.

  Returns:
    title, fields (`run` alone), cells and missing, as `grid.run`; and
    different: field -> {run: value} where their configs differ.

  Raises:
    UserError: a folder twice, or one without a report.
  """
  names = [str(each).rstrip("/") for each in workdirs_]
  if len(names) < 2:
    raise UserError(
      f"only {names[0]} is given: name two or more, or use --workdir"
    )
  found: dict[str, Results] = {}
  for name in names:
    results = report.read(name)
    each = {name: results}
    if "cells" in results:
      cells = results["cells"]
      each = {f"{name}/{cell['name']}": cell["results"] for cell in cells}
    if twice := [run for run in each if run in found]:
      raise UserError(f"{twice[0]} is given twice: name different workdirs")
    found |= each
  titles = dict.fromkeys(each["title"] for each in found.values())
  return {
    "title": " | ".join(titles),
    "fields": ["run"],
    "cells": [
      {"name": name, "values": {"run": name}, "results": each}
      for name, each in found.items()
    ],
    "missing": [],
    "different": _different(found),
  }


def write(whole: Results, place: str | Path) -> Path:
  """Writes the report of `gather` to a folder of its own; returns its page.

  Raises:
    UserError: the folder holds a run or a grid.
  """
  place = Path(place)
  if grid.is_grid(place) or (place / workdirs.CONFIG).exists():
    raise UserError(
      f"--workdir={place} holds a run: choose another folder for the report"
    )
  place.mkdir(parents=True, exist_ok=True)
  lines = [
    f"{field}: " + ", ".join(f"{value} ({run})" for run, value in each.items())
    for field, each in whole["different"].items()
  ]
  links = [os.path.relpath(cell["name"], place) for cell in whole["cells"]]
  return grid.write(whole, place, links, [f"differs, {line}" for line in lines])


def _different(found: dict[str, Results]) -> dict[str, dict[str, Any]]:
  """Field -> {run: value} of the fields whose values are not all the same."""
  every = {
    name: flat({k: v for k, v in each["config"].items() if k not in OWN})
    for name, each in found.items()
  }
  fields = dict.fromkeys(field for one in every.values() for field in one)
  values = {
    field: {name: one.get(field) for name, one in every.items()}
    for field in fields
  }
  return {
    field: each
    for field, each in values.items()
    if any(value != next(iter(each.values())) for value in each.values())
  }
