"""Results of a run: their layout, and writing and reading them in a workdir.

Results are plain JSON, with one layout for a run and for several seeds of it:

  title, config (nested), seed, thresholds [E]
  sets [R]: names of the test sets; a mixture's name is its rho, as text
  names (one seed only): clients' names; [] if the data do not name them
  notes (optional): sentences for the end of the page, such as the hardware
  rows: a list of
    label, method, rounds
    summary: from `evaluation.summary.summarise`; its forgetting is from
      `evaluation.forgetting.summarise` for a run, and from
      `reports.forgetting.over_seeds` for several seeds
    positions (optional, one seed only): null if the order of service has no
      cycles; else [C], the position of each label in a cycle, below 0 for a
      label that is dominant at no client
    wire: message name -> bytes per round
    bytes_per_round: the sum over the messages
    server_bytes: bytes of parameters at the server in a round
    seconds: train, compile, evaluate
    cost: modelled seconds, client_joules, server_joules, grams of CO2, watts
      and watts_per_point of the training
    privacy: name of a noisy message, or "up" for all uploads together -> max
      and median epsilon over clients; missing without an account
    to_target: rounds, bytes, seconds, joules up to eval.target; null if it is
      not reached, missing without a target
    interval (seeds only): 95 % half-widths, laid out as the row itself
    pooled (seeds only): accuracy [R][..] and cost (seconds, joules, bytes, [..]
      each) of all seeds' clients, ascending; replaces summary.per_client
    by_seed (seeds only): accuracy [S][R] of each seed
  by_client: lines from `reports.by_client.chosen`
  learning: row label ->
    round [..], accuracy, weighted, std, worst_tenth: set -> [..], loss [..]
    metrics (optional): key of eval.metrics -> set -> [..]
    per_class [..][C]: accuracy of every class on the last set
    per_position (seeds only) [..][P]: accuracy by position in the order of
      service; missing without an order
    cost: bytes, modelled seconds and joules [..] up to each evaluated round;
      missing or {} without a cost model
    interval (seeds only): half-widths of the parts that are averaged

Results of several seeds hold `seeds` instead of `seed`, and means instead of
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
"""Results in the layout above."""

JSON, PAGE = "report.json", "report.md"
CSV, TEX = "report.csv", "report.tex"


def write_report(
  workdir: str | Path, results: Results, figures: Sequence[str | Path] = ()
) -> Path:
  """Writes report.json, .md, .csv and .tex, each atomically.

  Args:
    workdir: created if it does not exist.
    results: results of one run or several seeds; arrays become lists, NaN null.
    figures: PNG files that the page shows, from `plots.draw_all`.

  Returns:
    The path of report.md.
  """
  folder = Path(workdir)
  folder.mkdir(parents=True, exist_ok=True)
  tree = plain(results)
  names = [Path(os.path.relpath(path, folder)).as_posix() for path in figures]
  files.write_json(folder / JSON, tree)
  write_records(folder, records.collect(tree, {}), tree["title"])
  files.write_text(folder / PAGE, page.page_text(tree, names))
  return folder / PAGE


def write_records(
  folder: Path,
  found: Sequence[records.Record],
  title: str,
  more: Sequence[str] = (),
) -> None:
  """Writes all numbers to report.csv and the main table to report.tex.

  The table's caption has the title, `records.remarks` and the sentences `more`.
  """
  caption = ". ".join([title or "splitjax", *records.remarks(found), *more])
  files.write_text(folder / CSV, records.as_csv(found))
  files.write_text(folder / TEX, formats.latex(tables.compare(found), caption))


def read_report(workdir: str | Path) -> Results:
  """Reads the results that `write_report` wrote to a workdir.

  Raises:
    UserError: the file is missing or not valid JSON.
  """
  path = Path(workdir) / JSON
  try:
    return json.loads(path.read_bytes())
  except FileNotFoundError:
    raise UserError(
      f"{path} does not exist: evaluate a run in this workdir first"
    ) from None
  except ValueError as error:
    raise UserError(
      f"{path} is not a report ({error}): delete it and evaluate again"
    ) from None


def table(results: Results) -> str:
  """Formats the results as plain text for a terminal, one line per row."""
  return formats.terminal(tables.main(plain(results), brief=True))
