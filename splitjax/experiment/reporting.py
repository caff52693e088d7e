"""Results from the stored numbers of finished methods, and their reports.

`collect` makes the results of a run, of its seeds or of a grid, and `compare`
those of several folders; `report` writes what they show. Nothing is trained or
evaluated, so no config file and no data are needed.
"""

import contextlib
import functools
import itertools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

import pandas as pd

from splitjax import files, target
from splitjax.config.tree import flat
from splitjax.evaluation import measurements
from splitjax.experiment import workdirs
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
  parts: bool = True,
  figures: Figures = "report",
) -> Results:
  """Writes the report of a folder, and those of its seeds or cells.

  Args:
    folder: the folder of a run, of its seeds, or of a grid.
    into: the name of an evaluation, whose numbers are there.
    parts: whether the reports of seeds and cells are written, too.
    figures: which reports get figures.
  """
  collected = _collect(folder, into)
  inside = list[Path]()
  kind = workdirs.kind_of(folder)
  if parts and kind == "grid":
    names = [cell["name"] for cell in workdirs.read_grid(folder)["cells"]]
    inside = [folder / name for name in names]
  elif parts and kind == "seeds":
    inside = workdirs.seeds_of(folder)
  with workdirs.held(folder):
    for part in inside:
      with contextlib.suppress(Unfinished):
        report(part, into, figures="all" if figures == "all" else "none")
    write(collected, folder / into, into, figures)
  return collected


def write(
  collected: Results, folder: Path, into: str = "", figures: Figures = "report"
) -> Path:
  """Writes tables, figures and the page of results; returns the page.

  The tables are written before anything is drawn. The measurements of the first
  run are drawn, unless there are several cells.
  """
  folder.mkdir(parents=True, exist_ok=True)
  page.write(collected, folder)
  path = page.write_page(collected, folder)
  if figures == "none":
    return path
  from splitjax.reports.figures import draw  # imports matplotlib

  drawn = draw(collected, folder)
  run = collected.runs[0]
  if len({run.cell for run in collected.runs}) == 1:
    source = Path(run.folder) / into
    drawn += pictures(source, run.settings, folder)
    names = [
      *PICTURES,
      *(f"inside_{key}.png" for key in run.settings["methods"]),
    ]
    for parent in dict.fromkeys((folder, source)):
      drawn += filter(Path.exists, map(parent.joinpath, names))
  return page.write_page(collected, folder, drawn)


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

  written = list[Path]()
  of = f"{settings['data']['name']}, seed {settings['seed']}"
  methods = settings["methods"].items()
  kinds = measurements.drawn().items()
  for (name, module), (key, spec) in itertools.product(kinds, methods):
    path = workdirs.folder(source, key) / f"{name}.npz"
    if not path.exists():
      continue
    try:
      arrays = files.read_arrays(path)
    except (OSError, ValueError) as error:
      raise UserError(
        f"{path} is damaged ({error}): delete it, and the report leaves it out"
      ) from None
    label = spec.get("label") or key
    make = functools.partial(module.picture, arrays, label, of, maps)
    written += attempt(folder / f"{name}_{key}.png", make)
  return written


def drawn_names(keys: Collection[str]) -> list[str]:
  """Returns the names of all figures that a run of these methods can have."""
  from splitjax.reports.figures import FIGURES  # imports matplotlib

  kinds = *measurements.drawn(), "inside"
  measured = map("_".join, itertools.product(kinds, keys))
  return [*PICTURES, *(f"{name}.png" for name in (*FIGURES, *measured))]


def collect(folder: str | Path) -> Results:
  """Reads the numbers of a run, of its seeds, of a grid or of an evaluation.

  Raises:
    Unfinished: no method is finished.
    UserError: a stored file is damaged.
  """
  return _collect(*_evaluated(files.expanded(folder)))


def _evaluated(folder: Path) -> tuple[Path, str]:
  """Splits the folder of an evaluation into the run's and its name there."""
  inside = workdirs.kind_of(folder.parent) and not workdirs.kind_of(folder)
  if inside and folder.is_dir():
    return folder.parent, folder.name
  return folder, ""


def _collect(folder: Path, into: str = "") -> Results:
  kind = workdirs.kind_of(folder)
  if kind == "grid":
    return _of_grid(folder, into)
  return (_of_seeds if kind == "seeds" else _of_run)(folder, into)


def _of_run(
  folder: Path, into: str, keys: Collection[str] | None = None
) -> Results:
  """Collects the finished methods of a run, or those of them in `keys`."""
  settings = workdirs.read_run(folder)["config"]
  about = workdirs.finished(folder, into)
  missing = [key for key in settings["methods"] if key not in about]
  if keys is not None:
    about = {key: about[key] for key in keys}
  if not about:
    raise Unfinished(f"--workdir={folder}: no method is finished yet")
  methods = {key: settings["methods"][key] for key in about}
  settings = {**settings, "methods": methods}
  for record in about.values():
    settings |= record.evaluated
  tables = list[pd.DataFrame]()
  methods_of_rows = dict[str, str]()
  for key, record in about.items():
    # Stored rows begin with the method's key; its label may be corrected.
    label = settings["methods"][key].get("label") or key
    rows = {row: label + row.removeprefix(key) for row in record.methods}
    table = numbers.read(workdirs.folder(folder / into, key))
    tables.append(table.assign(row=table.row.map(rows)))
    methods_of_rows |= {rows[row]: x for row, x in record.methods.items()}
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
    remarks=tuple(f"not finished: {key}" for key in missing if not into),
  )


def _notes(settings: Settings, stored: Mapping[str, About]) -> Sequence[str]:
  """Gathers the notes on methods, on data and on the hardware, each once."""
  behind = [
    f"{settings['methods'][key].get('label') or key} was trained for"
    f" {about.rounds} of {settings['rounds']} rounds until now: do not compare"
    " it with rows of more rounds."
    for key, about in stored.items()
    if about.rounds < settings["rounds"]
  ]
  notes = itertools.chain(*(about.notes for about in stored.values()))
  tests = itertools.chain(*(about.tests for about in stored.values()))
  machines = [f"Hardware: {about.hardware}." for about in stored.values()]
  return list(dict.fromkeys([*behind, *notes, *tests, *machines]))


def _of_seeds(folder: Path, into: str) -> Results:
  """Collects the methods that enough seeds have finished."""
  runs = workdirs.seeds_of(folder)
  finished, keys = workdirs.comparable(runs, into)
  if not keys:
    raise Unfinished(f"--workdir={folder}: no method is finished yet")
  remarks = [
    f"{run.name} is not finished: left out"
    for run in runs
    if run not in finished
  ]
  remarks += [
    f"{key} is not finished for every seed: left out"
    for key in workdirs.read_run(folder)["config"]["methods"]
    if key not in keys
  ]
  parts = [_of_run(run, into, keys) for run in finished]
  return results.gather(parts[0].title, parts, remarks=remarks)


def _of_grid(folder: Path, into: str) -> Results:
  """Collects the cells of a grid that have a finished method."""
  tree = workdirs.read_grid(folder)
  parts = list[Results]()
  values = list[Mapping[str, object]]()
  remarks = list[str]()
  reason = ""
  for cell in tree["cells"]:
    name = cell["name"]
    try:
      parts.append(_collect(folder / name, into))
    except Unfinished as error:
      reason = f" ({error})"
      remarks.append(f"not finished: {name}")
      continue
    values.append(cell["values"])
    remarks += [f"{name}: {remark}" for remark in parts[-1].remarks]
    remarks += [
      f"not begun: {name}, seed {seed}"
      for seed in tree["seeds"] or ()
      if not workdirs.kind_of(folder / name / f"seed{seed}")
    ]
  if not parts:
    raise UserError(f"--workdir={folder}: no cell is finished yet{reason}")
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
  parts = list(map(collect, names))
  runs = itertools.chain(*(part.runs for part in parts))
  paths = [Path(run.folder).resolve() for run in runs]
  for path in paths:
    if paths.count(path) > 1:
      raise UserError(f"{path} is given twice: name different folders")
  fields = dict.fromkeys(itertools.chain(*(part.axes for part in parts)))
  values = list[dict[str, object]]()
  remarks = _differences(names, parts)
  for name, part in zip(names, parts, strict=True):
    settings = flat(part.runs[0].settings)
    unswept = [field for field in fields if field not in part.axes]
    values.append({"run": name} | {k: settings.get(k) for k in unswept})
    remarks += [f"{name}: {remark}" for remark in part.remarks]
  title = " | ".join(dict.fromkeys(part.title for part in parts))
  return results.gather(title, parts, values, remarks)


def _differences(names: Sequence[str], parts: Sequence[Results]) -> list[str]:
  """Lists each field that differs between folders, and its values there.

  Methods are compared only where all folders have them; each row names its
  method.
  """
  trees = [part.runs[0].settings for part in parts]
  common = set.intersection(*(set(tree["methods"]) for tree in trees))
  settings = [
    flat({k: v for k, v in tree.items() if k not in UNLISTED})
    | {"seed": part.seeds}
    for tree, part in zip(trees, parts, strict=True)
  ]
  remarks = []
  for field in dict.fromkeys(itertools.chain(*settings)):
    alone = field.startswith("methods.") and field.split(".")[1] not in common
    values = [str(tree.get(field)) for tree in settings]
    if not alone and len(set(values)) > 1:
      listed = ", ".join(map("{} ({})".format, values, names))
      remarks.append(f"differs, {field}: {listed}")
  return remarks


def report_folders(
  folders: Sequence[str | Path],
  workdir: Path | None,
  figures: Figures = "report",
) -> str:
  """Compares finished folders; returns the table, and where its report is.

  Raises:
    UserError: see `compare`; or `workdir` holds a run or a grid.
  """
  compared = compare(folders)
  if workdir is None:
    return f"{compared}\n--workdir=FOLDER writes it as a report with figures"
  if workdirs.kind_of(workdir):
    raise UserError(
      f"--workdir={workdir} holds a run: choose another folder for the report"
    )
  return f"{compared}\nreport   {write(compared, workdir, figures=figures)}"


def summary(
  shown: Results, workdir: Path, into: str = "", file: str | None = None
) -> str:
  """Formats results for a terminal, with paths and a call that loads a network.

  `into` is the report's folder in the workdir; `file` is a user's config file.
  """
  run = shown.runs[0]
  key = next(iter(run.settings["methods"]))
  config = f', config="{file}"' if file else ""
  remarks = "".join(f"{remark}\n" for remark in shown.remarks)
  return (
    f"{shown}\n{remarks}"
    f"workdir  {workdir}\n"
    f"report   {workdir / into / page.PAGE}\n"
    f'load     splitjax.load("{run.folder}", "{key}"{config})'
  )


def devices() -> str:
  """Returns the number and kind of the devices that jax runs on."""
  machine = target.current()
  return f"{len(machine.devices)} × {machine.kind}"
