"""Evaluates the saved networks of finished runs again."""

import copy
import itertools
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from splitjax import files
from splitjax.config import loading
from splitjax.config.config import Config, assign, significant
from splitjax.experiment import reporting, storage, workdirs
from splitjax.experiment.console import say
from splitjax.experiment.network import abstract_state
from splitjax.experiment.programs import Programs
from splitjax.experiment.task import make_subject
from splitjax.experiment.train import conclude, judge
from splitjax.experiment.trained import rebuilt
from splitjax.reports import tensorboard
from splitjax.reports.results import Results
from splitjax.types import UserError


def evaluate_again(
  workdir: str | Path,
  changes: Mapping[str, Any] | None = None,
  *,
  config: str | Path | None = None,
  name: str = "evaluate",
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
    UserError: no method is finished, other fields are given, the data have
      changed, or test sets contain samples that the run has trained on.

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
  cells = [runs for runs, _ in workdirs.runs_of(workdir)]
  runs = [*filter(workdirs.finished, itertools.chain(*cells))]
  if not runs:
    raise UserError(
      f"--workdir={workdir} holds no run with a finished method: train"
      " one first"
    )
  with workdirs.held(workdir):
    for run in runs:
      with workdirs.held(run):
        _evaluate(run, changes or {}, name)
    return reporting.report_again(workdir / name, figures=figures)


def _evaluate(workdir: Path, changes: Mapping[str, Any], name: str) -> None:
  """Evaluates a run's finished methods."""
  trained_config, facts = workdirs.read_config(workdir)
  config = copy.deepcopy(trained_config)
  assign(config, changes)
  differs = workdirs.first_difference(
    significant(trained_config.to_dict()),
    significant(config.to_dict()),
    ("eval", "privacy.delta"),
  )
  if differs:
    raise UserError(
      f"--workdir={workdir} belongs to another config ({differs}): evaluate can"
      " change config.eval and privacy.delta alone"
    )
  task = rebuilt(workdir, Config.from_dict(config), facts)
  # What an earlier evaluation wrote may be of other test sets.
  into = workdir / name
  shutil.rmtree(workdirs.folder(into, ""), ignore_errors=True)

  settings = task.config.to_dict()
  changed = {group: settings[group] for group in ("eval", "privacy")}
  stored = workdirs.finished(workdir)
  for key in task.config.methods:
    if key not in stored:
      say(f"{workdir} has no finished {key}: left out")
      continue
    say(f"{key}: evaluating")
    programs = Programs(make_subject(task, key))
    method = programs.subject.method
    like = abstract_state(method, task.network)
    method_dir = workdirs.folder(workdir, key)
    state, record = storage.read(method_dir, stored[key].rounds, like)
    state = programs.place(state)
    judged = judge(programs, state, method.rows, None)
    about = stored[key]._replace(evaluated=changed)
    into_dir = workdirs.folder(into, key)
    conclude(programs, into_dir, state, record, judged, about, trained_config)
