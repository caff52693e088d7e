"""Results from the stored numbers of finished methods, and their reports.

`collect` makes the results of a run, of its seeds or of a grid, and `compare`
those of several folders; `report` writes what they show. Nothing is trained or
evaluated, so no config file and no data are needed.
"""

import contextlib
import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

import pandas as pd

from splitjax import files, target
from splitjax.config.tree import flat
from splitjax.evaluation import measurements
from splitjax.experiment import claims, workdirs
from splitjax.experiment.summary import PICTURES
from splitjax.experiment.workdirs import About, Unfinished
from splitjax.reports import numbers, page, results
from splitjax.reports.results import Results, Run, Settings
from splitjax.types import UserError

Figures = Literal["none", "report", "all"]
"""Which reports get figures: none; the one that is asked for; or also those of
the seeds of a run and of the cells of a grid."""

UNLISTED = ("title", "paper", "seed", "system", "changed")
"""Fields that are not listed as differences between folders."""


def report_again(
  workdir: str | Path, *, figures: Figures = "report"
) -> Results:
  """Writes the reports of a folder again, without running anything.

  Args:
    workdir: the folder of a run, of its seeds, of a grid, or of an evaluation
      in one of them.
    figures: which reports get figures.

  Returns:
    The results.

  Raises:
    Unfinished: no method is finished.
    UserError: a stored file is damaged.

  Example:
    >>> import splitjax
    >>> results = splitjax.report_again("runs/first")
    >>> results.rows
    ['splitgp']
  """
  folder, into = _evaluated(files.expanded(workdir))
  return report(folder, into, figures=figures)


def report(
  folder: Path,
  into: str = "",
  *,
  only: Collection[str] | None = None,
  parts: bool = True,
  figures: Figures = "report",
) -> Results:
  """Writes the report of a folder, and those of its seeds or cells.

  Args:
    folder: the folder of a run, of its seeds, or of a grid.
    into: "evaluate" for the numbers of an evaluation, which are there.
    only: names of a grid's cells; None: all.
    parts: whether the reports of seeds and cells are written, too.
    figures: which reports get figures.
  """
  found = _collect(folder, into, only)
  with claims.held(folder):
    _write_all(found, folder, into, only, parts=parts, figures=figures)
  return found


def _write_all(
  found: Results,
  folder: Path,
  into: str,
  only: Collection[str] | None,
  *,
  parts: bool,
  figures: Figures,
) -> None:
  """Writes the reports of a folder, see `report`."""
  inner: Figures = "all" if figures == "all" else "none"
  for part in _parts(folder, only) if parts else ():
    with contextlib.suppress(Unfinished):
      report(part, into, figures=inner)
  write(found, folder / into, into, figures)


def write(
  found: Results, folder: Path, into: str = "", figures: Figures = "report"
) -> Path:
  """Writes tables, figures and the page of results; returns the page.

  The tables are written before anything is drawn. The measurements of the first
  run are drawn, unless there are several cells.

  Args:
    found: the results.
    folder: the folder; it is made.
    into: "evaluate" for the numbers of an evaluation.
    figures: "none" draws nothing.
  """
  folder.mkdir(parents=True, exist_ok=True)
  page.write(found, folder)
  path = page.write_page(found, folder)
  if figures == "none":
    return path
  from splitjax.reports.figures import draw  # imports matplotlib

  drawn = draw(found, folder)
  run = found.runs[0]
  if all(other.keys == run.keys for other in found.runs):
    source = Path(run.folder) / into
    drawn += pictures(source, run.settings, folder)
    inside = [f"inside_{key}.png" for key in run.settings["methods"]]
    names = [*PICTURES, *inside]
    for place in dict.fromkeys((folder, source)):
      drawn += [place / name for name in names if (place / name).exists()]
  return page.write_page(found, folder, drawn)


def pictures(source: Path, settings: Settings, folder: Path) -> list[Path]:
  """Draws the stored arrays of each method of a run; returns the PNG files.

  Args:
    source: the folder of the run or of its evaluation.
    settings: the run's config.
    folder: where the figures are written.

  Raises:
    UserError: a file is damaged.
  """
  from splitjax.reports.figures import attempt, maps  # imports matplotlib

  written = []
  of = f"{settings['data']['name']}, seed {settings['seed']}"
  for name, module in measurements.drawn().items():
    for key, spec in settings["methods"].items():
      path = workdirs.folder(source, key) / f"{name}.npz"
      if not path.exists():
        continue
      try:
        arrays = files.read_arrays(path)
      except (OSError, ValueError) as error:
        raise UserError(
          f"{path} is damaged ({error}): delete it, and the report leaves it"
          " out"
        ) from None
      label = spec.get("label") or key
      make = functools.partial(module.picture, arrays, label, of, maps)
      written += attempt(folder / f"{name}_{key}.png", make)
  return written


def drawn_names(keys: Collection[str]) -> list[str]:
  """Returns the names of all figures that a run of these methods can have."""
  from splitjax.reports.figures import FIGURES  # imports matplotlib

  kinds = *measurements.drawn(), "inside"
  names = [*FIGURES, *(f"{kind}_{key}" for kind in kinds for key in keys)]
  return [*PICTURES, *(f"{name}.png" for name in names)]


def collect(folder: str | Path) -> Results:
  """Reads the numbers of a run, of its seeds, of a grid or of an evaluation.

  Raises:
    Unfinished: no method is finished.
    UserError: a stored file is damaged.
  """
  return _collect(*_evaluated(files.expanded(folder)))


def _evaluated(folder: Path) -> tuple[Path, str]:
  """Splits the folder of an evaluation into the run's and its name there."""
  parent = folder.parent
  inside = workdirs.is_grid(parent) or workdirs.is_run(parent)
  if inside and folder.name == workdirs.EVALUATED:
    return parent, folder.name
  return folder, ""


def _collect(
  folder: Path, into: str = "", only: Collection[str] | None = None
) -> Results:
  if workdirs.is_grid(folder):
    return _of_grid(folder, into, only)
  if workdirs.is_over_seeds(folder):
    return _of_seeds(folder, into)
  return _of_run(folder, into)


def _of_run(
  folder: Path, into: str, keys: Collection[str] | None = None
) -> Results:
  """Collects the finished methods of a run, or those of them in `keys`."""
  settings = workdirs.read_run(folder)["config"]
  keys = settings["methods"] if keys is None else keys
  stored = {key: workdirs.read_about(folder / into, key) for key in keys}
  about = {key: each for key, each in stored.items() if each is not None}
  if not about:
    raise Unfinished(f"--workdir={folder}: no method is finished yet")
  methods = {key: settings["methods"][key] for key in about}
  settings = {**settings, "methods": methods}
  for each in about.values():
    settings |= each.evaluated
  tables, methods_of_rows = [], dict[str, str]()
  for key, each in about.items():
    # Stored rows begin with the method's key; its label may be corrected.
    label = settings["methods"][key].get("label") or key
    rows = {row: label + row.removeprefix(key) for row in each.methods}
    table = numbers.read(workdirs.folder(folder / into, key))
    tables.append(table.assign(row=table.row.map(rows)))
    methods_of_rows |= {rows[row]: x for row, x in each.methods.items()}
  left = workdirs.unfinished(folder, stored, None) if not into else []
  run = Run(
    folder=str(folder),
    keys={},
    settings=settings,
    methods=methods_of_rows,
    notes=tuple(_notes(settings, about)),
  )
  return Results(
    title=settings["title"] or "splitjax",
    numbers=pd.concat(tables, ignore_index=True),
    runs=(run,),
    remarks=tuple(f"not finished: {key}" for key in left),
  )


def _notes(settings: Settings, stored: Mapping[str, About]) -> list[str]:
  """Gathers the notes on methods, on data and on the hardware."""
  behind = [
    f"{settings['methods'][key].get('label') or key} was trained for"
    f" {about.rounds} of {settings['rounds']} rounds until now: do not compare"
    " it with rows of more rounds."
    for key, about in stored.items()
    if about.rounds < settings["rounds"]
  ]
  notes = [note for about in stored.values() for note in about.notes]
  tests = [note for about in stored.values() for note in about.tests]
  machines = [f"Hardware: {about.hardware}." for about in stored.values()]
  return list(dict.fromkeys([*behind, *notes, *tests, *machines]))


def _of_seeds(folder: Path, into: str) -> Results:
  """Collects the methods that enough seeds have finished."""
  runs = workdirs.seeds_of(folder)
  chosen, keys = workdirs.comparable(runs, into)
  if not keys:
    raise Unfinished(f"--workdir={folder}: no method is finished yet")
  remarks = [
    f"{run.name} is not finished: left out" for run in runs if run not in chosen
  ]
  done = [key for run in chosen for key in workdirs.finished(run, into)]
  remarks += [
    f"{key} is not finished for every seed: left out"
    for key in dict.fromkeys(done)
    if key not in keys
  ]
  parts = [_of_run(run, into, keys) for run in chosen]
  return results.gather(parts[0].title, parts, remarks=remarks)


def _of_grid(
  folder: Path, into: str, only: Collection[str] | None = None
) -> Results:
  """Collects the cells of a grid that have a finished method."""
  tree = workdirs.read_grid(folder)
  parts, values, remarks, why = [], [], list[str](), ""
  for cell in tree["cells"]:
    name = cell["name"]
    if only is not None and name not in only:
      continue
    place = folder / name
    try:
      parts.append(_collect(place, into))
    except Unfinished as error:
      why = f" ({error})"
      remarks.append(f"not finished: {name}")
      continue
    values.append(cell["values"])
    methods = workdirs.read_run(place)["config"]["methods"]
    left = workdirs.unfinished(place, methods, tree["seeds"])
    remarks += [f"not finished: {name} {each}".strip() for each in left]
  if not parts:
    raise UserError(f"--workdir={folder}: no cell is finished yet{why}")
  if only is not None:
    remarks.append(f"evaluated: {', '.join(only)} alone")
  title = tree["title"] or "splitjax"
  return results.gather(title, parts, values, remarks)


def compare(folders: Sequence[str | Path]) -> Results:
  """Collects finished folders as one table, with the folder as column "run".

  Where one of them is a grid, its fields are columns, too; of the other folders
  they have the value of the config.

  Args:
    folders: at least two runs, seeds or grids.

  Raises:
    UserError: a folder is given twice, or has no finished method.
  """
  names = [str(folder).rstrip("/") for folder in folders]
  if len(names) < 2:
    raise UserError(
      f"only {names[0]} is given: name two or more, or leave --workdir out"
    )
  collected = list(map(collect, names))
  places = [Path(r.folder).resolve() for part in collected for r in part.runs]
  for place in places:
    if places.count(place) > 1:
      raise UserError(f"{place} is given twice: name different folders")
  parts = dict(zip(names, collected, strict=True))
  fields = dict.fromkeys(axis for part in parts.values() for axis in part.axes)
  values = [
    {"run": name}
    | {
      field: flat(part.runs[0].settings).get(field)
      for field in fields
      if field not in part.axes
    }
    for name, part in parts.items()
  ]
  remarks = [
    f"{name}: {remark}"
    for name, part in parts.items()
    for remark in part.remarks
  ]
  titles = dict.fromkeys(part.title for part in parts.values())
  return results.gather(
    " | ".join(titles),
    list(parts.values()),
    values,
    [*_differences(parts), *remarks],
  )


def _differences(parts: Mapping[str, Results]) -> list[str]:
  """Lists each field that differs between folders, and its values there.

  Methods are compared only where all folders have them; each row names its
  method.
  """
  settings = {
    name: {
      **flat({k: v for k, v in s.items() if k not in UNLISTED}),
      "seed": part.seeds,
    }
    for name, part in parts.items()
    for s in [part.runs[0].settings]
  }
  keys = [set(part.runs[0].settings["methods"]) for part in parts.values()]
  common = set.intersection(*keys)
  fields = dict.fromkeys(field for each in settings.values() for field in each)
  remarks = []
  for field in fields:
    alone = field.startswith("methods.") and field.split(".")[1] not in common
    values = {name: each.get(field) for name, each in settings.items()}
    if alone or len(set(map(str, values.values()))) == 1:
      continue
    listed = ", ".join(f"{value} ({name})" for name, value in values.items())
    remarks.append(f"differs, {field}: {listed}")
  return remarks


def report_folders(
  folders: Sequence[str | Path],
  place: Path | None,
  figures: Figures = "report",
) -> str:
  """Compares finished folders; returns the table, and where its report is.

  Raises:
    UserError: see `compare`; or `place` holds a run or a grid.
  """
  found = compare(folders)
  if place is None:
    last = "--workdir=FOLDER writes it as a report with figures"
  elif workdirs.is_grid(place) or workdirs.is_run(place):
    raise UserError(
      f"--workdir={place} holds a run: choose another folder for the report"
    )
  else:
    last = f"report   {write(found, place, figures=figures)}"
  return f"{found}\n{last}"


def _parts(folder: Path, only: Collection[str] | None) -> list[Path]:
  """Lists the folders of a run's seeds, or of a grid's cells."""
  if workdirs.is_grid(folder):
    cells = workdirs.read_grid(folder)["cells"]
    names = [cell["name"] for cell in cells]
    return [folder / name for name in names if only is None or name in only]
  return workdirs.seeds_of(folder) if workdirs.is_over_seeds(folder) else []


def summary(
  found: Results, workdir: Path, into: str = "", file: str | None = None
) -> str:
  """Formats results for a terminal, with paths and a call that loads a network.

  `into` is the report's folder in the workdir; `file` is a user's config file.
  """
  run = found.runs[0]
  key = next(iter(run.settings["methods"]))
  config = f', config="{file}"' if file else ""
  remarks = "".join(f"{remark}\n" for remark in found.remarks)
  return (
    f"{found}\n{remarks}"
    f"workdir  {workdir}\n"
    f"report   {workdir / into / page.PAGE}\n"
    f'load     splitjax.load("{run.folder}", "{key}"{config})'
  )


def devices() -> str:
  """Returns the number and kind of the devices that jax runs on."""
  goal = target.current()
  return f"{len(goal.devices)} × {goal.kind}"
