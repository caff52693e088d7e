"""Results of a run: written to and read from a workdir.

Results are plain JSON, with one layout for a run and for several seeds of it:

  title, config (nested), seed, thresholds [E]
  sets [R]: names of the test sets; of a mixture its rho, as text
  names (one seed only): of the clients; [] where the data do not name them
  notes (optional): sentences for the end of the page, such as the hardware
  rows: a list of
    label, method, rounds
    summary: as of `evaluation.summary.summarise`, and forgetting: of a run as
      of `evaluation.forgetting.summarise`, of several seeds as of
      `reports.forgetting.over_seeds`; leakage (optional): attack key ->
      attack, units, mean, depth, see `reports.leakage`
    positions (optional, one seed only): [C] position of each label in the
      order of service, below 0 for a label that is dominant nowhere, or null
    wire: message name -> bytes per round, bytes_per_round: their sum
    server_bytes: of parameters at the server in a round
    seconds: train, compile, evaluate
    cost: modelled seconds, client_joules, server_joules, grams of CO2, watts
      and watts_per_point of the training
    privacy: message name with noise -> max and median epsilon over clients,
      "up" for all that go up together; missing without an account
    to_target: rounds, bytes, seconds, joules up to eval.target; null if it was
      not reached, missing without one
    interval (seeds only): 95 % half-widths, laid out as the row itself
    pooled (seeds only): accuracy [R][..] and cost (seconds, joules, bytes, [..]
      each) of all seeds' clients, ascending, in place of summary.per_client
    by_seed (seeds only): accuracy [S][R] of each seed
  by_client: lines as of `reports.by_client.chosen`
  learning: row label ->
    round [..], accuracy and weighted: set -> [..], loss [..]
    per_class [..][C]: of every class on the last set; null or missing in runs
      of an earlier version
    per_position (seeds only) [..][P]: by position in the order of service;
      missing without one
    cost: bytes, modelled seconds and joules [..] up to each evaluated round;
      missing or {} without
    interval (seeds only): half-widths of accuracy, loss, per_class,
      per_position and cost

Results of several seeds hold `seeds` in place of `seed`, and means in place of
values. A value that does not exist (an exit that a method lacks, NaN) is null.
`over_seeds` combines seeds; `page`, `tables` and `figures` present results.
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
  """Writes report.json, .md, .csv and .tex, each atomically.

  Args:
    workdir: made if it does not exist.
    results: of one run or of several seeds; arrays become lists, NaN null.
    figures: PNG files that the page shows, as of `plots.draw_all`.

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
  """Writes all numbers to report.csv and the main table to report.tex.

  The caption is the title, `records.remarks` and the sentences of `more`.
  """
  caption = ". ".join([title or "splitjax", *records.remarks(found), *more])
  files.write_text(folder / CSV, records.as_csv(found))
  files.write_text(folder / TEX, formats.latex(tables.compare(found), caption))


def read(workdir: str | Path) -> Results:
  """The results that `write` wrote to a workdir.

  Raises:
    UserError: the file is missing or not valid JSON.
  """
  path = Path(workdir) / JSON
  try:
    return json.loads(files.read_bytes(path))
  except FileNotFoundError:
    raise UserError(
      f"{path} does not exist: evaluate a run in this workdir first"
    ) from None
  except (ValueError, RecursionError) as error:
    raise UserError(
      f"{path} is not a report ({error}): delete it and evaluate again"
    ) from None


def table(results: Results) -> str:
  """The results as plain text for a terminal, one line per row."""
  return formats.terminal(tables.main(plain(results), brief=True))
