"""Draws the committed figures anew from the committed reports.

  python docs/figures.py [NAME ...]

Of docs/results/NAME, without a name of all. A report.csv holds what accuracy
over ρ or over a grid's field, against the performance gap, and changes by cell
need, with the intervals and without the dots of seeds; report.md says which
method has which label. Other figures need the run: `--mode=report` draws all
figures of a workdir anew.
"""

import ast
import csv
import re
import sys
from pathlib import Path
from typing import Any

from PIL import Image

from splitjax.reports.figures import forgetting, grid, plots, style
from splitjax.reports.tables import text

RESULTS = Path(__file__).parent / "results"
METHOD = re.compile(r"^- `\w+`: name `(\w+)` · label `([^`]+)`", re.MULTILINE)
DATA = re.compile(r"data\.name `(\w+)`")
TITLES = {"Fashion-MNIST": "fashion_mnist", "CIFAR-10": "cifar10"}
"""A data set in a title -> its name, for reports without settings."""

MOST_BYTES = 150_000
"""Larger PNG files are written again in 128 colours, at most 1,280 wide."""

Cells = list[tuple[dict[str, Any], dict[str, Any]]]
"""Pairs of field -> value and results, one of a run."""


def cells(name: str) -> Cells:
  """Results as far as docs/results/NAME/report.csv and report.md have them."""
  page = (RESULTS / name / "report.md").read_text(encoding="utf-8")
  with (RESULTS / name / "report.csv").open(encoding="utf-8") as file:
    lines = list(csv.DictReader(file))
  fields = list(lines[0])[: list(lines[0]).index("row")]
  by_cell: dict[tuple[str, ...], list[dict[str, str]]] = {}
  for line in lines:
    by_cell.setdefault(tuple(line[f] for f in fields), []).append(line)
  title = page.splitlines()[0].removeprefix("# ")
  named = [TITLES[x] for x in TITLES if x in title]
  config = {
    "data": {"name": (DATA.findall(page) or named)[0]},
    "scale": "" if name == "quickstart" else "small",
  }
  methods = _methods(name, page)
  return [
    (
      dict(zip(fields, map(_value, values), strict=True)),
      {"config": config, **_results(mine, methods)},
    )
    for values, mine in by_cell.items()
  ]


def _methods(name: str, page: str) -> dict[str, str]:
  """Label -> method, of this page; without settings of the paper's others."""
  known = METHOD.findall(page)
  if not known:
    same = sorted(RESULTS.glob(f"{name.split('_')[0]}_*/report.md"))
    texts = [path.read_text(encoding="utf-8") for path in same]
    known = [pair for each in texts for pair in METHOD.findall(each)]
  return {label: method for method, label in known}


def _method(label: str, methods: dict[str, str]) -> str:
  """The method of a row: its label begins with that of a method."""
  begun = [known for known in methods if label.startswith(known)]
  return methods[max(begun, key=len)] if begun else label


def _value(cell: str) -> Any:
  """A grid's value as the CSV has it: a number, a list or text."""
  try:
    return ast.literal_eval(cell)
  except (SyntaxError, ValueError):
    return cell


def _results(
  lines: list[dict[str, str]], methods: dict[str, str]
) -> dict[str, Any]:
  """The lines of a cell in the layout of `splitjax.reports.report`."""
  rows: dict[str, dict[str, Any]] = {}

  sets = [x["set"] for x in lines if x["metric"] == "accuracy"]
  sets = list(dict.fromkeys(sets))
  for line in lines:
    label = line["row"]
    row = rows.setdefault(
      label,
      {
        "label": label,
        "method": _method(label, methods),
        "summary": {"fixed": None},
        "interval": {"summary": {}},
      },
    )
    for part, number in (
      (row["summary"], line["value"]),
      (row["interval"]["summary"], line["half"]),
    ):
      _put(part, line, float(number) if number else None)
  seeds = list(range(int(lines[0]["seeds"])))
  return {"seeds": seeds, "sets": sets, "rows": list(rows.values())}


def _put(part: dict[str, Any], line: dict[str, str], number: float | None):
  """Puts a number to where figures look for it in a summary."""
  metric, key = line["metric"], line["metric"].removeprefix("late_")
  if metric == "accuracy":
    part.setdefault("accuracy", []).append(number)
  elif metric in ("late_accuracy", "gap"):
    part.setdefault("forgetting", {})[key] = number


def draw(name: str) -> list[Path]:
  """Draws the figures of a report that its CSV has the numbers for."""
  known = cells(name)
  results = known[0][1]
  named = [(", ".join(map(text, values.values())), r) for values, r in known]
  whole = {
    "fields": list(known[0][0]),
    "cells": [{"values": values, "results": r} for values, r in known],
  }
  drawn = []
  for path in sorted((RESULTS / name).glob("[ac]*_*.png")):
    if path.stem == "accuracy_over_rho":
      figure = plots.accuracy_over_rho(results)
    elif path.stem == "accuracy_gap":
      figure = forgetting.against_gap(named)
    elif path.stem == "change_by_cell":
      figure = grid.changes(named)
    elif path.stem == f"accuracy_over_{grid.varied(whole).split('.')[-1]}":
      figure = grid.over_axis(whole)
    else:
      continue
    drawn.append(style.save(figure, path))
    path.with_suffix(".pdf").unlink()
  for path in (RESULTS / name).glob("*.png"):
    if path.stat().st_size > MOST_BYTES:
      picture = Image.open(path).convert("RGB")
      picture.thumbnail((1280, 2000), Image.Resampling.LANCZOS)
      # Other ways of choosing colours merge those of methods and classes.
      flat = picture.quantize(
        128, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
      )
      flat.save(path, optimize=True)
  return drawn


if __name__ == "__main__":
  every = [path.parent.name for path in sorted(RESULTS.glob("*/report.csv"))]
  for path in (path for name in sys.argv[1:] or every for path in draw(name)):
    print(path.relative_to(RESULTS))
