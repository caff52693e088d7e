"""Evaluates the saved networks of finished runs again."""

import contextlib
import copy
import dataclasses
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from splitjax import files
from splitjax.config import loading
from splitjax.config.config import Config, significant
from splitjax.config.tree import assign
from splitjax.evaluation.subject import End
from splitjax.experiment import (
  history,
  reporting,
  storage,
  summary,
  workdirs,
)
from splitjax.experiment.console import say
from splitjax.experiment.programs import Programs
from splitjax.experiment.task import Task, make_subject
from splitjax.experiment.train import finish, judge, placed
from splitjax.experiment.trained import rebuilt
from splitjax.experiment.workdirs import About
from splitjax.files import Json
from splitjax.reports import tensorboard
from splitjax.reports.results import Results
from splitjax.types import UserError

_EXTRAS = {"embeddings", "metrics", "confusion", "target"}
"""Fields of eval that do not change the scores of rows."""


def evaluate_again(
  workdir: str | Path,
  changes: Mapping[str, Any] | None = None,
  *,
  config: str | Path | None = None,
  name: str = workdirs.EVALUATED,
  figures: reporting.Figures = "report",
) -> Results:
  """Evaluates the saved networks again, on other test sets if asked.

  Args:
    workdir: the folder of a run, of one run per seed, or of a grid.
    changes: fields that replace those of the run's config, such as
      {"eval.rhos": (0, 0.5)}: of `eval`, privacy.delta, and those that change
      no number, such as data.dir.
    config: a config file of your own, executed for what it registers (see
      `splitjax.load`).
    name: the folder of this evaluation in the workdir, and in those of seeds
      and cells.
    figures: see `runs.run`.

  Returns:
    The results, written to workdir/name. Numbers of earlier rounds are among
    them only if the test sets stay the same.

  Raises:
    Unfinished: no method is finished.
    UserError: other fields are given, the data have changed, or test sets
      contain samples that the run has trained on.

  Example:
    >>> import splitjax
    >>> results = splitjax.evaluate_again("runs/first")
    >>> results.rows
    ['splitgp']
  """
  workdir = files.expanded(workdir)
  reserved = "methods", workdirs.DESCRIBED, tensorboard.FOLDER
  # Of the names with a dot only numbers are folders, as rho=0.5.
  is_folder = re.fullmatch(r"[A-Za-z0-9]([\w=-]|\.(?=\d))*", name)
  if not is_folder or name in reserved or workdirs.kind_of(workdir / name):
    raise UserError(
      f"--evaluation={name!r} must be a new folder's name, such as far_clients"
    )
  if config is not None:
    loading.execute(config)
  if not workdirs.kind_of(workdir):
    workdirs.read_run(workdir)  # says that there is none; only a run is held
  with workdirs.held(workdir):
    _evaluate(workdir, changes or {}, name, figures)
    return reporting.report_again(workdir / name, figures=figures)


def _evaluate(
  folder: Path,
  changes: Mapping[str, Any],
  name: str,
  figures: reporting.Figures,
) -> None:
  """Evaluates the finished methods of a run, of its seeds, or of all cells."""
  kind = workdirs.kind_of(folder)
  inner: reporting.Figures = "all" if figures == "all" else "none"
  if kind == "grid":
    for cell in workdirs.read_grid(folder)["cells"]:
      with contextlib.suppress(workdirs.Unfinished):
        _evaluate(folder / cell["name"], changes, name, inner)
  elif kind == "seeds":
    for run in workdirs.seeds_of(folder):
      with contextlib.suppress(workdirs.Unfinished):
        _evaluate(run, changes, name, figures)
  else:
    workdirs.read_run(folder)  # a cell may not have begun
    with workdirs.held(folder):
      _evaluate_run(folder, changes, name, figures)


def _evaluate_run(
  workdir: Path,
  changes: Mapping[str, Any],
  name: str,
  figures: reporting.Figures,
) -> None:
  """Evaluates a run's finished methods."""
  trained_config, facts = workdirs.read_config(workdir)
  config = copy.deepcopy(trained_config)
  assign(config, changes)
  stored = workdirs.finished(workdir)
  if not stored:
    raise workdirs.Unfinished(f"--workdir={workdir} has no finished method")
  task = _task(workdir, trained_config, Config.from_dict(config), facts)
  # What an earlier evaluation wrote may be of other test sets.
  into = workdir / name
  shutil.rmtree(workdirs.folder(into, ""), ignore_errors=True)
  for picture in summary.PICTURES:
    (into / picture).unlink(missing_ok=True)
  if figures != "none":
    summary.pictures(task, into)
  for key in config.methods:
    if key not in stored:
      say(f"{workdir} has no finished {key}: left out")
    else:
      say(f"{key}: evaluating")
      _evaluate_method(task, key, workdir, trained_config, stored[key], name)


def _task(
  workdir: Path, trained_config: Config, config: Config, facts: Json
) -> Task:
  """Builds the task of `config` that evaluates a trained run."""
  privacy = dataclasses.replace(
    config.privacy, delta=trained_config.privacy.delta
  )
  alike = dataclasses.replace(config, eval=trained_config.eval, privacy=privacy)
  differs = workdirs.first_difference(
    significant(trained_config.to_dict()), significant(alike.to_dict())
  )
  if differs:
    raise UserError(
      f"--workdir={workdir} belongs to another config ({differs}): evaluate can"
      " change config.eval and privacy.delta alone"
    )
  return rebuilt(workdir, config, facts)


def _evaluate_method(
  task: Task,
  key: str,
  workdir: Path,
  trained_config: Config,
  about: About,
  name: str,
) -> None:
  """Evaluates a finished method; writes its numbers."""
  programs = Programs(make_subject(task, key))
  method = programs.subject
  rows = method.method.rows
  method_dir = workdirs.folder(workdir, key)
  step = storage.path_of(method_dir, about.rounds)
  state = placed(programs, storage.read(step, programs.shapes))
  old = vars(trained_config.eval)
  config = task.config
  log = storage.Log(method_dir)
  past = history.read_history(log, trained_config, rows)
  end = End(
    subject=method,
    scores=judge(programs, state, rows, None),
    state=state,
    personal=programs.personalise(state),
    lines=past.lines,
    totals=past.clients,
    current=all(
      old[field] == value
      for field, value in vars(config.eval).items()
      if field not in _EXTRAS
    ),
  )
  settings = config.to_dict()
  changed = {field: settings[field] for field in ("eval", "privacy")}
  about = dataclasses.replace(about, evaluated=changed)
  finish(end, workdirs.folder(workdir / name, key), about)
