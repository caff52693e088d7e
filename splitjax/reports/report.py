"""Results of a run: gathered, written, read again.

Results are plain JSON, the same for one run and for several seeds of it:

  title, config (nested), seed, thresholds [E]
  sets [R]: names of the test sets; of a mixture its rho, as text
  notes (optional): sentences for the foot of the page, such as the hardware
  rows: a list of
    label, method, rounds
    summary: see `summarise`; of a run also forgetting, as
      `forgetting.summarise` has it, of several seeds as `late.over_seeds`
    positions (optional): [C] each label's place in the order of service,
      below 0 for one that is dominant nowhere, or null; of one seed alone
    wire: message name -> bytes per round, bytes_per_round: their sum
    server_bytes: of parameters at the server in a round
    seconds: train, compile, evaluate
    interval (seeds only): 95 % half-widths, laid out as the row itself
    pooled (seeds only): accuracy [R][..] of all seeds' clients, ascending, in
      place of summary.per_client
  learning: row label ->
    round [..], accuracy: set -> [..], loss [..]
    per_class [..][C]: of every class on the last set, as `scores.Scores` has it;
      null or none of runs of an earlier version
    interval (seeds only): half-widths of accuracy, loss and per_class

Several seeds hold `seeds` in place of `seed`, and means in place of values.
What does not exist (an exit that a method lacks, a NaN) is null. How results
of several seeds come about is `seeds`, how they look `page`, `tables`, `plots`.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from splitjax import files
from splitjax.files import plain
from splitjax.reports import formats, page, records, tables
from splitjax.types import UserError

Results = dict[str, Any]
"""The JSON tree above."""

JSON, PAGE = "report.json", "report.md"
CSV, TEX = "report.csv", "report.tex"


def write(
  workdir: str | Path, results: Results, figures: Sequence[str | Path] = ()
) -> Path:
  """Writes report.json, .md, .csv and .tex, each whole or not at all.

  Args:
    workdir: made if it is not there.
    results: of one run or of several seeds; arrays become lists, NaN null.
    figures: files that the page shows, as `plots.draw_all` returns them.

  Returns:
    The path of report.md.
  """
  folder = Path(workdir)
  folder.mkdir(parents=True, exist_ok=True)
  tree = plain(results)
  names = [Path(os.path.relpath(path, folder)).as_posix() for path in figures]
  files.write_json(folder / JSON, tree)
  write_records(folder, records.collect(tree, {}), tree["title"])
  files.write_text(folder / PAGE, page.text(tree, names))
  return folder / PAGE


def write_records(
  folder: Path,
  found: Sequence[records.Record],
  title: str,
  more: Sequence[str] = (),
) -> None:
  """Writes every number as report.csv, the main table as report.tex.

  Args:
    folder: where they go.
    found: the numbers of a run, or of a grid.
    title: caption of the table.
    more: sentences for the caption.
  """
  said = ". ".join([title or "splitjax", *records.remarks(found), *more])
  files.write_text(folder / CSV, records.as_csv(found))
  files.write_text(folder / TEX, formats.latex(tables.compare(found), said))


def read(workdir: str | Path) -> Results:
  """The results that `write` left in a workdir.

  Raises:
    UserError: there are none, or they are no JSON.
  """
  path = Path(workdir) / JSON
  try:
    return json.loads(path.read_text(encoding="utf-8"))
  except FileNotFoundError:
    raise UserError(
      f"{path} does not exist: evaluate a run in this workdir first"
    ) from None
  except json.JSONDecodeError as error:
    raise UserError(
      f"{path} is not a report ({error}): delete it and evaluate again"
    ) from None


def table(results: Results) -> str:
  """The results as plain text for a terminal, one line per row."""
  return formats.terminal(tables.main(plain(results), brief=True))
