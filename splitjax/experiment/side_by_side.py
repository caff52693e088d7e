"""Finished workdirs of different configs in one table and one figure."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from splitjax.experiment import grid
from splitjax.experiment.storage import workdirs
from splitjax.registry import flat
from splitjax.reports import by_seed, formats, grid_report, report, tables
from splitjax.reports.report import Results
from splitjax.types import UserError

OWN = ("title", "paper", "seed", "system", "changed")
"""Fields that are not listed as differences."""


def compare(runs: Sequence[str | Path], place: str | Path | None = None) -> str:
  """Formats a table of finished workdirs; writes a report if `place` is given.

  Raises:
    UserError: see `gather` and `write_grid`.
  """
  whole = gather(runs)
  if place is None:
    last = "--workdir=FOLDER writes it as a report with a figure"
  else:
    last = f"report   {write(whole, place)}"
  return f"{text(whole)}\n{last}"


def gather(workdirs_: Sequence[str | Path]) -> Results:
  """Gathers the results of finished workdirs in the layout of a grid's results.

  A run, of one or several seeds, becomes a cell named by its workdir; every
  cell of a grid becomes a cell. Nothing is written.

  Args:
    workdirs_: at least two, each with a report.

  Returns:
    The entries "title", "fields", "cells" and "missing" of `grid.run_grid`'s
    results, with "run" as the only field. "different" maps each field in which
    configs differ to {run: value}. The entry "cell" of a cell is its name in
    the grid that it comes from, or "" for a run.

  Raises:
    UserError: a folder is given twice or has no report.
  """
  names = [str(each).rstrip("/") for each in workdirs_]
  if len(names) < 2:
    raise UserError(
      f"only {names[0]} is given: name two or more, or leave --workdir out"
    )
  found: dict[str, Results] = {}
  own, missing = dict[str, str](), list[str]()
  for name in names:
    results = _read(name)
    each = {name: results}
    if "cells" in results:
      cells = results["cells"]
      each = {f"{name}/{cell['name']}": cell["results"] for cell in cells}
      own |= {f"{name}/{cell['name']}": cell["name"] for cell in cells}
      missing += [f"{name}/{place}" for place in results["missing"]]
    else:
      methods = results["config"]["methods"]
      left = workdirs.unfinished(Path(name), methods, results.get("seeds"))
      missing += [f"{name} {place}".strip() for place in left]
    known = {Path(run).resolve() for run in found}
    if twice := [run for run in each if Path(run).resolve() in known]:
      raise UserError(f"{twice[0]} is given twice: name different workdirs")
    found |= each
  titles = dict.fromkeys(each["title"] for each in found.values())
  return {
    "title": " | ".join(titles),
    "fields": ["run"],
    "cells": [
      {
        "name": name,
        "cell": own.get(name, ""),
        "values": {"run": name},
        "results": each,
      }
      for name, each in found.items()
    ],
    "missing": missing,
    "different": _different(found),
  }


def _read(name: str) -> Results:
  """Reads a run's or a grid's report; raises UserError if `name` has none."""
  remedy = "finish its training, or write its report with --workdir first"
  if not (Path(name) / report.JSON).exists():
    raise UserError(f"{name} has no report: {remedy}")
  results = report.read_report(name)
  if not isinstance(results, dict) or not {"title"} < results.keys():
    raise UserError(f"{name}/{report.JSON} is no report of this program")
  if results.get("fields") == ["run"]:
    raise UserError(f"{name} is a report over workdirs: name those themselves")
  return results


def text(whole: Results) -> str:
  """Formats `gather`'s results as a table, and their differences as another."""
  table = formats.terminal(tables.compare(grid_report.collect(whole)))
  pairs = [(each["values"], each["results"]) for each in whole["cells"]]
  if apart := by_seed.differences(pairs):
    table += f"\n\nseed by seed, in points:\n{formats.terminal(apart)}"
  return table


def write(whole: Results, place: str | Path) -> Path:
  """Writes a report on `gather`'s results to a folder; returns its page.

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
  lines = [f"differs, {line}" for line in lines]
  lines += [f"not finished: {each}" for each in whole["missing"]]
  links = [os.path.relpath(cell["name"], place) for cell in whole["cells"]]
  return grid_report.write_grid(whole, place, links, lines)


def _different(found: dict[str, Results]) -> dict[str, dict[str, Any]]:
  """Maps each field that differs between runs to {run: value}."""
  every = {
    name: {"seed": each.get("seeds", each.get("seed"))}
    | flat({k: v for k, v in each["config"].items() if k not in OWN})
    for name, each in found.items()
  }
  # Compare only methods that all runs have; each row names its method.
  keys = [set(each["config"]["methods"]) for each in found.values()]
  common = set.intersection(*keys)
  fields = dict.fromkeys(
    field
    for one in every.values()
    for field in one
    if not field.startswith("methods.") or field.split(".")[1] in common
  )
  values = {
    field: {name: one.get(field) for name, one in every.items()}
    for field in fields
  }
  return {
    field: each
    for field, each in values.items()
    if any(value != next(iter(each.values())) for value in each.values())
  }
