"""Results and reports of folders, from the stored numbers of finished methods.

Nothing is trained or evaluated, so no config file and no data are needed.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from splitjax import files
from splitjax.evaluation import MEASUREMENTS
from splitjax.experiment import machine, workdirs
from splitjax.experiment.summary import PICTURES
from splitjax.experiment.workdirs import About
from splitjax.reports import numbers, page, results
from splitjax.reports.results import NONE, Results, Run
from splitjax.types import UserError

Figures = Literal["none", "report", "all"]
"""Which reports get figures: none; the one that is asked for; or, in training,
also those of the seeds of a run and of the cells of a grid."""


def report_again(
  workdir: str | Path, *, figures: Figures = "report"
) -> Results:
  """Writes the report of a folder again, without running anything.

  Args:
    workdir: the folder of a run, of its seeds, of a grid, or of an evaluation
      in one of them.
    figures: whether it gets figures.

  Returns:
    The results; without numbers in a process that is not the first.

  Raises:
    UserError: no method is finished, or a stored file is damaged.

  Example:
    >>> import splitjax
    >>> results = splitjax.report_again("runs/first")
    >>> results.rows
    ['splitgp']
  """
  folder = files.expanded(workdir)
  if not machine.is_first_process():
    return NONE
  collected = collect(folder)
  with workdirs.held(_split(folder)[0]):
    write(collected, folder, figures)
  return collected


def write(
  collected: Results, folder: Path, figures: Figures = "report"
) -> Path:
  """Writes tables, then figures, then the page of results; returns the page."""
  folder.mkdir(parents=True, exist_ok=True)
  page.write(collected, folder)
  drawn = [] if figures == "none" else _draw(collected, folder)
  return page.write_page(collected, folder, drawn)


def _draw(collected: Results, folder: Path) -> list[Path]:
  """Draws results, and unless there are cells what the first run measured."""
  from splitjax.reports.figures import attempt, draw, maps  # imports matplotlib

  drawn = list(draw(collected, folder))
  if collected.axes:
    return drawn
  run = collected.runs[0]
  source = Path(run.folder, _split(folder)[1])
  of = f"{run.settings['data']['name']}, seed {run.settings['seed']}"

  def stored(path: Path, module: Any, label: str) -> Any:
    if path.exists():
      return module.picture(files.read_arrays(path), label, of, maps)

  for name, module in MEASUREMENTS.items():
    for key, spec in run.settings["methods"].items():
      path = workdirs.folder(source, key) / f"{name}.npz"
      label = spec.get("label") or key
      into = folder / f"{name}_{key}.png"
      drawn += attempt(into, stored, path, module, label)
  # Its training has drawn the clients, and the inside of a round.
  drawn += filter(Path.exists, map(folder.joinpath, PICTURES))
  return [*drawn, *sorted(source.glob("inside_*.png"))]


def collect(*folders: str | Path) -> Results:
  """Reads the numbers of a run, of its seeds, of a grid or of an evaluation.

  Several folders are one table, with the folder as the column "run". A field
  that one of them sweeps is a column, too; the others have their config's
  value.

  Raises:
    UserError: no method of a folder is finished, a stored file is damaged, or a
      run is named twice.
  """
  parts = dict[Path, Results]()
  values = list[Mapping[str, Any]]()
  remarks = list[str]()
  for name in map(str, folders):
    workdir, into = _split(files.expanded(name))
    column = {"run": name.rstrip("/")} if len(folders) > 1 else {}
    count = len(parts)
    for runs, cell in workdirs.runs_of(workdir):
      finished = {run: workdirs.finished(run, into) for run in runs}
      # A mean over seeds is of equally many rounds.
      most = Counter[str]()
      for abouts in finished.values():
        most |= Counter({key: about.rounds for key, about in abouts.items()})
      for run, abouts in finished.items():
        if run.resolve() in parts:
          raise UserError(f"{run} is given twice: name different folders")
        if part := _of_run(run, into, abouts, most, remarks):
          parts[run.resolve()] = part
          values.append(column | cell)
    if len(parts) == count:
      raise UserError(f"--workdir={name}: no method is finished yet")
  title = " | ".join(dict.fromkeys(part.title for part in parts.values()))
  return results.gather(title, list(parts.values()), values, remarks)


def _split(folder: Path) -> tuple[Path, str]:
  """Splits the folder of an evaluation into the run's and its name there."""
  if workdirs.kind_of(folder.parent) and not workdirs.kind_of(folder):
    return folder.parent, folder.name
  return folder, ""


def _of_run(
  run: Path,
  into: str,
  finished: Mapping[str, About],
  most: Mapping[str, int],
  remarks: list[str],
) -> Results | None:
  """Reads a run's finished methods of the `most` rounds; None if it has none.

  What is left out becomes a remark.
  """
  if workdirs.kind_of(run) != "run":
    remarks.append(f"not finished: {run}")
    return None
  settings = workdirs.read_run(run)["config"]
  methods = settings.pop("methods")
  settings["methods"] = {}
  tables = list[pd.DataFrame]()
  notes = list[str]()
  rows = dict[str, str]()
  for key, spec in methods.items():
    about = finished.get(key)
    if about is None or about.rounds < most[key]:
      part = f", {about.rounds} of {most[key]} rounds" if about else ""
      remarks.append(f"not finished: {run} {key}{part}")
      continue
    # Stored rows begin with the method's key; its label may be corrected.
    label = spec.get("label") or key
    labels = {row: label + row.removeprefix(key) for row in about.methods}
    table = numbers.read(workdirs.folder(run / into, key))
    tables.append(table.assign(row=table.row.map(labels)))
    rows |= {labels[row]: name for row, name in about.methods.items()}
    settings["methods"][key] = spec
    settings |= about.evaluated
    if about.rounds < settings["rounds"]:
      notes.append(
        f"{label} was trained for {about.rounds} of {settings['rounds']} rounds"
        " until now: do not compare it with rows of more rounds."
      )
    notes += [*about.notes, *about.tests]
  if not tables:
    return None
  notes = list(dict.fromkeys(notes))
  table = pd.concat(tables, ignore_index=True)
  about_run = Run({}, settings, rows, notes=tuple(notes), folder=str(run))
  title = settings["title"] or "splitjax"
  return Results(title, numbers=table, runs=(about_run,))
